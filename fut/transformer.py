"""The transformer: a frozen backbone between an embedding and an unembedding.

Shapes in the comments: B sequences, n positions, m width, p outputs.

The blocks are pre-norm and the attention causal.  With all components off, one layer is

    X ← Σ_h softmax(X R_Q^h (X R_K^h)ᵀ / √k) X R_V^h

`residual` adds X to it, `layernorm` normalises (without affine parameters) what each block reads and the end of the
stack, and `mlp` follows each attention by a block X ← ReLU(X W_in) W_out, with its own residual where that is on.
"""

import math
from collections.abc import Callable

import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn

from fut.attention import DenseAttention, SparseAttention, hold
from fut.backbones.base import Backbone
from fut.config import TrialConfig
from fut.digest import array_digest
from fut.seeds import generator

EMBEDDING_SCALE = 0.2  # standard deviation of the initial token and position embeddings (docs/findings.md)


class Transformer(nn.Module):
    """A backbone with a program: [B, n] tokens, or [B, n, d] vectors, to [B, n, p] outputs.

    Exactly what `config.trainable` names are parameters; everything else is a buffer.

    Args:
        config: the trial; its task gives the sizes of the program, its seed the program's initial values.
        backbone: the frozen tensors (the initial ones for backbone kind ``trained``).
    """

    token_embedding: Tensor
    position_embedding: Tensor
    unembedding: Tensor
    mlp_in: Tensor
    mlp_out: Tensor

    def __init__(self, config: TrialConfig, backbone: Backbone) -> None:
        super().__init__()
        self.residual, self.layernorm, self.mlp = (config.has(name) for name in ("residual", "layernorm", "mlp"))
        self.layers, self.width, self.tied = config.layers, config.width, backbone.recipe.tied
        self.reads_tokens = config.task.vocabulary is not None
        trains_all = config.trainable == "all"
        if backbone.recipe.kind == "sparse":
            self.attention: nn.Module = SparseAttention(backbone)
        else:
            self.attention = DenseAttention(backbone, trains_all)
        for name in ("mlp_in", "mlp_out", "unembedding"):
            if name in backbone.arrays:
                hold(self, name, backbone.arrays[name], trains_all)
        self._start_program(config)

    def _start_program(self, config: TrialConfig) -> None:
        """Small token and position embeddings; for vectors, and for the unembedding, 1 / √fan-in."""
        task, m, draw = config.task, config.width, generator(config.seed, "program")
        embeds = config.trainable != "unembedding"
        scale = EMBEDDING_SCALE if self.reads_tokens else 1 / math.sqrt(task.input_dim)
        hold(self, "token_embedding", _normal(draw, (task.input_dim, m), scale), embeds)
        if self.reads_tokens:
            hold(self, "position_embedding", _normal(draw, (task.positions, m), scale), embeds)
        if config.trainable != "embedding":
            hold(self, "unembedding", _normal(draw, (m, task.out_dim), 1 / math.sqrt(m)), trained=True)

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs [B, n, p] of tokens [B, n] or vectors [B, n, d]."""
        if self.reads_tokens:
            x = F.embedding(inputs, self.token_embedding) + self.position_embedding
        else:
            x = inputs @ self.token_embedding
        for layer in range(self.layers):
            x = self._block(x, self.attention, layer)
            if self.mlp:
                x = self._block(x, self._feed_forward, layer)
        return self._norm(x) @ self.unembedding

    def _block(self, x: Tensor, branch: Callable[[Tensor, int], Tensor], layer: int) -> Tensor:
        added = branch(self._norm(x), layer)
        return x + added if self.residual else added

    def _norm(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, (self.width,)) if self.layernorm else x

    def _feed_forward(self, h: Tensor, layer: int) -> Tensor:
        stored = 0 if self.tied else layer
        return F.relu(h @ self.mlp_in[stored]) @ self.mlp_out[stored]

    def frozen_digest(self) -> str:
        """SHA-256 of every frozen tensor: the same before and after training, or something moved."""
        return array_digest({name: tensor.cpu().numpy() for name, tensor in self.named_buffers()})

    def program(self) -> dict[str, Tensor]:
        """What trains, by name: E and U, or all weights of a `trained` backbone."""
        return {name: parameter.detach() for name, parameter in self.named_parameters()}


def _normal(draw: np.random.Generator, shape: tuple[int, ...], scale: float) -> np.ndarray:
    return (scale * draw.standard_normal(shape)).astype(np.float32)
