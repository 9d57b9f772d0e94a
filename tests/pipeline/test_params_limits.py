"""What is too large is refused before it is built, and what is just small enough is not."""

from typing import Any

import pytest

from fut.theory import sufficient_width
from pipeline import grid
from pipeline.grid import GridError, expand
from pipeline.limits import LARGEST_INT64, MOST_TRIALS
from pipeline.study import Study

KHOP = {"task": {"name": "khop"}, "backbone": {"kind": "random"}, "heads": 1, "layers": 1, "width": 8}
SIMULATE = {"task": {"name": "simulate"}, "backbone": {"kind": "random"}, "heads": 1, "layers": 1}


def cells(**fields: Any) -> list[grid.Cell]:
    return expand("s", Study.model_validate({"seeds": [0], **fields}))


def fault(**fields: Any) -> str:
    with pytest.raises(GridError) as refused:
        cells(**fields)
    (found,) = refused.value.faults
    return str(found)


def test_trials_are_counted_over_blocks_axes_seeds_and_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = {"base": KHOP, "grid": [{"width": [8, 16], "heads": [1, 2]}, {"width": 32}]}
    monkeypatch.setattr(grid, "MOST_TRIALS", 5 * 3 * 2)
    found = cells(seeds=[0, 1, 2], learning_rate=[0.1, 0.2], **blocks)
    assert sum(len(cell.trials) for cell in found) == 5 * 3 * 2
    monkeypatch.setattr(grid, "MOST_TRIALS", 5 * 3 * 2 - 1)
    words = fault(seeds=[0, 1, 2], learning_rate=[0.1, 0.2], **blocks)
    assert words.startswith("studies.s: comes to 30 trials (points × seeds × learning rates: 5 × 3 × 2)")


def test_a_grid_beyond_all_bounds_is_refused_unbuilt() -> None:
    axis = list(range(1, 1001))
    names = ["steps", "batch_size", "steps_per_epoch", "warmup_steps"]
    words = fault(base=KHOP, grid={f"training.{name}": axis for name in names} | {"width": axis, "heads": axis})
    assert words.startswith("studies.s: comes to about 1.0e18 trials")
    assert f"{MOST_TRIALS:,}" in words


def test_faults_of_keys_are_told_beside_too_many_trials() -> None:
    axis = list(range(1, 1001))
    with pytest.raises(GridError) as refused:
        cells(base=KHOP, grid={"width": axis, "heads": axis, "layrs": 1})
    assert [fault.path for fault in refused.value.faults] == ["studies.s.grid.layrs", "studies.s"]


@pytest.mark.parametrize("layers", [1, 2])
def test_a_width_is_bounded_however_it_is_given(layers: int) -> None:
    enough = sufficient_width(1, layers, 2, 2, unembedding="compiled", target_dim=2)
    most = 1_000_000 / enough
    found = cells(base={**SIMULATE, "layers": layers}, grid={"width": {"times_sufficient": most}})
    assert {cell.first.width for cell in found} == {1_000_000}
    assert "1,000,001, and at most 1,000,000 can be built" in fault(
        base={**SIMULATE, "layers": layers}, grid={"width": {"times_sufficient": 1_000_001 / enough}}
    )


def test_targets_are_as_deep_as_the_tables_can_count() -> None:
    shapes = {layers: sufficient_width(2, layers, 2, 2) for layers in range(50, 70)}  # U fixed: the larger one
    deepest = max(layers for layers, width in shapes.items() if width <= LARGEST_INT64)
    base = {**SIMULATE, "heads": 2, "width": 16}
    assert [cell.first.layers for cell in cells(base=base, grid={"layers": deepest})] == [deepest]
    words = fault(base=base, grid={"layers": [deepest, deepest + 1]})
    assert words.startswith(
        f"studies.s.grid.layers[1]: the sufficient width of a target with 2 heads and {deepest + 1}"
    )


def test_deep_shapes_without_a_target_need_no_tables_to_count() -> None:
    (cell,) = cells(base={**KHOP, "layers": 1_000})
    assert cell.first.layers == 1_000


def test_sufficient_widths_count_the_columns_of_the_backbone_however_they_are_given() -> None:
    base = {"task": {"name": "simulate"}, "heads": 1, "layers": 2}
    kinds = [
        {"kind": "sparse", "block": 4},
        {"kind": "sparse", "qk_dim": 4, "out_dim": 4},
        {"kind": "random", "qk_dim": 4},
    ]
    widths = {cell.first.width for cell in cells(base=base, grid={"backbone": kinds, "width": {"times_sufficient": 1}})}
    assert widths == {2 * 4 * 2}  # 2 k L for one head: more than the d of the unembedding


def test_a_trained_baseline_has_the_sufficient_width_of_a_whole_program() -> None:
    backbone = {"kind": "trained", "values": "full"}
    base = {**SIMULATE, "backbone": backbone}
    found = cells(
        base=base, grid=[{"width": {"times_sufficient": 2}}, {"width": {"times_sufficient": 2}, "trainable": "all"}]
    )
    assert [cell.first.width for cell in found] == [8]  # one cell: `all` is what is said anyway
