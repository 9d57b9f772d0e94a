"""The expansion of a study into cells and trials."""

import itertools
import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fut.config import TrialConfig
from fut.theory import sufficient_width
from pipeline.grid import Cell, GridError, cell_id, expand
from pipeline.study import Study

TASK = {"name": "khop", "hops": 1}
BACKBONE = {"kind": "random", "values": "full", "qk_dim": 4}  # possible with any width, heads and layers
BASE = {"task": TASK, "backbone": BACKBONE, "heads": 1, "layers": 1, "width": 8}
AXES: dict[str, list[Any]] = {
    "width": [8, 12, 16, 24],
    "heads": [1, 2, 3],
    "layers": [1, 2],
    "backbone.value_gain": [0.25, 0.5, 1.0],
    "task.hops": [0, 1, 2],
    "training.steps": [100, 200],
    "components": ["attention", "residual", "residual+layernorm"],
}


def study(**fields: Any) -> Study:
    return Study.model_validate({"seeds": [0], **fields})


def cells(**fields: Any) -> list[Cell]:
    return expand("s", study(**fields))


def faults(**fields: Any) -> list[str]:
    with pytest.raises(GridError) as refused:
        cells(**fields)
    return [str(fault) for fault in refused.value.faults]


@st.composite
def grids(draw: st.DrawFn) -> dict[str, list[Any]]:
    """Some axes with some of their values, repeats included."""
    keys = draw(st.lists(st.sampled_from(sorted(AXES)), unique=True, max_size=4))
    return {key: draw(st.lists(st.sampled_from(AXES[key]), min_size=1, max_size=4)) for key in keys}


@settings(max_examples=40, deadline=None)
@given(grids(), st.lists(st.integers(0, 9), unique=True, min_size=1, max_size=3), st.integers(1, 3))
def test_there_is_one_cell_for_each_combination_and_one_trial_for_each_seed_and_rate(
    grid: dict[str, list[Any]], seeds: list[int], rates: int
) -> None:
    found = cells(base=BASE, grid=grid, seeds=seeds, learning_rate=[0.1 / 2**index for index in range(rates)])
    assert len(found) == math.prod(len(set(values)) for values in grid.values())
    for cell in found:
        assert cell.seeds == tuple(seeds)
        assert len({trial.id for trial in cell.trials}) == len(cell.trials) == len(seeds) * rates
        assert {cell_id(trial) for trial in cell.trials} == {cell.id}


@settings(max_examples=40, deadline=None)
@given(grids(), st.randoms(use_true_random=False))
def test_the_order_of_keys_does_not_matter(grid: dict[str, list[Any]], chance: random.Random) -> None:
    keys = list(grid)
    chance.shuffle(keys)
    shuffled = {key: grid[key] for key in keys}
    back = dict(reversed(BASE.items()))
    assert {cell.id for cell in cells(base=BASE, grid=grid)} == {cell.id for cell in cells(base=back, grid=shuffled)}


@settings(max_examples=20, deadline=None)
@given(grids())
def test_cells_are_those_of_a_slow_expansion(grid: dict[str, list[Any]]) -> None:
    expected = set()
    for values in itertools.product(*grid.values()):
        at = dict(zip(grid, values, strict=True))
        expected.add(
            cell_id(
                TrialConfig.model_validate(
                    {
                        "task": {"name": "khop", "hops": at.get("task.hops", 1)},
                        "backbone": {**BACKBONE, "value_gain": at.get("backbone.value_gain", 1.0)},
                        "training": {"steps": at.get("training.steps", 2000)},
                        "heads": at.get("heads", 1),
                        "layers": at.get("layers", 1),
                        "width": at.get("width", 8),
                        "components": at.get("components", "attention"),
                        "learning_rate": 0.01,
                        "seed": 0,
                    }
                )
            )
        )
    assert {cell.id for cell in cells(base=BASE, grid=grid)} == expected


def test_a_cell_is_a_configuration_without_seed_and_learning_rate() -> None:
    (cell,) = cells(base=BASE, seeds=[3, 4], learning_rate=[0.1, 0.2])
    assert cell.config["task"]["hops"] == 1
    assert not {"seed", "learning_rate"} & set(cell.config)
    assert [(trial.learning_rate, trial.seed) for trial in cell.trials] == [(0.1, 3), (0.1, 4), (0.2, 3), (0.2, 4)]
    assert cell.first == cell.trials[0]


def test_cells_come_in_the_order_of_the_file_and_the_last_key_runs_fastest() -> None:
    found = cells(base=BASE, grid=[{"width": [16, 8], "heads": [2, 1]}, {"layers": 2}])
    assert [(cell.first.width, cell.first.heads, cell.first.layers) for cell in found] == [
        (16, 2, 1),
        (16, 1, 1),
        (8, 2, 1),
        (8, 1, 1),
        (8, 1, 2),
    ]


def test_blocks_are_united_and_their_common_cells_counted_once() -> None:
    found = cells(base=BASE, grid=[{"width": [8, 16]}, {"width": [16, 32]}, {"width": 8, "task": {"hops": 1}}])
    assert [cell.first.width for cell in found] == [8, 16, 32]


def test_a_key_of_several_fields_is_one_axis() -> None:
    found = cells(base=BASE, grid={"heads, layers": [[1, 2], [2, 1]], "width": [8, 16]})
    assert {(cell.first.heads, cell.first.layers) for cell in found} == {(1, 2), (2, 1)}
    assert len(found) == 4


def test_whole_values_are_set_before_what_stands_in_them() -> None:
    for keys in (["backbone.value_gain", "backbone"], ["backbone", "backbone.value_gain"]):
        values = {"backbone": [{**BACKBONE, "value_gain": 7.0}], "backbone.value_gain": [0.25, 0.5]}
        found = cells(base=BASE, grid={key: values[key] for key in keys})
        assert {cell.first.backbone.value_gain for cell in found} == {0.25, 0.5}  # type: ignore[attr-defined]


def test_a_mapping_is_merged_into_one_of_its_kind_and_replaces_another() -> None:
    base = {**BASE, "backbone": {**BACKBONE, "mlp_gain": 0.1}}
    (merged,) = cells(base=base, grid={"backbone": {"kind": "random", "value_gain": 0.5}})
    assert (merged.first.backbone.mlp_gain, merged.first.backbone.qk_dim) == (0.1, 4)
    (nameless,) = cells(base=base, grid={"backbone": {"value_gain": 0.5}})
    assert nameless.id == merged.id
    (replaced,) = cells(base={**base, "width": 16}, grid={"backbone": {"kind": "sparse"}})
    assert (replaced.first.backbone.mlp_gain, replaced.first.backbone.qk_dim) == (1.0, None)


def test_changes_are_made_one_at_a_time_and_the_baseline_is_a_cell() -> None:
    found = cells(base=BASE, changes=[{"width": 16}, {"backbone": {"distribution": "uniform"}}, {"task.hops": [2, 3]}])
    seen = [
        (cell.first.width, cell.first.backbone.distribution, cell.first.task.hops)  # type: ignore[attr-defined]
        for cell in found
    ]
    assert seen == [(8, "gaussian", 1), (16, "gaussian", 1), (8, "uniform", 1), (8, "gaussian", 2), (8, "gaussian", 3)]


def test_one_axis_of_a_study_leaves_the_base_alone() -> None:
    shared = {"task": TASK, "training": {"steps": 100}}
    cells(base={**BASE, **shared}, grid={"task.hops": [2, 3], "training": {"steps_per_epoch": 50}})
    assert shared == {"task": TASK, "training": {"steps": 100}}
    assert TASK == {"name": "khop", "hops": 1}


def test_learning_rates_follow_the_kind_of_backbone() -> None:
    found = cells(
        base={**BASE, "width": 16},
        grid={"backbone": [{"kind": "sparse"}, {"kind": "trained"}, BACKBONE]},
        learning_rate={"sparse": [0.1, 0.2], "trained": 1e-3, "random": 0.5},
    )
    assert [cell.learning_rates for cell in found] == [(0.1, 0.2), (0.001,), (0.5,)]
    assert [cell.first.trainable for cell in found] == ["program", "all", "program"]


@pytest.mark.parametrize("trainable", ["program", "embedding"])
def test_widths_may_be_multiples_of_the_sufficient_width(trainable: str) -> None:
    base = {"backbone": {"kind": "random", "values": "full"}, "trainable": trainable, "task": {"name": "simulate"}}
    found = cells(
        base={**base, "method": "learned"},
        grid={
            "heads, layers": [[2, 2], [1, 1]],
            "task.target_dim": [2, 3],
            "width": {"times_sufficient": [0.5, 1, 1.1]},
        },
    )
    for (heads, layers), dim in itertools.product([(2, 2), (1, 1)], [2, 3]):
        unembedding = "compiled" if trainable == "program" else "fixed"
        enough = sufficient_width(heads, layers, dim, dim, unembedding=unembedding, target_dim=dim)
        widths = [cell.first.width for cell in found if (cell.first.heads, cell.first.task.input_dim) == (heads, dim)]
        assert widths == list(dict.fromkeys([-(-enough // 2), enough, -(-11 * enough // 10)]))


def test_sufficient_widths_of_a_tied_residual_backbone_are_its_own() -> None:
    base = {
        "task": {"name": "simulate"},
        "heads": 2,
        "layers": 2,
        "components": "residual",
        "backbone": {"kind": "random", "values": "full", "tied": True, "qk_dim": 3},
    }
    (cell,) = cells(base=base, grid={"width": {"times_sufficient": 1}})
    # queries and keys: 2 k Σ H^l = 2·3·(2 + 4) = 36; d times the distinct words: 2·(1 + 2 + 4) = 14
    assert cell.first.width == 36


def test_widths_may_mix_whole_numbers_and_multiples() -> None:
    base = {"backbone": {"kind": "random", "values": "full"}, "task": {"name": "simulate"}, "heads": 1, "layers": 1}
    found = cells(base=base, grid={"width": [3, {"times_sufficient": 1}, {"times_sufficient": [2, 3]}]})
    assert [cell.first.width for cell in found if cell.first.method == "learned"] == [3, 4, 8, 12]


SIMULATE = {"task": {"name": "simulate"}, "backbone": {"kind": "random"}, "heads": 1, "layers": 1, "width": 8}


def test_a_cell_of_simulate_has_its_compiled_result_beside_the_learned_one() -> None:
    learned, compiled = cells(base=SIMULATE, learning_rate=[0.1, 0.2], seeds=[3, 4])
    assert len(learned.trials) == 4 and [trial.seed for trial in compiled.trials] == [3, 4]
    assert {trial.method for trial in compiled.trials} == {"compiled"}
    shared = ["task", "backbone", "heads", "layers", "width", "trainable", "components"]
    assert all(getattr(learned.first, name) == getattr(compiled.first, name) for name in shared)
    assert learned.first.recipe == compiled.first.recipe  # the same machine
    assert {cell_id(trial) for trial in compiled.trials} == {compiled.id} != {learned.id}


@pytest.mark.parametrize(
    "fields",
    [
        {"components": "residual"},  # the target has none
        {"trainable": "unembedding"},
        {"backbone": {"kind": "trained"}},
        {"backbone": {"kind": "random", "qk_dim": 1}},  # below the target's
        {"init": "compiled"},
        {"method": "learned"},
        {"method": "compiled"},
        {"task": {"name": "khop"}},
    ],
)
def test_a_cell_that_cannot_be_compiled_or_says_its_method_stands_alone(fields: dict[str, Any]) -> None:
    (cell,) = cells(base={**SIMULATE, **fields})
    assert cell.first.method == fields.get("method", "learned")


def test_what_is_too_large_to_compile_is_learned_only() -> None:
    """H = 2, d = 2: N = 4 (2 + 4 + … + 2^L) + 2 · 2^L, which is 20,472 at L = 11 and 10,232 at L = 10."""
    assert [len(cells(base={**SIMULATE, "heads": 2, "layers": layers})) for layers in (10, 11)] == [2, 1]


def test_compiled_cells_that_differ_in_training_only_are_one() -> None:
    found = cells(base=SIMULATE, grid={"training.steps": [100, 200]})
    assert [cell.first.method for cell in found] == ["learned", "compiled", "learned"]


PRETRAINED = {"backbone": {"kind": "pretrained"}, "source": {"task": {"name": "dyck"}, "learning_rate": 0.001}}
REPROGRAMMED = {"task": TASK, "heads": 1, "layers": 1, "width": 8}


def test_a_pretrained_backbones_source_is_a_trial_of_the_study() -> None:
    source = {"task": {"name": "dyck"}, "backbone": {"kind": "trained"}}
    found = cells(base=REPROGRAMMED, grid=[source, PRETRAINED], seeds=[0, 1])
    trained, pretrained = ([trial for trial in cell.trials] for cell in found)
    assert [trial.source_trial for trial in pretrained] == trained


@pytest.mark.parametrize(
    "source",
    [
        {"task": {"name": "khop", "hops": 2}, "backbone": {"kind": "trained"}},
        {"task": {"name": "dyck"}, "backbone": {"kind": "random"}},
        {"task": {"name": "dyck"}, "backbone": {"kind": "trained"}, "width": 16},
        {"task": {"name": "dyck"}, "backbone": {"kind": "trained"}, "components": "residual"},
        {"task": {"name": "dyck"}, "backbone": {"kind": "trained"}, "training": {"steps": 100}},
    ],
)
def test_a_source_that_never_runs_is_refused_where_it_is_written(source: dict[str, Any]) -> None:
    (fault,) = faults(base=REPROGRAMMED, grid=[source, PRETRAINED])
    assert fault.startswith(
        "studies.s.grid[1].source: the study has no such trial: add a cell with task dyck, backbone"
    )


def test_a_source_at_another_learning_rate_is_refused() -> None:
    source = {"task": {"name": "dyck"}, "backbone": {"kind": "trained"}}
    (fault,) = faults(base=REPROGRAMMED, grid=[source, PRETRAINED], learning_rate=0.01)
    assert fault.endswith("at learning rate 0.001")


def test_the_cell_of_a_pretrained_backbone_does_not_hang_on_its_seeds() -> None:
    source = {"task": {"name": "dyck"}, "backbone": {"kind": "trained"}}
    one, other = (cells(base=REPROGRAMMED, grid=[source, PRETRAINED], seeds=seeds)[1].id for seeds in ([0, 1], [5]))
    assert one == other


def test_all_faults_come_at_once_each_at_its_own_path() -> None:
    assert faults(
        base={"task": {"name": "khop", "lenght": 16}, "backbone": {"kind": "random"}, "widht": 8},
        grid=[{"heads": [1, 0], "layers": [1, 2]}, {"heads": 1, "layers": "2"}],
    ) == [
        "studies.s.base.widht: unknown key 'widht': did you mean 'width'?",
        "studies.s.base.task.lenght: unknown key 'lenght': did you mean 'length'?",
        "studies.s.grid[0].heads[1]: must be at least 1, got 0",
        "studies.s.grid[1].layers: expected a whole number, got the text '2'; write it without quotes",
    ]


def test_a_fault_of_many_cells_is_told_once() -> None:
    grid = {"width": [32, 48, 64], "task": [TASK, {"name": "khop", "hops": -1}], "heads": [1, 2, 4]}
    assert faults(base=BASE, grid=grid) == ["studies.s.grid.task[1].hops: must be at least 0, got -1"]


def test_a_mapping_of_an_axis_leaves_nothing_to_the_next_one() -> None:
    found = cells(base=BASE, grid={"task": [{"hops": 2}, {"length": 12}]})
    assert [(cell.config["task"]["hops"], cell.config["task"]["length"]) for cell in found] == [(2, 16), (1, 12)]


def test_a_replaced_mapping_leaves_no_path_into_what_it_was() -> None:
    base = {**BASE, "task": {"name": "simulate", "length": 10}}
    (fault,) = faults(base=base, grid={"task": {"name": "khop", "hops": 12}})
    assert fault.startswith("studies.s.grid.task.length: fewer than 1% of the positions")  # of khop's default length


def test_a_field_of_another_kind_says_which_kind_has_it_not() -> None:
    (fault,) = faults(base=BASE, grid={"task": {"name": "dyck", "hops": 1}})
    assert fault.startswith("studies.s.grid.task.hops: dyck has no hops; known: name, data_seed")


def test_a_study_without_anything_says_what_it_lacks() -> None:
    assert [fault.split(":")[0] for fault in faults()] == [
        f"studies.s.base.{field}" for field in ("task", "backbone", "heads", "layers", "width")
    ]
