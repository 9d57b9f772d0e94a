"""Causal attention with the weights of a backbone: by projection products, or by index selection where it is sparse.

Shapes in the comments: B sequences, n positions, m width, H heads, k `qk_dim`.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fut.backbones.base import Backbone
from fut.backbones.trees import tree_width


def hold(module: nn.Module, name: str, array: np.ndarray, trained: bool) -> None:
    """Give a module a tensor: a parameter if it trains, else a buffer, which no optimiser can reach."""
    tensor = torch.from_numpy(array)
    if trained:
        module.register_parameter(name, nn.Parameter(tensor))
    else:
        module.register_buffer(name, tensor)


def attention_weights(query: Tensor, key: Tensor) -> Tensor:
    """Causal attention weights softmax(Q Kᵀ / √k), [B, H, n, n], of queries and keys [B, n, H, k]."""
    b, n, heads, k = query.shape
    query = query.transpose(1, 2).reshape(b * heads, n, k)
    key = key.permute(0, 2, 3, 1).reshape(b * heads, k, n)
    mask = torch.full((n, n), -math.inf, dtype=query.dtype, device=query.device).triu(1)
    scores = torch.baddbmm(mask.expand(b * heads, n, n), query, key, alpha=1 / math.sqrt(k))
    return scores.softmax(-1).view(b, heads, n, n)


class DenseAttention(nn.Module):
    """Attention with projection products: drawn backbones, and trained ones."""

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
        stored = len(backbone.arrays["query"])
        for name in ("query", "key", *(f"{kind}.{layer}" for layer in range(stored) for kind in ("source", "destination"))):
            hold(self, name.replace(".", "_"), backbone.arrays[name], trained=False)
        # Most reads are one run of slots, which a view serves without a copy.
        self.query_slots, self.key_slots = ([_Slots(index) for index in index_list] for index_list in (self.query, self.key))
        self.source_slots, self.destination_slots = (
            [_Slots(self.get_buffer(f"{kind}_{layer}")) for layer in range(stored)] for kind in ("source", "destination")
        )

    def forward(self, h: Tensor, layer: int) -> Tensor:
        """What the heads of a layer add up to, [B, n, m], for the normalised state h of the same shape."""
        stored = 0 if self.tied else layer
        m = h.shape[-1]
        padded = F.pad(h, (0, self.padding)) if self.padding else h
        weights = attention_weights(self.query_slots[stored].read(padded), self.key_slots[stored].read(padded))
        # The heads' contents add up in one place, so that one product over the positions of all heads does it.
        moved = self.source_slots[stored].read(padded).transpose(1, 2).flatten(1, 2)  # [B, H n, c]
        added = torch.bmm(weights.transpose(1, 2).flatten(2), moved)  # [B, n, c]
        return self.destination_slots[stored].write(added, m + self.padding)[..., :m]


class _Slots:
    """Slots of the state that are read or written together: one run of them, or a list."""

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
