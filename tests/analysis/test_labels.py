"""Labels: what varies is named, what does not goes without saying, and no two cells share a name."""

import json

import pytest

from analysis import labels
from analysis.curves import curves


@pytest.fixture
def described(trials):
    """Cells described together: each mapping of changed columns is a cell of one seed."""

    def make(*changes: dict):
        frame = curves(trials(*({"cell": f"c{index}"} | change for index, change in enumerate(changes))))
        return labels.describe(frame)

    return make


def test_a_series_is_named_by_what_is_unusual(described) -> None:
    cells = described(
        {"qk_gain": 1.0},
        {"qk_gain": 1.0, "width": 32},
        {"qk_gain": 2.0},
        {"qk_gain": 1.0, "trainable": "embedding"},
        {"qk_gain": 1.0, "tied": True},
        {"backbone": "sparse", "qk_gain": None, "layout": "attention"},
    )
    assert cells["series"].tolist() == [
        "random",
        "random",
        "random, qk_gain 2",
        "random, only E",
        "random, tied",
        "sparse",
    ]


def test_a_program_is_named_by_where_it_comes_from_and_by_nothing_that_follows(described) -> None:
    """A compiled program has no training plan, which would else set it apart from the learned one."""
    untrained = {"method": "compiled", "learning_rate": None, "training_steps": None, "batch_size": None}
    trained = {"training_steps": 100, "batch_size": 8, "init": "random"}
    warm = {**trained, "init": "compiled"}
    cells = described(trained, untrained, {**warm, "init_noise": 0.0}, {**warm, "init_noise": 0.1})
    assert cells["series"].tolist() == [
        "random, learned",
        "random, compiled",
        "random, learned from compiled, noise 0",
        "random, learned from compiled, noise 0.1",
    ]
    assert set(described(trained, {**trained, "width": 32})["series"]) == {"random"}


def test_without_a_usual_value_every_value_is_named(described) -> None:
    cells = described(
        {"backbone": "sparse", "layout": "attention"}, {"backbone": "sparse", "layout": "tied", "tied": True}
    )
    assert cells["series"].tolist() == ["sparse, layout attention", "sparse, layout tied"]


def test_what_follows_from_task_components_or_width_names_nothing(described) -> None:
    cells = described(
        {"value_gain": 1.0, "task": "dyck", "hops": None},
        {"value_gain": 0.5, "hops": 1},
        {"value_gain": 0.5, "hops": 1, "components": "residual+layernorm+mlp", "mlp_gain": 0.1},
        {"value_gain": 0.5, "hops": 1, "width": 32, "qk_dim": 16},
    )
    assert set(cells["series"]) == {"random"}
    assert cells["task_label"].tolist() == ["dyck", "khop, k = 1", "khop, k = 1", "khop, k = 1"]


def test_block_widths_are_named_where_one_width_has_several(described) -> None:
    cells = described({"qk_dim": 4}, {"qk_dim": 8}, {"qk_dim": 8, "width": 32})
    assert cells["series"].tolist() == ["random, qk_dim 4", "random", "random"]


def test_cells_that_nothing_here_tells_apart_still_get_names_of_their_own(described) -> None:
    assert described({}, {})["series"].tolist() == ["random, cell c0", "random, cell c1"]


def test_task_parameters_are_named_where_they_vary(described) -> None:
    def khop(**parameters):
        return {"task_parameters": json.dumps({"name": "khop", "hops": 2, "alphabet": 4, **parameters})}

    assert described(khop(length=16), khop(length=32))["task_label"].tolist() == [
        "khop, k = 2, length 16",
        "khop, k = 2, length 32",
    ]


def test_shapes_are_named_where_a_kind_has_several(described) -> None:
    simulate = [
        {
            "task": "simulate",
            "hops": None,
            "heads": heads,
            "target_dim": dim,
            "task_parameters": json.dumps({"name": "simulate", "target_dim": dim, "target_qk_dim": dim}),
        }
        for heads, dim in [(1, 2), (2, 4)]
    ]
    cells = described(*simulate)
    assert cells["shape_label"].tolist() == ["H = 1, L = 2, d = 2", "H = 2, L = 2, d = 4"]
    assert set(cells["task_label"]) == {"simulate"}  # k and p follow d
    assert set(described({"heads": 1}, {"heads": 4, "backbone": "trained"})["shape_label"]) == {""}


def test_values_are_named_by_what_they_are(described) -> None:
    cells = described({"values": "standard"}, {"values": "full"}, {"values": "standard", "width": 32})
    assert cells["variant"].tolist() == ["full values" if value == "full" else "" for value in cells["values"]]
    assert sorted(cells["values"]) == ["full", "standard", "standard"]
    cells = described({"leaf_dim": None}, {"leaf_dim": 4})
    assert sorted(cells["variant"]) == ["leaf_dim 4", "no leaf_dim"]
