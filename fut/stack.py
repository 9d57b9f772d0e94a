"""A transformer's layers as the theory sees them: what each head reads, and what it carries to the next layer.

Write a layer's state as rows of `width` coordinates.  Head h of layer l reads it through two matrices, R_Q and R_K,
and carries it on through a third, R_V.  A *condition* on the embedding is a column c that it has to meet; one that is
put to the state behind a layer becomes, for each head, the condition R_V c on the state before it.  So all conditions
are found by walking through the layers from the last to the first, and no product of value matrices is ever formed.

Two kinds of stacks do the same in their own way: `Dense` multiplies, and `Slots`, that of a sparse backbone, whose R_V
move slots, only says which slot a condition reads.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from fut.backbones.base import Backbone
from fut.backbones.trees import tree_width

NOWHERE = -1  # the slot of a condition on a slot that the backbone has no room for


class Stack(ABC):
    """L layers of H heads.  Columns are conditions: [width, c] in a `Dense` stack, [c] slots in one of `Slots`."""

    layers: int
    heads: int
    qk_dim: int
    width: int
    tied: bool

    @abstractmethod
    def reads(self, layer: int) -> np.ndarray:
        """What the heads of a layer ask of the state before it: [Q_1 … Q_H | K_1 … K_H], 2 H k columns."""

    @abstractmethod
    def before(self, layer: int, head: int, columns: np.ndarray) -> np.ndarray:
        """Conditions on what a head writes, as conditions on the state before its layer: R_V columns."""

    @abstractmethod
    def after(self, layer: int, head: int, rows: np.ndarray) -> np.ndarray:
        """What a head makes of the rows [r, width] of a state, attention aside: rows R_V."""

    @abstractmethod
    def read(self, layer: int, head: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The queries and keys [r, k] of rows [r, width] of the state before a layer."""

    def conditions(self, leaves: np.ndarray, residual: bool, words: bool = False) -> np.ndarray:
        """All conditions on the embedding, in one order for every stack of a shape: the columns of Φ, or of T.

        Args:
            leaves: the conditions on the last state, p columns; none where the unembedding is compiled too.
            residual: whether there are residual connections.
            words: of a tied stack with residual connections, where paths of equal words are equal conditions: take each
                word once (see `fut.theory`).
        """
        if words:
            reads = self._words(self.reads(0), self.layers - 1)
            return join([*reads, *self._words(leaves, self.layers)])
        columns = leaves
        for layer in reversed(range(self.layers)):
            kept = [columns] if residual else []
            moved = [self.before(layer, head, columns) for head in range(self.heads)]
            columns = join([self.reads(layer), *kept, *moved])
        return columns

    def _words(self, columns: np.ndarray, longest: int) -> list[np.ndarray]:
        """Conditions at the end of every word of up to `longest` heads of a tied stack, by the words' length."""
        levels = [columns]
        for _ in range(longest):
            levels.append(join([self.before(0, head, levels[-1]) for head in range(self.heads)]))
        return levels

    def contents(self, rows: np.ndarray, residual: bool, words: bool = False) -> np.ndarray:
        """What the rows [d, width] of an embedding are behind every full path, or every word: [paths · d, width]."""
        levels = [rows]
        for layer in range(self.layers):
            moved = [self.after(layer, head, levels[-1]) for head in range(self.heads)]
            levels.append(np.concatenate([levels[-1], *moved] if residual and not words else moved))
        return np.concatenate(levels) if words else levels[-1]

    def run(self, state: np.ndarray, residual: bool) -> np.ndarray:
        """The last state [B, n, width] of a first one, in its precision, with causal attention."""
        for layer in range(self.layers):
            added = np.zeros_like(state)
            for head in range(self.heads):
                query, key = self.read(layer, head, state)
                added += causal_attention(query, key) @ self.after(layer, head, state)
            state = state + added if residual else added
        return state


class Dense(Stack):
    """A stack of matrices: drawn and trained backbones, and targets.

    Args:
        query: [S, H, m, k], S = L, or 1 where all layers are the same.
        key: the same.
        value: [S, H, m, r], R_V itself (r = m), or its first factor.
        output: [S, H, r, m], the second factor, if any.
        layers: L.
    """

    def __init__(
        self, query: np.ndarray, key: np.ndarray, value: np.ndarray, output: np.ndarray | None, layers: int
    ) -> None:
        self.query, self.key, self.value, self.output = query, key, value, output
        stored, self.heads, self.width, self.qk_dim = query.shape
        self.layers, self.tied = layers, stored == 1 and layers > 1

    def _factors(self, layer: int, head: int, dtype: np.dtype) -> list[np.ndarray]:
        stored = 0 if self.tied else layer
        matrices = [self.value] if self.output is None else [self.value, self.output]
        return [matrix[stored, head].astype(dtype) for matrix in matrices]  # of one head: they are m × m

    def reads(self, layer: int) -> np.ndarray:
        """W_Q and W_K of all heads side by side, [m, 2 H k]."""
        stored = 0 if self.tied else layer
        return np.concatenate([*self.query[stored], *self.key[stored]], axis=1).astype(np.float64)

    def before(self, layer: int, head: int, columns: np.ndarray) -> np.ndarray:
        """R_V columns, [m, c]."""
        for factor in reversed(self._factors(layer, head, columns.dtype)):
            columns = factor @ columns
        return columns

    def after(self, layer: int, head: int, rows: np.ndarray) -> np.ndarray:
        """Rows R_V, [r, m]."""
        for factor in self._factors(layer, head, rows.dtype):
            rows = rows @ factor
        return rows

    def read(self, layer: int, head: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows W_Q and rows W_K."""
        stored = 0 if self.tied else layer
        query, key = (weights[stored, head].astype(rows.dtype) for weights in (self.query, self.key))
        return rows @ query, rows @ key


class Slots(Stack):
    """The stack of a sparse backbone.  A condition is the slot that it reads; slots that are not there read as zero."""

    def __init__(self, backbone: Backbone) -> None:
        recipe = backbone.recipe
        self.layers, self.heads, self.qk_dim, self.tied = recipe.layers, recipe.heads, recipe.qk_dim, recipe.tied
        self.width, self.arrays = recipe.width, backbone.arrays
        self.slots = max(recipe.width, tree_width(recipe))

    def leaves(self, out_dim: int) -> np.ndarray:
        """The first slots of those in which the last layer leaves its outputs, [p]."""
        if self.tied:  # behind the root's queries and keys
            return self._there(2 * self.heads * self.qk_dim + np.arange(out_dim))
        return self._there(self.arrays[f"destination.{self.layers - 1}"][:out_dim])

    def _lists(self, layer: int, head: int) -> tuple[np.ndarray, np.ndarray]:
        stored = 0 if self.tied else layer
        return self.arrays[f"source.{stored}"][head], self.arrays[f"destination.{stored}"]

    def _there(self, slots: np.ndarray) -> np.ndarray:
        return np.where(slots < self.width, slots, NOWHERE)

    def reads(self, layer: int) -> np.ndarray:
        """The query and key slots of all heads, [2 H k]."""
        stored = 0 if self.tied else layer
        return self._there(np.concatenate([self.arrays[name][stored].ravel() for name in ("query", "key")]))

    def before(self, layer: int, head: int, columns: np.ndarray) -> np.ndarray:
        """Where what is read behind a layer stood before it, [c]."""
        source, destination = self._lists(layer, head)
        origin = np.full(self.slots + 1, NOWHERE)  # the last entry is that of NOWHERE
        origin[destination] = source
        return self._there(origin[columns])

    def after(self, layer: int, head: int, rows: np.ndarray) -> np.ndarray:
        """The rows with a head's subtree where it is moved to, and zeros elsewhere."""
        source, destination = self._lists(layer, head)
        there = (source < self.width) & (destination < self.width)
        moved = np.zeros_like(rows)
        moved[..., destination[there]] = rows[..., source[there]]
        return moved

    def read(self, layer: int, head: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The head's query and key slots."""
        stored = 0 if self.tied else layer
        padded = np.concatenate([rows, np.zeros((*rows.shape[:-1], self.slots - self.width), rows.dtype)], axis=-1)
        return padded[..., self.arrays["query"][stored, head]], padded[..., self.arrays["key"][stored, head]]


def stack_of(backbone: Backbone) -> Stack:
    """The layers of a backbone."""
    if backbone.recipe.layout is not None:
        return Slots(backbone)
    arrays = backbone.arrays
    return Dense(arrays["query"], arrays["key"], arrays["value"], arrays.get("output"), backbone.recipe.layers)


def join(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Conditions side by side."""
    return np.concatenate(columns, axis=-1)


def causal_attention(query: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Weights softmax(Q Kᵀ / √k), [B, n, n], of queries and keys [B, n, k]; position i attends to 0 … i."""
    n, k = query.shape[-2:]
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(k)
    scores = np.where(np.tri(n, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)
