"""Sizes of the path trees that sparse backbones are made of; what they mean for the theory stands in `fut.theory`.

They are a module of their own because they determine trials, which the rest of the theory does not.
"""

from fut.backbones.base import Layout, Recipe


def sparse_width(layout: Layout, heads: int, layers: int, qk_dim: int, out_dim: int) -> int:
    """Slots of the whole tree of a sparse backbone.

    `attention` and `residual` have one slot for each condition that a program has to meet, without and with residual
    connections, so that their trees are as wide as the sufficient width N.  In the `tied` tree every word of up to L
    heads is a node with slots for the queries and keys of all heads and for an output, needed or not, since the one
    frozen layer cannot tell how deep it stands:

        attention   2 k Σ_{l=1..L} H^l + p H^L
        residual    Σ_{l=1..L} 2 H k (H + 1)^(l−1) + p (H + 1)^L
        tied        (2 H k + p) Σ_{l=0..L} H^l

    Raises:
        ValueError: a size below 1, or an unknown layout.

    >>> [sparse_width(layout, heads=2, layers=2, qk_dim=8, out_dim=8) for layout in ("attention", "residual", "tied")]
    [128, 200, 280]
    """
    if min(heads, layers, qk_dim, out_dim) < 1:
        raise ValueError("a tree needs heads, layers, qk_dim and out_dim of at least 1")
    reads = 2 * heads * qk_dim
    match layout:
        case "attention" | "residual":
            letters = heads + (layout == "residual")
            return reads * sum(letters**layer for layer in range(layers)) + out_dim * letters**layers
        case "tied":
            return (reads + out_dim) * sum(heads**depth for depth in range(layers + 1))
    raise ValueError(f"layout: {layout!r} is none of attention, residual, tied")


def largest_block(layout: Layout, heads: int, layers: int, width: int) -> int:
    """The largest block b for which a tree with k = p = b fits into `width` slots; 0 where none does.

    A tree's width is proportional to its block, so this is a whole division.

    >>> largest_block("attention", heads=1, layers=2, width=80), largest_block("attention", 1, 2, width=4)
    (16, 0)
    """
    return width // sparse_width(layout, heads, layers, 1, 1)


def tree_width(recipe: Recipe) -> int:
    """Slots of the whole tree of a sparse recipe; those from `recipe.width` on are dropped.

    Raises:
        ValueError: the recipe is of another kind.
    """
    if recipe.layout is None or recipe.out_dim is None:
        raise ValueError(f"a recipe of kind {recipe.kind!r} has no tree")
    return sparse_width(recipe.layout, recipe.heads, recipe.layers, recipe.qk_dim, recipe.out_dim)
