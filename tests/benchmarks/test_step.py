"""The arithmetic of a step is what docs/benchmarks.md says; the shapes are real work."""

from typing import Any

from benchmarks.lightning import default_cells
from benchmarks.shapes import SHAPES
from benchmarks.step import operations
from fut.config import TrialConfig
from pipeline.grid import cell_id

BASE: dict[str, Any] = {"heads": 2, "layers": 2, "width": 8, "learning_rate": 0.01, "seed": 0}
KHOP = {"task": {"name": "khop", "length": 8}}
B, N, M, H, L = 64, 8, 8, 2, 2  # sequences, positions, width, heads, layers


def count(**fields: Any) -> int:
    return operations(TrialConfig.model_validate({**BASE, **fields}))


def test_a_dense_step_counts_frozen_products_twice_and_others_three_times() -> None:
    k, r, p = 3, M // H, 4
    frozen = 2 * B * N * M * H * (2 * k + r) + 2 * B * N * (H * r) * M  # query, key, value; output
    attention = 2 * B * H * N * N * (k + r)  # scores, mixing
    expected = L * (2 * frozen + 3 * attention) + 3 * 2 * B * N * M * p
    assert count(**KHOP, backbone={"kind": "random", "qk_dim": k}) == expected


def test_an_mlp_adds_two_frozen_products_a_layer() -> None:
    dense = {**KHOP, "backbone": {"kind": "random", "qk_dim": 3}}
    assert count(**dense, components="mlp") - count(**dense) == L * 2 * 2 * (2 * B * N * M * 4 * M)


def test_a_sparse_step_has_no_projections() -> None:
    width, k, p = 12, 2, 4  # one layer: queries, keys and subtrees of two slots for each of two heads
    attention = 2 * B * H * N * N * (k + k)
    assert count(**KHOP | {"layers": 1, "width": width}, backbone={"kind": "sparse"}) == (
        3 * attention + 3 * 2 * B * N * width * p
    )


def test_vectors_are_embedded_by_a_product_and_full_values_are_as_wide_as_the_state() -> None:
    n, d = 10, 2
    task = {"name": "simulate", "target_dim": d}
    frozen = 2 * B * n * M * H * 2 * d + 2 * B * n * (H * M) * M
    attention = 2 * B * H * n * n * (d + M)
    expected = L * (2 * frozen + 3 * attention) + 3 * 2 * B * n * M * d + 2 * 2 * B * n * d * M
    assert count(task=task, backbone={"kind": "random"}) == expected


def test_what_trains_costs_three_products_where_frozen_weights_cost_two() -> None:
    weights = 2 * B * N * M * H * (2 * 4 + 4) + 2 * B * N * M * M
    trained, frozen = (count(**KHOP, backbone={"kind": kind, "qk_dim": 4}) for kind in ("trained", "random"))
    assert trained - frozen == L * weights


def test_every_shape_is_a_cell_of_the_default_run() -> None:
    cells = {cell.id for cell in default_cells()}
    missing = [shape.name for shape in SHAPES if cell_id(shape.config) not in cells]
    assert not missing, f"the default studies have no such cells any more; change benchmarks/shapes.py: {missing}"


def test_the_shapes_are_sparse_and_dense_with_and_without_mlp() -> None:
    kinds = {(shape.config.backbone.kind == "sparse", shape.config.has("mlp")) for shape in SHAPES}
    assert len(SHAPES) == 6 and len(kinds) == 4
