"""Universality margins: positive for trees and draws, zero for controls, and the two ways to compute them."""

import numpy as np
import pytest

from fut.backbones import Control, Random, Shape, Sparse, build
from fut.compiler import compile_program, draw_target, universality_margin
from fut.solving import DENSE_UP_TO, spectrum_of
from fut.theory import sparse_width, sufficient_width


@pytest.mark.parametrize("distribution", ["gaussian", "uniform", "laplace", "orthogonal"])
def test_the_margin_of_random_backbones_is_positive_whatever_the_seed(distribution) -> None:
    shape = Shape(2, 2, 32, mlp=False, out_dim=2, target_qk_dim=2, fixed_unembedding=True)
    margins = [universality_margin(build(Random(distribution=distribution).recipe(shape, seed))) for seed in range(50)]
    assert min(margins) > 1e-6


@pytest.mark.parametrize("values", ["standard", "full"])
@pytest.mark.parametrize(("residual", "tied"), [(True, False), (False, True), (True, True)])
def test_nor_do_residual_connections_or_tied_layers_take_it(values, residual, tied) -> None:
    width = sufficient_width(2, 2, 2, 2, residual, tied)
    width += width % 2  # of standard values the heads share it
    shape = Shape(2, 2, width, mlp=False, out_dim=2, target_qk_dim=2, fixed_unembedding=True)
    margins = [
        universality_margin(build(Random(values=values, tied=tied).recipe(shape, seed)), residual) for seed in range(20)
    ]
    assert min(margins) > 1e-6


@pytest.mark.parametrize(
    ("layout", "residual"), [("attention", False), ("residual", True), ("tied", False), ("tied", True)]
)
@pytest.mark.parametrize(("heads", "layers"), [(1, 1), (2, 3), (3, 2)])
def test_the_margin_of_a_tree_is_1(layout, residual, heads, layers) -> None:
    width = sparse_width(layout, heads, layers, 2, 2)
    shape = Shape(heads, layers, width, mlp=False, out_dim=2, target_qk_dim=2, fixed_unembedding=True)
    backbone = build(Sparse(layout=layout).recipe(shape, seed=0))
    assert universality_margin(backbone, residual) == 1


@pytest.mark.parametrize("distribution", ["gaussian", "uniform", "laplace", "orthogonal"])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("control", ["identical_heads", "low_rank"])
def test_the_margin_of_a_control_is_0_whatever_is_drawn(control, tied, distribution) -> None:
    shape = Shape(2, 2, 96, mlp=False, out_dim=3, target_qk_dim=3, fixed_unembedding=True)  # 48 would be sufficient
    config = Control(control=control, distribution=distribution, tied=tied)
    assert [universality_margin(build(config.recipe(shape, seed))) for seed in range(10)] == [0] * 10


@pytest.mark.parametrize("control", ["identical_heads", "low_rank"])
@pytest.mark.parametrize(("heads", "layers", "residual"), [(2, 1, False), (2, 2, False), (3, 2, True)])
def test_controls_have_no_margin_and_simulate_no_generic_target(control, heads, layers, residual) -> None:
    target = draw_target(heads, layers, 3, seed=1, residual=residual)
    width = 2 * sufficient_width(heads, layers, 3, 3, residual)
    for seed in range(5):
        shape = Shape(heads, layers, width, mlp=False, out_dim=3, target_qk_dim=3, fixed_unembedding=True)
        _, report = compile_program(target, build(Control(control=control).recipe(shape, seed)))
        assert report.margin == 0 and report.relative_error > 1e-2
        assert "its columns of conditions are dependent" in report.words


def test_the_two_ways_to_a_spectrum_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    matrices = [
        np.random.default_rng(seed).normal(size=size) for seed, size in enumerate([(60, 40), (40, 40), (30, 40)])
    ]
    matrices.append(matrices[0][:, [0, 0, *range(2, 40)]])  # a column twice
    right = [spectrum_of(matrix) for matrix in matrices]
    monkeypatch.setattr("fut.solving.DENSE_UP_TO", 10)
    for matrix, (first, last) in zip(matrices, right, strict=True):
        found = spectrum_of(matrix)
        assert found.first == pytest.approx(first)
        assert found.margin == pytest.approx(last if last > 1e-9 else 0.0, rel=1e-6)
    assert DENSE_UP_TO > 40
