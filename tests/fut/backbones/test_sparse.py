"""The trees slot by slot, dropped slots, and every configuration that is refused."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fut import theory
from fut.backbones import Shape, Sparse, build
from fut.backbones.dense import dense
from fut.backbones.trees import tree_width


def shape(heads=2, layers=2, width=64, mlp=False, out_dim=2, target_qk_dim=None, fixed=False):
    return Shape(heads, layers, width, mlp, out_dim, target_qk_dim, fixed)


def arrays(layout, heads, layers, qk_dim, out_dim):
    config = Sparse(layout=layout, qk_dim=qk_dim, out_dim=out_dim)
    return build(config.recipe(shape(heads, layers), 0)).arrays


def as_lists(arrays):
    return {name: array.tolist() for name, array in arrays.items()}


def test_attention_tree_by_hand():
    # Layer 1: Q1 Q2 K1 K2 | a tree of 6 for each head; layer 2: Q1 Q2 K1 K2 | a leaf of 1 for each head.
    assert as_lists(arrays("attention", 2, 2, 1, 1)) == {
        "query": [[[0], [1]], [[0], [1]]],
        "key": [[[2], [3]], [[2], [3]]],
        "source.0": [[4, 5, 6, 7, 8, 9], [10, 11, 12, 13, 14, 15]],
        "destination.0": [0, 1, 2, 3, 4, 5],
        "source.1": [[4], [5]],
        "destination.1": [0],
    }


def test_residual_tree_by_hand():
    # Layer 1: Q K | own tree of 4 | head's tree of 4; layer 2, at offset 2: Q K | own leaf of 1 | head's leaf of 1.
    assert as_lists(arrays("residual", 1, 2, 1, 1)) == {
        "query": [[[0]], [[2]]],
        "key": [[[1]], [[3]]],
        "source.0": [[6, 7, 8, 9]],
        "destination.0": [2, 3, 4, 5],
        "source.1": [[5]],
        "destination.1": [4],
    }


def test_tied_tree_by_hand():
    # Nodes of 5 slots (Q1 Q2 K1 K2 out) in level order: "", 1, 2, 11, 12, 21, 22.  Head 1 moves 1 → "", 11 → 1, 12 → 2.
    node = np.arange(5)
    found = arrays("tied", 2, 2, 1, 1)
    assert found["query"].tolist() == [[[0], [1]]] and found["key"].tolist() == [[[2], [3]]]
    np.testing.assert_array_equal(found["destination.0"], np.concatenate([5 * n + node for n in (0, 1, 2)]))
    np.testing.assert_array_equal(found["source.0"][0], np.concatenate([5 * n + node for n in (1, 3, 4)]))
    np.testing.assert_array_equal(found["source.0"][1], np.concatenate([5 * n + node for n in (2, 5, 6)]))


@given(
    st.sampled_from(["attention", "residual", "tied"]),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 3),
)
def test_trees_keep_their_promises(layout, heads, layers, qk_dim, out_dim):
    found = arrays(layout, heads, layers, qk_dim, out_dim)
    width = theory.sparse_width(layout, heads, layers, qk_dim, out_dim)
    assert all(array.dtype == np.int64 for array in found.values())
    assert max(array.max() for array in found.values()) < width
    stored = 1 if layout == "tied" else layers
    assert found["query"].shape == found["key"].shape == (stored, heads, qk_dim)
    for layer in range(stored):
        source, destination = found[f"source.{layer}"], found[f"destination.{layer}"]
        assert source.shape == (heads, len(destination))
        assert len(set(source.flat)) == source.size and len(set(destination)) == len(destination)
        assert (source > destination).all()  # so that padding never gets anything
        reads = np.concatenate([found["query"][layer].flat, found["key"][layer].flat])
        assert len(set(reads)) == reads.size
    if layout != "tied":
        assert found[f"source.{layers - 1}"].shape[1] == out_dim


def run_by_slots(x, backbone, residual):
    """Index form, as a consumer runs it: the state padded with zeros up to the tree's width."""
    recipe, found = backbone.recipe, backbone.arrays
    state = np.zeros((len(x), max(recipe.width, tree_width(recipe))))
    state[:, : recipe.width] = x
    for layer in range(recipe.layers):
        stored = 0 if recipe.tied else layer
        moved = np.zeros_like(state)
        for head in range(recipe.heads):
            scores = state[:, found["query"][stored, head]] @ state[:, found["key"][stored, head]].T
            weights = np.tril(np.exp(scores / np.sqrt(recipe.qk_dim)))
            weights /= weights.sum(1, keepdims=True)
            moved[:, found[f"destination.{stored}"]] += weights @ state[:, found[f"source.{stored}"][head]]
        state = state + moved if residual else moved
    assert not state[:, recipe.width :].any()
    return state[:, : recipe.width]


def run_dense(x, backbone, residual):
    weights = dense(backbone)
    for layer in range(backbone.recipe.layers):
        moved = np.zeros_like(x)
        for query, key, value in zip(*(weights[name][layer] for name in ("query", "key", "value")), strict=True):
            attention = np.tril(np.exp(x @ query @ (x @ key).T / np.sqrt(query.shape[1])))
            moved += attention / attention.sum(1, keepdims=True) @ x @ value
        x = x + moved if residual else moved
    return x


@settings(deadline=None)
@given(
    st.sampled_from(["attention", "residual", "tied"]),
    st.booleans(),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(1, 2),
    st.floats(0.01, 1.3),
)
def test_dropping_slots_is_padding_with_zeros(layout, residual, heads, layers, qk_dim, out_dim, share):
    width = max(1, round(share * theory.sparse_width(layout, heads, layers, qk_dim, out_dim)))
    config = Sparse(layout=layout, qk_dim=qk_dim, out_dim=out_dim)
    backbone = build(config.recipe(shape(heads, layers, width), 0))
    assert dense(backbone)["value"].shape == (layers, heads, width, width)
    x = np.random.default_rng(0).normal(size=(4, width))
    np.testing.assert_allclose(run_by_slots(x, backbone, residual), run_dense(x, backbone, residual), atol=1e-10)


@pytest.mark.parametrize(("layout", "first"), [("attention", 0), ("residual", 2 * 2 * 3 * 2), ("tied", 2 * 2 * 3)])
def test_frozen_unembedding_selects_the_leaf(layout, first):
    config = Sparse(layout=layout, qk_dim=3, out_dim=4)
    found = build(config.recipe(shape(width=200, out_dim=2, fixed=True), 0)).arrays
    expected = np.zeros((200, 2), np.float32)
    expected[first, 0] = expected[first + 1, 1] = 1
    np.testing.assert_array_equal(found["unembedding"], expected)


def test_block_widths_are_derived_in_order():
    def blocks(config, **more):
        assert config.problems(shape(**more)) == []
        recipe = config.recipe(shape(**more), 0)
        return recipe.qk_dim, recipe.out_dim

    assert blocks(Sparse(), width=128) == (8, 8)  # the largest that fits: 16 slots a unit of block
    assert blocks(Sparse(), width=127) == (7, 7)
    assert blocks(Sparse(block=3), width=128) == (3, 3)
    assert blocks(Sparse(qk_dim=2, out_dim=5), width=128) == (2, 5)
    assert blocks(Sparse(), width=128, target_qk_dim=4, out_dim=3) == (4, 3)  # the target's k, the task's p
    assert blocks(Sparse(qk_dim=6), width=128, target_qk_dim=4, out_dim=3) == (6, 3)
    assert blocks(Sparse(block=6), width=128, target_qk_dim=4, out_dim=3) == (6, 6)
    assert blocks(Sparse(), width=5, target_qk_dim=4, out_dim=3) == (4, 3)  # too narrow: slots are dropped


def test_only_what_is_drawn_depends_on_the_seed():
    def recipe(seed, **more):
        return Sparse(mlp_gain=0.1).recipe(shape(**more), seed)

    assert recipe(0) == recipe(1) and recipe(0).seed is None and recipe(0).mlp_gain is None
    assert recipe(0, mlp=True).id != recipe(1, mlp=True).id
    found = build(recipe(1, mlp=True)).arrays
    assert found["mlp_in"].shape == (2, 64, 256) and found["mlp_out"].shape == (2, 256, 64)
    assert abs(found["mlp_out"].std() * 16 / 0.1 - 1) < 0.02  # gain / √(4 m)
    tied = build(Sparse(layout="tied").recipe(shape(width=200, mlp=True), 0))
    assert tied.recipe.tied and tied.arrays["mlp_in"].shape == (1, 200, 800)


@pytest.mark.parametrize(
    ("config", "where", "says"),
    [
        (Sparse(block=2, qk_dim=2), {}, "block: .*block alone"),
        (Sparse(block=2, out_dim=2), {}, "block: .*block alone"),
        (Sparse(qk_dim=2), {}, "out_dim: missing"),
        (Sparse(out_dim=2), {}, "qk_dim: missing"),
        (Sparse(), {"width": 15}, "width: 15 .*at least 16$"),
        (Sparse(layout="residual"), {"width": 24}, "at least 25$"),
        (Sparse(layout="tied"), {"width": 34}, "at least 35$"),
        (Sparse(), {"width": 31, "fixed": True}, "at least 32$"),
        (Sparse(block=1), {"fixed": True}, "block: .*at least 2$"),
        (Sparse(qk_dim=4, out_dim=1), {"fixed": True}, "out_dim: .*at least 2$"),
        (Sparse(layout="residual", block=2), {"width": 17, "fixed": True}, "width: 17 .*at least 18$"),
        (Sparse(layout="tied", block=2), {"width": 9, "fixed": True}, "width: 9 .*at least 10$"),
    ],
)
def test_impossible_configurations_say_what_would_do(config, where, says):
    (problem,) = config.problems(shape(**where))
    assert re.search(says, problem)


@pytest.mark.parametrize(
    ("config", "where"),
    [
        (Sparse(), {"width": 16}),
        (Sparse(layout="residual"), {"width": 25}),
        (Sparse(layout="tied"), {"width": 35}),
        (Sparse(), {"width": 32, "fixed": True}),
        (Sparse(block=2), {"fixed": True}),
        (Sparse(layout="residual", block=2), {"width": 18, "fixed": True}),
        (Sparse(layout="tied", block=2), {"width": 10, "fixed": True}),
        (Sparse(block=9), {"width": 1}),
    ],
)
def test_what_the_remedies_name_is_possible(config, where):
    assert config.problems(shape(**where)) == []
    build(config.recipe(shape(**where), 0))


def test_other_recipes_have_no_tree():
    recipe = Sparse().recipe(shape(), 0)
    assert tree_width(recipe) == 64
    with pytest.raises(ValueError, match="no tree"):
        tree_width(recipe.model_copy(update={"layout": None}))
