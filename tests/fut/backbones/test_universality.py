"""What backbones are for: at the sufficient width a program exists for every target, one column below it does not.

The oracle here is independent of the package: target and backbone run in plain float64 loops, paths are enumerated, and
the embedding is solved from E Φ = T.
"""

from itertools import product

import numpy as np
import pytest

from fut import theory
from fut.backbones import Backbone, Control, Random, Shape, Sparse, build
from fut.backbones.dense import dense

SEED = 5


def attention(x, query, key):
    scores = x @ query @ (x @ key).T / np.sqrt(query.shape[1])
    weights = np.zeros_like(scores)
    for i in range(len(x)):
        row = np.exp(scores[i, : i + 1] - scores[i, : i + 1].max())
        weights[i, : i + 1] = row / row.sum()
    return weights


def forward(x, weights, unembedding, residual):
    """Runs query and key [L, H, m, k] and value [L, H, m, m] on x [n, m]."""
    for query, key, value in zip(weights["query"], weights["key"], weights["value"], strict=True):
        moved = sum(attention(x, q, k) @ x @ v for q, k, v in zip(query, key, value, strict=True))
        x = x + moved if residual else moved
    return x @ unembedding


def draw_target(heads, layers, d, k, p, tied):
    rng = np.random.default_rng(0)
    kept = 1 if tied else layers
    weights = {
        name: rng.normal(size=(kept, heads, d, c)) / np.sqrt(d) for name, c in [("query", k), ("key", k), ("value", d)]
    }
    return {n: np.concatenate([w] * (layers // kept)) for n, w in weights.items()}, rng.normal(size=(d, p)) / np.sqrt(d)


def conditions(weights, unembedding, residual, merge_words=False):
    """The columns R_π R_Q, R_π R_K of all layers and R_π U of all full paths; equal words once with `merge_words`."""
    layers, heads, m, _ = weights["query"].shape
    letters = ([None] if residual else []) + list(range(heads))
    reads, outputs, seen = [], [], set()
    for layer in range(layers + 1):
        for path in product(letters, repeat=layer):
            word = tuple(head for head in path if head is not None)
            moved = np.eye(m)
            for passed, head in enumerate(path):
                moved = moved if head is None else moved @ weights["value"][passed, head]
            if layer == layers and not (merge_words and ("output", word) in seen):
                seen.add(("output", word))
                outputs.append(moved @ unembedding)
            if layer < layers and not (merge_words and ("read", word) in seen):
                seen.add(("read", word))
                reads += [moved @ weights[name][layer, h] for h in range(heads) for name in ("query", "key")]
    return np.hstack(reads), np.hstack(outputs)


def output_error(target, backbone, embedding, unembedding, residual):
    """Relative error of the backbone's outputs over a few inputs, against the target's."""
    weights, target_unembedding = target
    d = len(target_unembedding)
    inputs = np.random.default_rng(1).normal(size=(4, 6, d))
    wanted = np.array([forward(x, weights, target_unembedding, residual) for x in inputs])
    found = np.array([forward(x @ embedding, backbone, unembedding, residual) for x in inputs])
    return np.linalg.norm(found - wanted) / np.linalg.norm(wanted)


def compiled_error(config, width, heads, layers, d, residual=False, tied_target=False, k=None, p=None):
    """The error of the program compiled with the frozen unembedding, and Φ."""
    k, p = k or d, p or d
    shape = Shape(heads, layers, width, False, p, k, True)
    assert config.problems(shape) == []
    backbone = build(config.recipe(shape, SEED))
    weights, unembedding = dense(backbone), backbone.arrays["unembedding"].astype(np.float64)
    target = draw_target(heads, layers, d, k, p, tied_target)
    phi = np.hstack(conditions(weights, unembedding, residual))
    wanted = np.hstack(conditions(*target, residual))
    embedding = np.linalg.lstsq(phi.T, wanted.T, rcond=None)[0].T
    return output_error(target, weights, embedding, unembedding, residual), phi, wanted


SMALL = [(1, 2, 3), (2, 2, 2), (2, 3, 2)]  # heads, layers, d
LAYOUTS = [  # layout, residual, tied target; a tied layout has slots for untied targets only without residual
    ("attention", False, False),
    ("residual", True, False),
    ("residual", False, False),
    ("tied", False, False),
    ("tied", True, True),
]


@pytest.mark.parametrize(("heads", "layers", "d"), SMALL)
@pytest.mark.parametrize(("layout", "residual", "tied_target"), LAYOUTS)
def test_sparse_tree_is_exact_at_its_width_and_not_below(layout, residual, tied_target, heads, layers, d):
    width = theory.sparse_width(layout, heads, layers, d, d)
    run = (heads, layers, d, residual, tied_target)
    error, phi, wanted = compiled_error(Sparse(layout=layout), width, *run)
    assert error < 1e-8
    # Φ selects: every condition reads one slot, so the embedding's columns are read off, one by one.
    assert set(np.unique(phi)) == {0.0, 1.0} and (phi.sum(0) == 1).all()
    embedding = np.zeros((d, width))
    for column, slot in enumerate(phi.argmax(0)):
        embedding[:, slot] = wanted[:, column]
    np.testing.assert_allclose(embedding @ phi, wanted, atol=1e-12)
    if layout != "residual" or residual:  # (without residual connections its own subtrees are of no use)
        assert compiled_error(Sparse(layout=layout), width - 1, *run)[0] > 1e-4


def test_an_untied_target_with_residual_is_beyond_a_tied_tree():
    width = theory.sparse_width("tied", 2, 2, 2, 2)
    assert compiled_error(Sparse(layout="tied"), width, 2, 2, 2, residual=True, tied_target=False)[0] > 1e-4


def test_sparse_trees_spend_no_slot_twice():
    for layout, residual in [("attention", False), ("residual", True)]:
        width = theory.sparse_width(layout, 2, 3, 2, 3)
        phi = compiled_error(Sparse(layout=layout), width, 2, 3, 2, residual, k=2, p=3)[1]
        assert (phi.sum(1) == 1).all()  # a permutation: as many conditions as slots


@pytest.mark.parametrize("values", ["full", "standard"])
@pytest.mark.parametrize("distribution", ["gaussian", "uniform", "laplace", "orthogonal"])
@pytest.mark.parametrize(("heads", "layers", "residual"), [(1, 2, False), (2, 2, False), (2, 2, True), (2, 3, False)])
def test_random_is_exact_at_the_sufficient_width_and_not_below(distribution, values, heads, layers, residual):
    d = 2
    config = Random(distribution=distribution, values=values)
    width = theory.sufficient_width(heads, layers, d, d, residual)
    assert width % heads == 0
    below = width - (heads if values == "standard" else 1)
    assert compiled_error(config, width, heads, layers, d, residual)[0] < 1e-8
    assert compiled_error(config, below, heads, layers, d, residual)[0] > 1e-4


@pytest.mark.parametrize(("heads", "layers"), [(1, 2), (2, 2)])
@pytest.mark.parametrize("tied_target", [False, True])
def test_tied_random_is_exact_at_the_same_width_for_tied_and_untied_targets(heads, layers, tied_target):
    width = theory.sufficient_width(heads, layers, 2, 2, tied=True)
    assert compiled_error(Random(tied=True), width, heads, layers, 2, False, tied_target)[0] < 1e-8
    assert compiled_error(Random(tied=True), width - 1, heads, layers, 2, False, tied_target)[0] > 1e-4


def test_tied_random_with_residual_has_a_smaller_width_for_tied_targets_only():
    width = theory.sufficient_width(2, 2, 2, 2, residual=True, tied=True)
    assert width < theory.sufficient_width(2, 2, 2, 2, residual=True)
    assert compiled_error(Random(tied=True), width, 2, 2, 2, True, tied_target=True)[0] < 1e-8
    assert compiled_error(Random(tied=True), width - 1, 2, 2, 2, True, tied_target=True)[0] > 1e-4
    assert compiled_error(Random(tied=True), 2 * width, 2, 2, 2, True, tied_target=False)[0] > 1e-4


def test_wider_queries_and_keys_and_other_outputs_are_counted():
    # k = 3, p = 1: neither equals d
    width = theory.sufficient_width(2, 2, 3, 1)
    assert compiled_error(Random(), width, 2, 2, 2, k=3, p=1)[0] < 1e-8
    assert compiled_error(Random(), width - 1, 2, 2, 2, k=3, p=1)[0] > 1e-4


@pytest.mark.parametrize(
    ("heads", "layers", "d", "k", "residual", "tied"),
    [
        (1, 2, 3, 3, False, False),
        (2, 2, 2, 2, False, False),
        (2, 2, 2, 2, True, False),
        (2, 2, 2, 2, True, True),
        (2, 2, 4, 1, False, False),
        (2, 2, 4, 1, True, True),
    ],  # the last two: the d B^L of N_EU is the larger one
)
def test_compiling_the_unembedding_too_needs_only_the_smaller_width(heads, layers, d, k, residual, tied):
    def error(width):
        backbone = build(Random(tied=tied).recipe(Shape(heads, layers, width, False, d, k, False), SEED))
        weights, target = dense(backbone), draw_target(heads, layers, d, k, d, tied)
        wanted, outputs = conditions(*target, residual, merge_words=tied)
        reads, moved = conditions(weights, np.eye(width), residual, merge_words=tied)
        embedding = np.linalg.lstsq(reads.T, wanted.T, rcond=None)[0].T
        free = np.eye(width) - reads @ np.linalg.pinv(reads)  # conditions leave these directions open: fill them
        embedding = embedding + np.random.default_rng(2).normal(size=embedding.shape) @ free
        blocks = np.vstack(np.hsplit(embedding @ moved, moved.shape[1] // width))
        unembedding = np.linalg.lstsq(blocks, np.vstack(np.hsplit(outputs, outputs.shape[1] // d)), rcond=None)[0]
        return output_error(target, weights, embedding, unembedding, residual)

    width = theory.sufficient_width(heads, layers, k, d, residual, tied, "compiled", target_dim=d)
    assert error(width) < 1e-8
    assert error(width - 1) > 1e-4


@pytest.mark.parametrize("control", ["identical_heads", "low_rank"])
@pytest.mark.parametrize("values", ["full", "standard"])
@pytest.mark.parametrize("distribution", ["gaussian", "orthogonal"])
@pytest.mark.parametrize("residual", [False, True])
def test_controls_have_no_margin_even_at_twice_the_width(control, values, distribution, residual):
    config = Control(control=control, values=values, distribution=distribution)
    width = 2 * theory.sufficient_width(2, 2, 2, 2, residual)
    error, phi, _ = compiled_error(config, width, 2, 2, 2, residual)
    singular = np.linalg.svd(phi, compute_uv=False)
    assert len(singular) == width // 2 and singular[-1] < 1e-10 * singular[0]
    assert error > 1e-2
    healthy = compiled_error(Random(values=values, distribution=distribution), width, 2, 2, 2, residual)[1]
    singular = np.linalg.svd(healthy, compute_uv=False)
    assert singular[-1] > 1e-10 * singular[0]


def test_dense_multiplies_projections_and_repeats_tied_layers():
    shape = Shape(2, 3, 8, False, 2, None, False)
    backbone = build(Random(tied=True).recipe(shape, SEED))
    assert isinstance(backbone, Backbone)
    weights = dense(backbone)
    assert {name: array.shape for name, array in weights.items()} == {
        "query": (3, 2, 8, 4),
        "key": (3, 2, 8, 4),
        "value": (3, 2, 8, 8),
    }
    for layer, head in product(range(3), range(2)):
        value, output = (backbone.arrays[name][0, head].astype(np.float64) for name in ("value", "output"))
        np.testing.assert_array_equal(weights["value"][layer, head], value @ output)
        np.testing.assert_array_equal(weights["query"][layer, head], backbone.arrays["query"][0, head])
