"""The closed forms against enumeration of paths, and against figures computed by hand."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fut import theory

SHAPES = [(1, 1), (1, 3), (2, 1), (2, 2), (2, 3), (3, 2), (3, 3)]


def enumerated(heads, layers, residual, tied):
    """Query/key and output conditions, each named by (layer or 'any', path, head), one by one."""
    letters = ["", *"abcdefg"[:heads]] if residual else list("abcdefg"[:heads])
    merged = tied and residual  # equal words coincide, whatever the layer: the identity is the empty letter
    reads, outputs = set(), set()
    for layer in range(1, layers + 1):
        for path in product(letters, repeat=layer - 1):
            for head in range(heads):
                reads.add(("".join(path), head) if merged else (layer, path, head))
    for path in product(letters, repeat=layers):
        outputs.add("".join(path) if merged else path)
    return len(reads), len(outputs)


@pytest.mark.parametrize(("heads", "layers"), SHAPES)
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_sufficient_widths_count_the_conditions(heads, layers, residual, tied):
    reads, outputs = enumerated(heads, layers, residual, tied)
    for k, p, d in [(1, 1, 1), (3, 2, 4), (1, 5, 7)]:
        fixed = theory.sufficient_width(heads, layers, k, p, residual, tied)
        compiled = theory.sufficient_width(heads, layers, k, p, residual, tied, "compiled", d)
        assert fixed == 2 * k * reads + p * outputs
        assert compiled == max(2 * k * reads, d * outputs)


@pytest.mark.parametrize(
    ("heads", "layers", "d", "residual", "tied", "n", "n_eu"),
    [  # k = p = d; measured thresholds of exact programs
        (1, 1, 4, False, False, 12, 8),
        (1, 4, 4, False, False, 36, 32),
        (2, 2, 4, False, False, 64, 48),
        (2, 3, 4, False, False, 144, 112),
        (2, 2, 3, True, False, 75, 48),
        (3, 3, 3, False, False, 315, None),
        (2, 4, 3, False, False, 228, None),
        (2, 3, 4, True, False, 316, None),
        (3, 3, 3, True, False, 570, None),
        (2, 4, 3, True, False, 723, None),
        (2, 3, 3, True, True, 129, None),
        (2, 3, 3, False, True, 108, None),
    ],
)
def test_measured_widths(heads, layers, d, residual, tied, n, n_eu):
    assert theory.sufficient_width(heads, layers, d, d, residual, tied) == n
    if n_eu is not None:
        assert theory.sufficient_width(heads, layers, d, d, residual, tied, "compiled", target_dim=d) == n_eu


def test_one_head_grows_linearly_and_two_exponentially():
    # H = 1: 2 k L + p; H = 2, k = p = d: 2 d (2^(L+1) − 2) + d 2^L = d (5 · 2^L − 4)
    for layers in range(1, 8):
        assert theory.sufficient_width(1, layers, 3, 5) == 6 * layers + 5
        assert theory.sufficient_width(2, layers, 3, 3) == 3 * (5 * 2**layers - 4)


def test_path_count_lists_paths():
    assert theory.path_count(3, 1, residual=True) == 1  # the empty path
    assert theory.path_count(3, 4, residual=False) == len(list(product("abc", repeat=3)))
    assert theory.path_count(3, 4, residual=True) == len(list(product("abc_", repeat=3)))


@pytest.mark.parametrize(("heads", "layers"), SHAPES)
def test_sparse_widths_count_the_slots(heads, layers):
    k, p = 3, 2
    for layout, residual in [("attention", False), ("residual", True)]:
        reads, outputs = enumerated(heads, layers, residual, tied=False)
        assert theory.sparse_width(layout, heads, layers, k, p) == 2 * k * reads + p * outputs
    nodes = sum(len(list(product(range(heads), repeat=depth))) for depth in range(layers + 1))
    assert theory.sparse_width("tied", heads, layers, k, p) == nodes * (2 * heads * k + p)


@pytest.mark.parametrize(
    ("heads", "layers", "width", "block"),
    [(1, 2, 80, 16), (1, 3, 112, 16), (1, 4, 144, 16), (2, 2, 128, 8), (2, 2, 127, 7), (2, 2, 15, 0)],
)
def test_largest_block_of_known_grids(heads, layers, width, block):
    assert theory.largest_block("attention", heads, layers, width) == block


@given(st.sampled_from(["attention", "residual", "tied"]), st.integers(1, 4), st.integers(1, 4), st.integers(1, 5_000))
def test_largest_block_fits_and_the_next_does_not(layout, heads, layers, width):
    block = theory.largest_block(layout, heads, layers, width)
    assert block == 0 or theory.sparse_width(layout, heads, layers, block, block) <= width
    assert theory.sparse_width(layout, heads, layers, block + 1, block + 1) > width


def test_dropped_slots():
    whole = theory.sparse_width("residual", 2, 2, 3, 2)
    assert [theory.dropped_slots("residual", 2, 2, 3, 2, whole + extra) for extra in (5, 0, -4)] == [0, 0, 4]


def test_bounds_of_the_paper_in_both_readings():
    assert theory.lower_bound(2, 3) == 4 and theory.lower_bound(3, 1) == 1.5
    assert theory.literal_bound(2, 3, 5) == 30


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="target_dim"):
        theory.sufficient_width(2, 2, 3, 3, unembedding="compiled")
    with pytest.raises(ValueError, match="target_dim: 0"):
        theory.sufficient_width(2, 2, 3, 3, unembedding="compiled", target_dim=0)
    with pytest.raises(ValueError, match="unembedding"):
        theory.sufficient_width(2, 2, 3, 3, unembedding="trained")
    with pytest.raises(ValueError, match="heads: 0"):
        theory.sufficient_width(0, 2, 3, 3)
    with pytest.raises(ValueError, match="layout"):
        theory.sparse_width("tree", 2, 2, 3, 3)
    with pytest.raises(ValueError, match="at least 1"):
        theory.sparse_width("tied", 2, 0, 3, 3)
