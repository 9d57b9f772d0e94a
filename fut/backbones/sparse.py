"""The sparse backbone: an explicit tree of paths with weights in {0, 1}, stored as lists of slots.

The embedding writes, once and for all, what every layer will ask for on every path.  A head reads its own query and key
slots, and its value matrix moves its own subtree to where the next layer reads.  Three layouts of the slots, with H
heads, Q_h and K_h of k slots each, and leaves of p slots (the outputs):

- `attention`: the state is [Q_1 … Q_H | K_1 … K_H | subtree_1 … subtree_H]; head h moves subtree h to the front.
- `residual`: [Q_1 … Q_H | K_1 … K_H | own subtree | subtree_1 … subtree_H]; the own subtree stays where it is, as the
  residual connection carries it on, and head h adds subtree h onto it.  Layer l therefore reads at an offset.
- `tied`: one frozen layer, used L times.  Every word σ of up to L heads is a node [Q_1 … Q_H | K_1 … K_H | output], the
  nodes stand in level order, and head g moves every node gσ to the node σ.  All layers read the root.

All heads write to the same slots, each slot takes one slot of each head, and every source lies behind its destination.
So a state that is zero from slot m on stays zero there: dropping the slots from m on is the same as padding the state
with zeros up to the tree's width.
"""

from typing import Literal

import numpy as np
from pydantic import Field

from fut.backbones.base import BackboneConfig, Layout, Recipe, Shape
from fut.backbones.draws import draw_mlp
from fut.backbones.trees import largest_block, sparse_width, tree_width


class Sparse(BackboneConfig):
    """A frozen path tree.

    Block widths, from the first of these that applies: `block`, for k and p both; `qk_dim` and `out_dim`; the task's
    own k and p, where it has a target; the largest block whose tree fits into the width (the rest stays all zero).
    """

    kind: Literal["sparse"] = "sparse"
    layout: Layout = Field("attention", description="of the slots; independent of the switch `residual`")
    block: int | None = Field(None, ge=1, description="one width for qk_dim and out_dim")
    out_dim: int | None = Field(None, ge=1, description="slots p of a leaf")

    def problems(self, shape: Shape) -> list[str]:
        """Contradictory block widths, a width below the smallest tree, an unembedding that the tree cannot feed."""
        if self.block is not None and (self.qk_dim is not None or self.out_dim is not None):
            return ["block: stands for qk_dim and out_dim both: give block alone, or these two"]
        if self.block is None and shape.target_qk_dim is None and (self.qk_dim is None) != (self.out_dim is None):
            given, missing = ("qk_dim", "out_dim") if self.out_dim is None else ("out_dim", "qk_dim")
            return [f"{missing}: missing beside {given}: give both, or block for both"]
        needed = shape.out_dim if shape.fixed_unembedding else 1
        qk_dim, out_dim = self._blocks(shape)
        if self._fits_largest(shape):
            smallest = sparse_width(self.layout, shape.heads, shape.layers, needed, needed)
            leaves = f" whose leaves feed the fixed unembedding of {needed} outputs" if shape.fixed_unembedding else ""
            return (
                []
                if shape.width >= smallest
                else [
                    f"width: {shape.width} is below the smallest tree of layout {self.layout!r} with {shape.heads} "
                    f"heads and {shape.layers} layers{leaves}: take at least {smallest}"
                ]
            )
        if out_dim < needed:
            name = "out_dim" if self.block is None else "block"
            return [
                f"{name}: leaves of {out_dim} slots cannot feed the fixed unembedding of {needed} outputs: take at "
                f"least {needed}"
            ]
        last = _leaf(self.layout, shape.heads, shape.layers, qk_dim) + needed
        if shape.fixed_unembedding and shape.width < last:
            return [f"width: {shape.width} drops slots that the fixed unembedding reads: take at least {last}"]
        return []

    def recipe(self, shape: Shape, seed: int) -> Recipe:
        """The resolved recipe; the seed enters only where there is an MLP to draw."""
        qk_dim, out_dim = self._blocks(shape)
        return Recipe(
            kind=self.kind,
            heads=shape.heads,
            layers=shape.layers,
            width=shape.width,
            qk_dim=qk_dim,
            out_dim=out_dim,
            seed=seed if shape.mlp else None,
            mlp_gain=self.mlp_gain if shape.mlp else None,
            unembedding=shape.out_dim if shape.fixed_unembedding else None,
            tied=self.layout == "tied",
            layout=self.layout,
        )

    @staticmethod
    def build(recipe: Recipe) -> dict[str, np.ndarray]:
        """The lists of slots, and MLP and unembedding where the recipe has them."""
        layout = recipe.layout
        assert layout is not None and recipe.out_dim is not None
        arrays = _TREES[layout](recipe.heads, recipe.layers, recipe.qk_dim, recipe.out_dim) | draw_mlp(recipe)
        if recipe.unembedding is not None:
            columns = np.arange(recipe.unembedding)
            arrays["unembedding"] = np.zeros((recipe.width, recipe.unembedding), np.float32)
            leaf = _leaf(layout, recipe.heads, recipe.layers, recipe.qk_dim)
            arrays["unembedding"][leaf + columns, columns] = 1
        return arrays

    def _fits_largest(self, shape: Shape) -> bool:
        return self.block is None and self.qk_dim is None and self.out_dim is None and shape.target_qk_dim is None

    def _blocks(self, shape: Shape) -> tuple[int, int]:
        """`qk_dim` and `out_dim` of the tree."""
        if self._fits_largest(shape):
            block = largest_block(self.layout, shape.heads, shape.layers, shape.width)
            return block, block
        if self.block is not None:
            return self.block, self.block
        return self.qk_dim or shape.target_qk_dim or 0, self.out_dim or shape.out_dim


def _leaf(layout: Layout, heads: int, layers: int, qk_dim: int) -> int:
    """The first of the slots in which the last layer leaves the output."""
    return {"attention": 0, "residual": 2 * heads * qk_dim * layers, "tied": 2 * heads * qk_dim}[layout]


def _nested(heads: int, layers: int, qk_dim: int, out_dim: int, own: int) -> dict[str, np.ndarray]:
    """The layouts `attention` (own = 0) and `residual` (own = 1): trees within trees, `own` subtrees before the heads'.

    With an own subtree, layer l finds its tree behind the queries and keys of the layers before it.
    """
    reads = 2 * heads * qk_dim  # query and key slots of one node
    starts = own * reads * np.arange(layers)
    slots = starts[:, None, None] + np.arange(heads * qk_dim).reshape(1, heads, qk_dim)
    arrays = {"query": slots, "key": slots + heads * qk_dim}
    subtree = out_dim
    for layer in reversed(range(layers)):
        first = starts[layer] + reads + own * subtree
        arrays[f"source.{layer}"] = first + np.arange(heads * subtree).reshape(heads, subtree)
        arrays[f"destination.{layer}"] = own * (starts[layer] + reads) + np.arange(subtree)
        subtree = reads + (heads + own) * subtree
    return arrays


def _attention_tree(heads: int, layers: int, qk_dim: int, out_dim: int) -> dict[str, np.ndarray]:
    return _nested(heads, layers, qk_dim, out_dim, own=0)


def _residual_tree(heads: int, layers: int, qk_dim: int, out_dim: int) -> dict[str, np.ndarray]:
    return _nested(heads, layers, qk_dim, out_dim, own=1)


def _tied_tree(heads: int, layers: int, qk_dim: int, out_dim: int) -> dict[str, np.ndarray]:
    """Level order: the H^j nodes of depth j follow one another by their words, the first letter weighing most."""
    node = 2 * heads * qk_dim + out_dim
    slots = np.arange(heads * qk_dim).reshape(1, heads, qk_dim)
    sizes = heads ** np.arange(layers + 1)
    starts = np.cumsum(sizes) - sizes
    moved = int(starts[-1])  # nodes of depths 0 … L − 1, where the others are moved to
    children = [
        np.concatenate([starts[depth + 1] + head * sizes[depth] + np.arange(sizes[depth]) for depth in range(layers)])
        for head in range(heads)
    ]
    return {
        "query": slots,
        "key": slots + heads * qk_dim,
        "source.0": (np.array(children)[:, :, None] * node + np.arange(node)).reshape(heads, moved * node),
        "destination.0": np.arange(moved * node),
    }


_TREES = {"attention": _attention_tree, "residual": _residual_tree, "tied": _tied_tree}

__all__ = ["Sparse", "tree_width"]
