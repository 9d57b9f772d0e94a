"""Trials are named by what determines them, and impossible ones are refused."""

import pytest
from pydantic import ValidationError


def test_every_field_is_part_of_the_name(trial) -> None:
    """No two configurations may share a record."""
    changed = [
        {},
        {"seed": 1},
        {"learning_rate": 0.02},
        {"width": 20},
        {"heads": 2},
        {"layers": 1},
        {"components": "attention"},
        {"trainable": "embedding"},
        {"backbone": {"kind": "random", "value_gain": 0.5}},
        {"backbone": {"kind": "random", "distribution": "uniform"}},
        {"backbone": {"kind": "random", "tied": True}},
        {"training": {"steps": 40, "batch_size": 16, "steps_per_epoch": 10, "warmup_steps": 5}},
        {"training": {"steps": 20, "batch_size": 8, "steps_per_epoch": 10, "warmup_steps": 5}},
        {"task": {"name": "khop", "hops": 2}},
        {"task": {"name": "khop", "hops": 1, "data_seed": 1}},
        {"task": {"name": "dyck"}},
    ]
    assert len({trial(**fields).id for fields in changed}) == len(changed)


def test_names_do_not_depend_on_how_a_configuration_is_written(trial) -> None:
    one, other = trial(components="layernorm+residual"), trial(components="residual+layernorm")
    assert one.id == other.id and one.components == "residual+layernorm"
    assert type(one).model_validate(one.canonical()).id == one.id


def test_an_undrawn_backbone_is_shared_by_all_seeds(trial) -> None:
    sparse = [trial(backbone={"kind": "sparse"}, seed=seed).recipe.id for seed in (0, 1)]
    drawn = [trial(seed=seed).recipe.id for seed in (0, 1)]
    with_mlp = [trial(backbone={"kind": "sparse"}, components="mlp", seed=seed).recipe.id for seed in (0, 1)]
    assert sparse[0] == sparse[1] and drawn[0] != drawn[1] and with_mlp[0] != with_mlp[1]


@pytest.mark.parametrize(
    "fields, says",
    [
        ({"components": "residul"}, "unknown component 'residul'"),
        ({"components": "mlp+mlp"}, "named twice"),
        ({"trainable": "all"}, "goes with backbone kind 'trained'"),
        ({"backbone": {"kind": "trained"}, "trainable": "program"}, "goes with backbone kind 'trained'"),
        ({"heads": 3}, "3"),
        ({"width": 1, "backbone": {"kind": "sparse"}}, "take at least"),
        ({"training": {"steps": 25, "steps_per_epoch": 10}}, "not a multiple"),
        ({"training": {"steps": 10, "steps_per_epoch": 10, "warmup_steps": 11}}, "warmup_steps"),
        ({"learning_rate": 0.0}, "greater than 0"),
        ({"learning_rate": float("nan")}, "finite"),
        ({"seed": -1}, "greater"),
        ({"seed": True}, "valid integer"),
        ({"width": "16"}, "valid integer"),
        ({"task": {"name": "dyck", "hops": 1}}, "Extra"),
        ({"steps": 3}, "Extra"),
    ],
)
def test_impossible_trials_are_refused(trial, fields, says) -> None:
    with pytest.raises(ValidationError, match=says):
        trial(**fields)
