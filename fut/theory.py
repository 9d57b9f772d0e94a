"""How much width is enough: the closed forms that grids, tests and analyses are built around.

The target has H heads a layer and L layers; its own embedding dimension is d, its queries and keys have k columns a
head, its outputs p.  The backbone has the same H and L, and width m.  A *path* into layer l is a word of l − 1 heads,
one for each layer passed; with residual connections the identity is one more letter, so that there are B = H or
B = H + 1 letters.  Write R_π for the product of the backbone's value matrices along a path π, and W_π for the target's.
If an embedding E (d × m) satisfies, for every layer l, head g and path π into l,

    E R_π R_Q^{l,g} = W_π W_Q^{l,g},   E R_π R_K^{l,g} = W_π W_K^{l,g},   and for full paths   E R_π U = W_π W_U,

then all attention matrices agree, layer by layer, and so do the outputs, for every input.  These conditions are linear
in E: written side by side they read E Φ = T, with Φ of m rows and N columns, and they can be met for every target
exactly when the columns of Φ are independent, which takes m ≥ N (`docs/theory.md` says why).  All widths here are
sufficient, not necessary: only the products W_Q W_Kᵀ have to agree, so other programs may exist below them.

Source: Liu, Andoni and Hsu (2026), arXiv 2605.31423; the counts are derived in the docstrings below.
"""

from typing import Literal

from fut.backbones.base import Layout
from fut.backbones.trees import largest_block, sparse_width

Unembedding = Literal["fixed", "compiled"]


def path_count(heads: int, layer: int, residual: bool) -> int:
    """Number of paths into layer `layer` (from 1): B^(layer − 1), with B = H, or H + 1 with residual connections.

    Layer `layers + 1` stands for the unembedding: its paths are the full ones.

    >>> path_count(heads=2, layer=3, residual=False), path_count(heads=2, layer=3, residual=True)
    (4, 9)
    """
    _positive(heads=heads, layer=layer)
    return (heads + residual) ** (layer - 1)


def sufficient_width(
    heads: int,
    layers: int,
    qk_dim: int,
    out_dim: int,
    residual: bool = False,
    tied: bool = False,
    unembedding: Unembedding = "fixed",
    target_dim: int | None = None,
) -> int:
    """The width from which a generic backbone has a program for every target of the class (U compiled: a generic one).

    *U fixed.*  Layer l asks for 2 H k columns a path, the unembedding for p columns a full path:

        N = 2 H k Σ_{l=1..L} B^(l−1) + p B^L,

    which for B = H is 2 k Σ_{l=1..L} H^l + p H^L.

    *Tied with residual.*  All layers are equal and the identity commutes with each of them, so a path counts only by
    the heads that it passes, in their order: R_π depends on a word of at most l − 1 heads.  The columns of equal words
    coincide.  There are Σ_{j<l} H^j words into layer l, all of them among those into layer L, and Σ_{j≤L} H^j for U:

        N = 2 k Σ_{l=1..L} H^l + p Σ_{l=0..L} H^l.

    This holds for tied targets; untied ones cannot in general be matched in this way by a tied residual backbone, at
    any width.  (Without residual, words of different layers have different lengths: nothing coincides, N is as above.)

    *U compiled too.*  E has to meet the query and key conditions only, so m ≥ N − p B^L.  U (m × p) is then solved from
    [E R_π]_π U = [W_π W_U]_π, one block of d rows for each full path.  If these d B^L rows are independent, which takes
    m ≥ d B^L, there is a solution:

        N_EU = max(N − p B^L, d B^L).

    For generic targets they are; one whose queries and keys are zero asks for E = 0, behind which no U finds anything.
    In the tied residual class, where the blocks of equal words are equal on both sides, the number of distinct words
    Σ_{l=0..L} H^l stands in the place of B^L.

    Args:
        heads: H.
        layers: L.
        qk_dim: k of the backbone (at least the target's).
        out_dim: p.
        residual: whether target and backbone have residual connections.
        tied: whether all layers of the backbone are the same.
        unembedding: "fixed": U belongs to the backbone; "compiled": U belongs to the program.
        target_dim: d, needed where U is compiled.

    Raises:
        ValueError: a size below 1, an unknown `unembedding`, or U compiled without `target_dim`.

    >>> sufficient_width(2, 2, 4, 4), sufficient_width(2, 2, 4, 4, unembedding="compiled", target_dim=4)
    (64, 48)
    >>> sufficient_width(2, 3, 3, 3, residual=True), sufficient_width(2, 3, 3, 3, residual=True, tied=True)
    (237, 129)
    """
    _positive(heads=heads, layers=layers, qk_dim=qk_dim, out_dim=out_dim)
    if tied and residual:
        into_last_layer, full = _words(heads, layers - 1), _words(heads, layers)
    else:
        into_last_layer = sum(path_count(heads, layer, residual) for layer in range(1, layers + 1))
        full = path_count(heads, layers + 1, residual)
    queries_and_keys = 2 * heads * qk_dim * into_last_layer
    if unembedding == "fixed":
        return queries_and_keys + out_dim * full
    if unembedding != "compiled":
        raise ValueError(f"unembedding: {unembedding!r} is neither 'fixed' nor 'compiled'")
    if target_dim is None:
        raise ValueError("target_dim: needed where the unembedding is compiled, give the target's d")
    _positive(target_dim=target_dim)
    return max(queries_and_keys, target_dim * full)


def dropped_slots(layout: Layout, heads: int, layers: int, qk_dim: int, out_dim: int, width: int) -> int:
    """Slots of a sparse tree that a backbone of `width` has no room for: the last ones.

    In the layouts `attention` and `residual` each is one condition of E Φ = T that no embedding can meet any more; the
    last are those of the paths through the last heads.  In the layout `tied` some slots stand for no condition.

    >>> dropped_slots("attention", heads=1, layers=2, qk_dim=4, out_dim=4, width=17)
    3
    """
    return max(0, sparse_width(layout, heads, layers, qk_dim, out_dim) - width)


def lower_bound(heads: int, layers: int) -> float:
    """The paper's lower bound on the width, read as H^L / 2 (exponential in depth).

    Raises:
        ValueError: a size below 1.
        OverflowError: a bound beyond all floats, about 10^308.

    >>> lower_bound(heads=3, layers=2)
    4.5
    """
    _positive(heads=heads, layers=layers)
    return heads**layers / 2


def literal_bound(heads: int, layers: int, target_dim: int) -> int:
    """H · L · d: the paper's upper bound as its summaries print it, "m = O(HLd)", without the constant.

    Raises:
        ValueError: a size below 1.

    >>> literal_bound(heads=3, layers=2, target_dim=4)
    24
    """
    _positive(heads=heads, layers=layers, target_dim=target_dim)
    return heads * layers * target_dim


def _words(heads: int, longest: int) -> int:
    """Number of words of at most `longest` heads, the empty one included: Σ_{l=0..longest} H^l."""
    return sum(heads**length for length in range(longest + 1))


def _positive(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name}: {size} is below 1")


__all__ = [
    "Layout",
    "Unembedding",
    "dropped_slots",
    "largest_block",
    "literal_bound",
    "lower_bound",
    "path_count",
    "sparse_width",
    "sufficient_width",
]
