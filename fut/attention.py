"""Causal attention with the weights of a backbone: by projection products, or by index selection where it is sparse.

Shapes in the comments: B sequences, n positions, m width, H heads, k `qk_dim`.
"""

import math
from functools import cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fut.backbones.base import Backbone
from fut.backbones.trees import tree_width


def hold(module: nn.Module, name: str, array: np.ndarray, trained: bool) -> None:
    """Give a module a copy of an array: a parameter if it trains, else a buffer, which no optimiser can reach."""
    tensor = torch.tensor(array)  # a copy: training in place must not reach the arrays of the backbone
    if trained:
        module.register_parameter(name, nn.Parameter(tensor))
    else:
        module.register_buffer(name, tensor)


def attention_weights(query: Tensor, key: Tensor) -> Tensor:
    """Causal attention weights softmax(Q Kᵀ / √k), [B, H, n, n], of queries and keys [B, n, H, k]."""
    b, n, heads, k = query.shape
    query = query.transpose(1, 2).reshape(b * heads, n, k)
    key = key.permute(0, 2, 3, 1).reshape(b * heads, k, n)
    mask = _causal_mask(n, query.dtype, query.device).expand(b * heads, n, n)
    scores = torch.baddbmm(mask, query, key, alpha=1 / math.sqrt(k))
    return scores.softmax(-1).view(b, heads, n, n)


@cache
def _causal_mask(n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """What is added to scores [n, n]: 0 up to the diagonal, −∞ above it."""
    with torch.inference_mode(False):  # an evaluation may ask first, and training uses what it left
        return torch.full((n, n), -math.inf, dtype=dtype, device=device).triu(1)


class DenseAttention(nn.Module):
    """Attention with projection products: drawn backbones, and trained ones."""

    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor

    def __init__(self, backbone: Backbone, trained: bool) -> None:
        super().__init__()
        self.tied = backbone.recipe.tied
        for name in ("query", "key", "value", "output"):
            if name in backbone.arrays:
                hold(self, name, backbone.arrays[name], trained)
        self.standard = "output" in backbone.arrays

    def forward(self, h: Tensor, layer: int) -> Tensor:
        """What the heads of a layer add up to, [B, n, m], for the normalised state h of the same shape."""
        stored = 0 if self.tied else layer
        b, n, m = h.shape
        value = self.value[stored]  # [H, m, r]
        read = [self.query[stored], self.key[stored], *([value] if self.standard else [])]
        query, key, *moved = _project(h, read)
        weights = attention_weights(query, key)
        if self.standard:
            mixed = torch.matmul(weights, moved[0].transpose(1, 2))  # [B, H, n, r]
            return mixed.transpose(1, 2).flatten(2) @ self.output[stored].flatten(0, 1)
        heads = len(value)
        mixed = torch.bmm(weights.reshape(b, heads * n, n), h).view(b, heads, n, m)  # every head mixes the same rows
        return mixed.transpose(1, 2).flatten(2) @ value.flatten(0, 1)


def _project(h: Tensor, weights: list[Tensor]) -> list[Tensor]:
    """[B, n, m] by several [H, m, r] to as many [B, n, H, r]: one product, which is faster than one for each."""
    columns = [weight.transpose(0, 1).flatten(1) for weight in weights]  # [m, H r]
    projected = (h @ torch.cat(columns, dim=1)).split([column.shape[1] for column in columns], dim=-1)
    return [part.unflatten(-1, (len(weight), -1)) for part, weight in zip(projected, weights, strict=True)]


class SparseAttention(nn.Module):
    """Attention by index selection: a {0, 1} backbone only reads slots and moves them, so it needs no products.

    Slots of a tree wider than m read as zero, and what would be written there is dropped.
    """

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.tied = backbone.recipe.tied
        self.padding = max(0, tree_width(backbone.recipe) - backbone.recipe.width)
        slots: dict[str, list[_Slots]] = {}
        stored = range(len(backbone.arrays["query"]))
        for kind in ("source", "destination"):
            for layer in stored:
                hold(self, f"{kind}_{layer}", backbone.arrays[f"{kind}.{layer}"], trained=False)
            slots[kind] = [_Slots(self.get_buffer(f"{kind}_{layer}")) for layer in stored]
        for kind in ("query", "key"):
            hold(self, kind, backbone.arrays[kind], trained=False)
            slots[kind] = [_Slots(index) for index in self.get_buffer(kind)]
        self.slots = slots

    def forward(self, h: Tensor, layer: int) -> Tensor:
        """What the heads of a layer add up to, [B, n, m], for the normalised state h of the same shape."""
        stored = 0 if self.tied else layer
        m = h.shape[-1]
        padded = F.pad(h, (0, self.padding)) if self.padding else h
        slots = {kind: lists[stored] for kind, lists in self.slots.items()}
        weights = attention_weights(slots["query"].read(padded), slots["key"].read(padded))
        # The heads' contents add up in one place, so that one product over the positions of all heads does it.
        moved = slots["source"].read(padded).transpose(1, 2).flatten(1, 2)  # [B, H n, c]
        added = torch.bmm(weights.transpose(1, 2).flatten(2), moved)  # [B, n, c]
        return slots["destination"].write(added, m + self.padding)[..., :m]


class _Slots:
    """Slots of the state that are read or written together: a list or, as mostly, one run, which a view serves."""

    def __init__(self, index: Tensor) -> None:
        self.shape, self.index, self.start = index.shape, index.flatten(), int(index.flatten()[0])
        self.is_run = torch.equal(self.index, torch.arange(self.start, self.start + len(self.index)))

    def read(self, state: Tensor) -> Tensor:
        if self.is_run:
            flat = state.narrow(-1, self.start, len(self.index))
        else:
            flat = state.index_select(-1, self.index.to(state.device))
        return flat.unflatten(-1, self.shape)

    def write(self, content: Tensor, width: int) -> Tensor:
        if self.is_run:
            return F.pad(content, (self.start, width - self.start - len(self.index)))
        empty = content.new_zeros(*content.shape[:-1], width)
        return empty.index_copy(-1, self.index.to(content.device), content)
