"""The compiler: exact where the theory says so, and not one slot below; its conditions against an enumeration of paths.

Hand-computed programs, and `enumerated`, which multiplies value matrices along every path, do without the package.
"""

from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fut.backbones import Backbone, Control, Random, Shape, Sparse, Trained, build
from fut.backbones.base import BackboneConfig
from fut.backbones.dense import dense
from fut.compiler import (
    CompileError,
    Target,
    compile_program,
    draw_target,
    fresh_inputs,
    run,
    universality_margin,
)
from fut.stack import stack_of
from fut.theory import sparse_width, sufficient_width


def built(
    config: BackboneConfig, heads: int, layers: int, width: int, d: int, p: int | None = None, fixed: bool = True
) -> Backbone:
    shape = Shape(heads, layers, width, mlp=False, out_dim=p or d, target_qk_dim=d, fixed_unembedding=fixed)
    assert config.problems(shape) == []
    return build(config.recipe(shape, seed=3))


def enough(backbone_tied: bool, target: Target, compiled: bool = False, qk_dim: int | None = None) -> int:
    return sufficient_width(
        target.heads, target.layers, qk_dim or target.qk_dim, target.out_dim, target.residual, backbone_tied,
        "compiled" if compiled else "fixed", target.dim,
    )  # fmt: skip


# Programs by hand, in sparse backbones, whose slots the tree names.


def hand_target(query: list, key: list, value: list, unembedding: float) -> Target:
    """A target of dimension 1, its numbers by layer and head."""
    return Target(
        *(np.array(numbers, float)[:, :, None, None] for numbers in (query, key, value)), np.array([[unembedding]])
    )


def test_one_head_one_layer_by_hand() -> None:
    # slots: query, key, leaf; the leaf is asked for what the value and the unembedding make of the input: 5 · 7
    program, report = compile_program(hand_target([[2]], [[3]], [[5]], 7), built(Sparse(), 1, 1, 3, 1))
    assert program.embedding.tolist() == [[2, 3, 35]]
    assert program.unembedding.tolist() == [[1], [0], [0]]  # the value matrix has moved the leaf to the front
    assert (report.residual, report.margin, report.condition_number, report.sufficient_width) == (0, 1, 1, 3)


def test_two_heads_two_layers_by_hand() -> None:
    target = hand_target([[2, 3], [5, 7]], [[11, 13], [17, 19]], [[23, 29], [31, 37]], 41)
    program, report = compile_program(target, built(Sparse(), 2, 2, 16, 1))
    subtree = [5, 7, 17, 19, 31 * 41, 37 * 41]  # queries and keys of layer 2, then a leaf for each of its heads
    assert program.embedding.tolist() == [[2, 3, 11, 13, *(23 * x for x in subtree), *(29 * x for x in subtree)]]
    assert report.exact


def test_with_residual_connections_the_own_subtree_stands_before_the_heads() -> None:
    target = replace(hand_target([[2]], [[3]], [[5]], 7), residual=True)
    program, report = compile_program(target, built(Sparse(layout="residual"), 1, 1, 4, 1))
    assert program.embedding.tolist() == [[2, 3, 7, 35]] and report.exact


# Conditions, against an enumeration of paths.


def enumerated(backbone: Backbone, residual: bool, words: bool) -> np.ndarray:
    """Φ: a column for each path and what is asked at its end; with `words`, for each word of heads."""
    weights, unembedding = dense(backbone), backbone.arrays["unembedding"].astype(np.float64)
    layers, heads, m, _ = weights["query"].shape
    letters = [*range(heads), *([None] if residual else [])]
    found: dict[tuple, np.ndarray] = {}
    for layer in range(layers + 1):
        for path in product(letters, repeat=layer):
            moved = np.eye(m)
            for passed, head in enumerate(path):
                moved = moved if head is None else moved @ weights["value"][passed, head]
            name = ("words", *(head for head in path if head is not None)) if words else (layer, *path)
            if layer == layers:
                found["leaf", *name] = moved @ unembedding
            else:
                found["reads", *name] = np.hstack([*weights["query"][layer], *weights["key"][layer]])
                found["reads", *name] = moved @ found["reads", *name]
    return np.hstack(list(found.values()))


def as_columns(phi: np.ndarray, width: int) -> np.ndarray:
    """Slots as the columns that they stand for."""
    return phi if phi.ndim == 2 else np.where(np.arange(width)[:, None] == phi, 1.0, 0.0)


def in_order(columns: np.ndarray) -> np.ndarray:
    return columns[:, np.lexsort(columns.round(9))]


@pytest.mark.parametrize(
    ("config", "residual"),
    [
        (Random(), False), (Random(values="standard"), True), (Random(tied=True), False), (Random(tied=True), True),
        (Sparse(), False), (Sparse(), True), (Sparse(layout="residual"), True), (Sparse(layout="tied"), False),
        (Sparse(layout="tied"), True), (Control(control="identical_heads"), False),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("width", [26, 170])  # most of the tree is dropped; all of it is there
def test_conditions_are_those_of_all_paths(config: BackboneConfig, residual: bool, width: int) -> None:
    backbone = built(config, 2, 3, width, 2)
    words = backbone.recipe.tied and residual
    leaves = backbone.arrays["unembedding"].astype(np.float64)
    slots = leaves.argmax(0) if backbone.recipe.layout else leaves
    found = as_columns(stack_of(backbone).conditions(slots, residual, words), width)
    wanted = enumerated(backbone, residual, words)
    assert found.shape == wanted.shape == (width, sufficient_width(2, 3, 2, 2, residual, words))
    np.testing.assert_allclose(in_order(found), in_order(wanted), atol=1e-12)


# Exact at the sufficient width, and not one slot below.

SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))  # heads, layers, d


@settings(max_examples=40, deadline=None)
@given(shape=SHAPES, residual=st.booleans(), tied=st.booleans(), compiled=st.booleans(), spare=st.integers(0, 4))
def test_random_backbones_are_exact_from_the_sufficient_width_on(shape, residual, tied, compiled, spare) -> None:
    heads, layers, d = shape
    target = draw_target(heads, layers, d, seed=1, residual=residual, tied=tied and residual)
    width = enough(tied, target, compiled) + spare
    backbone = built(Random(tied=tied), heads, layers, width, d, fixed=not compiled)
    program, report = compile_program(target, backbone, compiled)
    assert report.exact, report.words
    if not compiled:  # U is the machine's own, drawn with it
        np.testing.assert_array_equal(program.unembedding, backbone.arrays["unembedding"])
    assert report.residual < 1e-9 and report.margin > 0 and np.isfinite(report.condition_number)
    assert (report.width, report.sufficient_width) == (width, width - spare)
    assert program.embedding.shape == (d, width) and program.unembedding.shape == (width, d)


@settings(max_examples=30, deadline=None)
@given(shape=SHAPES, residual=st.booleans(), tied=st.booleans())
def test_one_below_it_they_are_not(shape, residual, tied) -> None:
    heads, layers, d = shape
    target = draw_target(heads, layers, d, seed=1, residual=residual, tied=tied)
    backbone = built(Random(tied=tied), heads, layers, enough(tied, target) - 1, d)
    _, report = compile_program(target, backbone)
    assert report.relative_error > 1e-6 and report.margin == 0 and report.condition_number == np.inf
    assert report.words.startswith("not exact") and "nothing guarantees" in report.words
    assert universality_margin(backbone, residual) == 0


@settings(max_examples=30, deadline=None)
@given(shape=SHAPES, residual=st.booleans(), tied=st.booleans())
def test_nor_one_below_the_smaller_width_of_a_compiled_unembedding(shape, residual, tied) -> None:
    heads, layers, d = shape
    target = draw_target(heads, layers, d, seed=1, residual=residual, tied=tied)
    backbone = built(Random(tied=tied), heads, layers, enough(tied, target, compiled=True) - 1, d, fixed=False)
    assert not compile_program(target, backbone, compile_unembedding=True)[1].exact


@settings(max_examples=30, deadline=None)
@given(shape=SHAPES, layout=st.sampled_from(["attention", "residual", "tied"]))
def test_nor_are_sparse_trees_one_slot_below_theirs(shape, layout) -> None:
    heads, layers, d = shape
    target = draw_target(heads, layers, d, seed=1, residual=layout == "residual")
    width = sparse_width(layout, heads, layers, d, d) - 1
    backbone = built(Sparse(layout=layout), heads, layers, width, d)
    _, report = compile_program(target, backbone)
    assert report.relative_error > 1e-6 and report.margin == universality_margin(backbone, target.residual) == 0


@settings(max_examples=30, deadline=None)
@given(shape=SHAPES, layout=st.sampled_from(["attention", "residual", "tied"]), tied_target=st.booleans())
def test_sparse_trees_are_exact_to_the_last_digit_at_their_width(shape, layout, tied_target) -> None:
    heads, layers, d = shape
    residual = layout == "residual" or (layout == "tied" and tied_target)
    target = draw_target(heads, layers, d, seed=1, residual=residual, tied=tied_target)
    width = sparse_width(layout, heads, layers, d, d)
    backbone = built(Sparse(layout=layout), heads, layers, width, d)
    program, report = compile_program(target, backbone)
    assert report.residual == 0 and report.relative_error < 1e-14 and report.margin == 1
    stack = stack_of(backbone)
    words = backbone.recipe.tied and residual
    phi = as_columns(stack.conditions(backbone.arrays["unembedding"].argmax(0), residual, words), width)
    wanted = target.stack(d).conditions(target.unembedding, residual, words)
    np.testing.assert_allclose(program.embedding, np.linalg.lstsq(phi.T, wanted.T, rcond=None)[0].T, atol=1e-12)


@pytest.mark.parametrize("distribution", ["gaussian", "uniform", "laplace", "orthogonal"])
@pytest.mark.parametrize("values", ["standard", "full"])
def test_every_distribution_and_value_form_is_exact(distribution, values) -> None:
    target = draw_target(2, 2, 4, seed=1)
    _, report = compile_program(target, built(Random(distribution=distribution, values=values), 2, 2, 64, 4))
    assert report.exact and report.margin > 0


def test_a_trained_backbones_initial_weights_are_a_random_backbone() -> None:
    target = draw_target(2, 2, 2, seed=1)
    shape = Shape(2, 2, 32, mlp=False, out_dim=2, target_qk_dim=2, fixed_unembedding=False)
    backbone = build(Trained().recipe(shape, seed=0))
    assert compile_program(target, backbone, compile_unembedding=True)[1].exact


@pytest.mark.parametrize(
    ("config", "residual"),
    [
        (Random(qk_dim=5), False),
        (Random(qk_dim=5), True),
        (Sparse(qk_dim=5, out_dim=3), False),
        (Sparse(qk_dim=5, out_dim=3, layout="residual"), True),
    ],
    ids=str,
)
def test_a_larger_qk_dim_costs_width_and_is_exact(config, residual) -> None:
    target = draw_target(2, 2, 3, seed=1, residual=residual)
    width = enough(False, target, qk_dim=5)
    assert width > enough(False, target)
    assert compile_program(target, built(config, 2, 2, width, 3))[1].exact
    assert not compile_program(target, built(config, 2, 2, width - 1, 3))[1].exact


@pytest.mark.parametrize("config", [Random(qk_dim=5), Random(qk_dim=5, tied=True)], ids=str)
def test_so_does_it_where_the_unembedding_is_compiled_too(config) -> None:
    target = draw_target(2, 2, 3, seed=1)
    width = enough(False, target, compiled=True, qk_dim=5)
    assert compile_program(target, built(config, 2, 2, width, 3, fixed=False), True)[1].exact
    assert not compile_program(target, built(config, 2, 2, width - 1, 3, fixed=False), True)[1].exact


def test_programs_are_computed_in_float64_whatever_the_targets_precision() -> None:
    target = draw_target(2, 2, 2, seed=1)
    names = ("query", "key", "value", "unembedding")
    single = replace(target, **{name: getattr(target, name).astype(np.float32) for name in names})
    program, report = compile_program(single, built(Random(), 2, 2, 32, 2))
    assert program.embedding.dtype == program.unembedding.dtype == single(fresh_inputs(single)).dtype == np.float64
    assert report.exact


def test_other_numbers_of_outputs_and_queries_than_the_dimension() -> None:
    target = draw_target(2, 2, 4, seed=1, qk_dim=3, out_dim=2)
    shape = Shape(2, 2, enough(False, target), mlp=False, out_dim=2, target_qk_dim=3, fixed_unembedding=True)
    assert compile_program(target, build(Random().recipe(shape, seed=0)))[1].exact


def test_tokens_with_positions() -> None:
    rng = np.random.default_rng(0)
    target = replace(
        draw_target(2, 2, 3, seed=1),
        token_embedding=rng.normal(size=(5, 3)),
        position_embedding=rng.normal(size=(7, 3)),
    )
    assert fresh_inputs(target).shape[1] == 7  # no more than there are positions
    _, report = compile_program(target, built(Random(), 2, 2, enough(False, target), 3))
    assert report.exact


# The report.


def test_a_report_by_hand() -> None:
    # One slot too few: the leaf is dropped, so the backbone says 0, and of the conditions 2, 3, 35 the last is missed.
    target = hand_target([[2]], [[3]], [[5]], 7)
    program, report = compile_program(target, built(Sparse(), 1, 1, 2, 1))
    right = target(fresh_inputs(target))
    assert program.embedding.tolist() == [[2, 3]]
    assert report.residual == pytest.approx(35 / np.sqrt(2**2 + 3**2 + 35**2))
    assert report.largest_difference == np.abs(right).max() and report.relative_error == 1
    assert (report.width, report.sufficient_width, report.margin, report.condition_number) == (2, 3, 0, np.inf)
    assert "relative error 1 at width 2 (3 would be sufficient" in report.words


def test_margin_and_condition_number_are_those_of_all_paths() -> None:
    backbone = built(Random(), 2, 2, 40, 2)
    values = np.linalg.svd(enumerated(backbone, residual=False, words=False), compute_uv=False)
    _, report = compile_program(draw_target(2, 2, 2, seed=1), backbone)
    assert report.margin == universality_margin(backbone) == pytest.approx(values[-1])
    assert report.condition_number == pytest.approx(values[0] / values[-1])


@pytest.mark.parametrize("width", [20, 31])
def test_below_the_sufficient_width_it_is_the_program_of_least_squares(width) -> None:
    # of which the misses are orthogonal to whatever any other embedding would change
    target, backbone = draw_target(2, 2, 2, seed=1), built(Random(), 2, 2, width, 2)
    program, report = compile_program(target, backbone)
    phi = stack_of(backbone).conditions(backbone.arrays["unembedding"].astype(np.float64), residual=False)
    wanted = target.stack(2).conditions(target.unembedding, residual=False)
    missed = program.embedding @ phi - wanted
    np.testing.assert_allclose(missed @ phi.T, 0, atol=1e-9 * np.linalg.norm(wanted))
    assert report.residual == pytest.approx(np.linalg.norm(missed) / np.linalg.norm(wanted)) and report.residual > 1e-3


def test_exact_is_a_relative_error_of_at_most_a_hundred_millionth() -> None:
    _, report = compile_program(draw_target(1, 1, 1, seed=0), built(Random(), 1, 1, 3, 1))
    assert replace(report, relative_error=1e-8).exact and not replace(report, relative_error=1.01e-8).exact
    assert "rounding, at a condition number" in replace(report, relative_error=1e-7).words


def test_a_target_that_says_nothing_is_exact() -> None:
    _, report = compile_program(hand_target([[0]], [[0]], [[0]], 0), built(Random(), 1, 1, 3, 1))
    assert report.exact and report.relative_error == report.residual == 0


def test_a_trees_program_is_read_off_and_nothing_is_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fut.solving.least_squares", lambda *arguments: pytest.fail("something was solved"))
    target = draw_target(2, 2, 2, seed=1)
    assert compile_program(target, built(Sparse(), 2, 2, 32, 2))[1].exact
    with pytest.raises(pytest.fail.Exception, match="something was solved"):
        compile_program(target, built(Random(), 2, 2, 32, 2))


def test_where_two_conditions_read_one_slot_it_holds_their_mean() -> None:
    # a tree without slots for the identity: with residual connections layer 2 reads its queries where layer 1 does
    target, backbone = draw_target(2, 2, 2, seed=1, residual=True), built(Sparse(), 2, 2, 32, 2)
    program, report = compile_program(target, backbone)
    phi = as_columns(stack_of(backbone).conditions(np.arange(2), residual=True), 32)
    wanted = target.stack(2).conditions(target.unembedding, residual=True)
    np.testing.assert_allclose(program.embedding, np.linalg.lstsq(phi.T, wanted.T, rcond=None)[0].T, atol=1e-12)
    assert report.margin == 0 and not report.exact


def test_a_compiled_unembedding_finds_nothing_behind_an_embedding_of_zeros() -> None:
    # all queries and keys zero ask for E = 0: the smaller width is for generic targets; with U fixed, N serves this one
    target = draw_target(2, 2, 2, seed=1)
    even = replace(target, query=0 * target.query, key=0 * target.key)
    program, report = compile_program(even, built(Random(), 2, 2, 24, 2, fixed=False), compile_unembedding=True)
    assert not program.embedding.any() and report.relative_error == 1 and report.margin > 0
    assert "or outputs that no U gives" in report.words
    assert compile_program(even, built(Random(), 2, 2, 32, 2))[1].exact


# What does not matter.


@pytest.mark.parametrize("order", list(permutations(range(3)))[1:])
def test_the_order_of_heads_does_not_matter(order) -> None:
    target, backbone = draw_target(3, 2, 2, seed=1), built(Random(), 3, 2, 60, 2)
    first, again = list(order), list(order[::-1])  # another order in each layer

    def permuted(weights: np.ndarray) -> np.ndarray:
        return np.stack([weights[0][first], weights[1][again]])

    arrays = {name: array if name == "unembedding" else permuted(array) for name, array in backbone.arrays.items()}
    names = ("query", "key", "value")
    other = replace(target, **{name: permuted(getattr(target, name)) for name in names})
    program, report = compile_program(target, backbone)
    same, again_report = compile_program(other, backbone._replace(arrays=arrays))
    np.testing.assert_allclose(same.embedding, program.embedding, atol=1e-9)
    assert report.margin == pytest.approx(again_report.margin)


@pytest.mark.parametrize("factor", [1e-3, -2.0, 1e4])
def test_the_scale_of_the_targets_outputs_does_not_matter(factor) -> None:
    target, backbone = draw_target(2, 2, 2, seed=1), built(Random(), 2, 2, 32, 2)
    scaled = replace(target, unembedding=factor * target.unembedding)
    program, report = compile_program(scaled, backbone)
    assert report.exact
    inputs = fresh_inputs(target)
    np.testing.assert_allclose(
        run(program, stack_of(backbone), inputs, False), factor * target(inputs), atol=1e-8 * abs(factor)
    )


# Bad input.


def refused(target: Target, backbone: Backbone, compiled: bool = False) -> str:
    with pytest.raises(CompileError) as error:
        compile_program(target, backbone, compiled)
    return str(error.value)


def test_shapes_that_do_not_match_are_all_named() -> None:
    said = refused(draw_target(1, 3, 4, seed=0), built(Random(), 2, 2, 20, 2))
    assert "1 heads, the backbone 2" in said and "3 layers, the backbone 2" in said
    assert "qk_dim, 4, exceeds the backbone's, 2" in said and "4 outputs, the backbone's unembedding 2" in said


def test_what_the_theory_leaves_open_is_refused() -> None:
    shape = Shape(1, 1, 8, mlp=True, out_dim=2, target_qk_dim=2, fixed_unembedding=True)
    assert "MLP" in refused(draw_target(1, 1, 2, seed=0), build(Random().recipe(shape, 0)))
    untied = draw_target(2, 2, 2, seed=0, residual=True)
    assert "take a tied target, or an untied backbone" in refused(untied, built(Random(tied=True), 2, 2, 60, 2))


def test_without_an_unembedding_of_its_own_it_has_to_be_compiled() -> None:
    target, backbone = draw_target(1, 1, 2, seed=0), built(Random(), 1, 1, 8, 2, fixed=False)
    assert "no unembedding of its own" in refused(target, backbone)
    assert compile_program(target, backbone, compile_unembedding=True)[1].exact


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"query": np.full((1, 1, 2, 2), np.nan)}, "query holds values that are not finite"),
        ({"key": np.zeros((1, 1, 2, 3))}, r"key has shape \(1, 1, 2, 3\), not \(1, 1, 2, 2\)"),
        ({"value": np.zeros((1, 2, 2))}, "value has 3 axes, not 4"),
        ({"unembedding": np.zeros((3, 2))}, r"unembedding has shape \(3, 2\), not \(2, 2\)"),
        ({"unembedding": np.zeros((2, 0))}, "unembedding is empty"),
        ({"token_embedding": np.zeros((5, 2))}, "token_embedding and position_embedding come together"),
        (
            {"token_embedding": np.zeros((5, 3)), "position_embedding": np.zeros((4, 2))},
            "token_embedding has 3 columns, not 2",
        ),
    ],
)
def test_a_target_that_is_none_is_refused(change, said) -> None:
    with pytest.raises(CompileError, match=said):
        replace(draw_target(1, 1, 2, seed=0), **change)


@pytest.mark.parametrize(
    ("backbone", "said"),
    [(False, "products of the target's weights are not finite"), (True, "products of the backbone's weights are not")],
)
def test_weights_too_large_for_their_products_are_refused(backbone, said) -> None:
    target, frozen = draw_target(1, 3, 2, seed=0), built(Random(), 1, 3, 20, 2)
    if backbone:
        frozen.arrays["value"] = np.full(frozen.arrays["value"].shape, 1e200)
    else:
        target = replace(target, value=np.full(target.value.shape, 1e200))
    assert said in refused(target, frozen)
