"""Weights that were trained for one task, frozen for another."""

from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from fut.backbones import build
from fut.backbones.pretrained import SourceMissing, read
from fut.config import TrialConfig
from fut.files import load_arrays
from fut.transformer import Transformer
from fut.trial import run_trial
from tests.fut.conftest import KHOP, TRAINING

SOURCE = {"task": KHOP, "training": TRAINING, "learning_rate": 0.001}
DYCK = {"name": "dyck", "max_length": 12, "train_size": 200, "val_size": 100, "test_size": 100}


@pytest.fixture
def reprogrammed(trial):
    """A trial of dyck on the weights of one of khop; keywords replace its fields."""

    def make(**fields) -> TrialConfig:
        return trial(**{"task": DYCK, "backbone": {"kind": "pretrained"}, "source": SOURCE, **fields})

    return make


def test_the_source_is_the_trained_trial_of_that_task_shape_components_and_seed(reprogrammed, trial) -> None:
    source = reprogrammed(seed=3).source_trial
    assert source == trial(backbone={"kind": "trained"}, learning_rate=0.001, seed=3)
    assert source.trainable == "all"


@pytest.mark.parametrize("components", ["residual+layernorm", "residual+layernorm+mlp"])
def test_the_frozen_weights_are_the_sources_and_the_program_is_new(reprogrammed, folders, components) -> None:
    config = reprogrammed(components=components)
    left = folders["program"].with_name("source.safetensors")
    run_trial(config.source_trial, **{**folders, "program": left})
    before = left.read_bytes()
    record = run_trial(config, **folders, programs=lambda trial: left)
    weights, _ = load_arrays(left)
    frozen = {name.removeprefix("attention."): array for name, array in weights.items()}
    program, card = load_arrays(folders["program"])
    assert set(program) == {"token_embedding", "position_embedding", "unembedding"}
    assert program["unembedding"].shape == (16, 2)  # of dyck; khop's has 4 columns
    names = ["query", "key", "value", "output", *(["mlp_in", "mlp_out"] if "mlp" in components else [])]
    assert record["result"]["frozen_parameters"] == sum(frozen[name].size for name in names)
    drawn = build(config.source_trial.recipe).arrays
    assert all((frozen[name] != drawn[name]).any() for name in names)  # training moved them
    assert record["recipe"]["source"] == config.source_trial.id and card["trial"] == config.id
    assert left.read_bytes() == before


def test_the_machine_computes_with_what_the_source_learned(reprogrammed, folders) -> None:
    """Given the source's own program too, it answers as the source does."""
    config = reprogrammed(task=KHOP)
    left = folders["program"].with_name("source.safetensors")
    run_trial(config.source_trial, **{**folders, "program": left})
    weights, _ = load_arrays(left)
    run_trial(config, **folders, programs=lambda trial: left)
    source = Transformer(config.source_trial, build(config.source_trial.recipe))
    machine = Transformer(config, read(config.recipe, left))
    tokens = torch.from_numpy(np.random.default_rng(0).integers(0, 4, (5, 8)))
    with torch.no_grad():
        for model in (source, machine):
            for name, parameter in model.named_parameters():
                parameter.copy_(torch.from_numpy(weights[name]))
        torch.testing.assert_close(machine(tokens), source(tokens), rtol=0, atol=0)


def test_a_source_without_a_program_another_ones_or_a_damaged_one_is_refused(reprogrammed, folders) -> None:
    config, left = reprogrammed(), folders["program"].with_name("source.safetensors")
    name = config.source_trial.id[:12]
    with pytest.raises(SourceMissing, match=name):
        run_trial(config, **folders)
    with pytest.raises(SourceMissing, match=f"{name} has left no program"):
        run_trial(config, **folders, programs=lambda trial: left)
    run_trial(reprogrammed(seed=1).source_trial, **{**folders, "program": left})
    with pytest.raises(SourceMissing, match=f"not the program of the source {name}"):
        run_trial(config, **folders, programs=lambda trial: left)
    Path(left).write_bytes(b"damaged")
    with pytest.raises(SourceMissing, match=f"run the source {name} again"):
        run_trial(config, **folders, programs=lambda trial: left)


def test_what_the_source_is_decides_the_name(reprogrammed) -> None:
    changed = [
        {},
        {"source": {**SOURCE, "learning_rate": 0.002}},
        {"source": {**SOURCE, "task": {**KHOP, "hops": 2}}},
        {"source": {**SOURCE, "training": {**TRAINING, "steps": 40}}},
        {"source": {**SOURCE, "backbone": {"kind": "trained", "qk_gain": 2.0}}},
    ]
    trials = [reprogrammed(**fields) for fields in changed]
    assert len({trial.id for trial in trials}) == len({trial.recipe.id for trial in trials}) == len(changed)


@pytest.mark.parametrize(
    "fields, says",
    [
        ({"source": None}, "source: goes with backbone kind 'pretrained', which needs one"),
        ({"backbone": {"kind": "random"}}, "source: goes with backbone kind 'pretrained'"),
        ({"backbone": {"kind": "pretrained", "qk_dim": 4}}, "qk_dim: is the source's own: give it there"),
        ({"backbone": {"kind": "pretrained", "mlp_gain": 0.5}}, "source.backbone.mlp_gain"),
        ({"backbone": {"kind": "pretrained", "value_gain": 0.5}}, "Extra"),
        ({"trainable": "embedding"}, "no unembedding for this task"),
        ({"trainable": "all"}, "goes with backbone kind 'trained'"),
        ({"source": {**SOURCE, "task": {**KHOP, "hops": 9}}}, "source: task: length: fewer than 1%"),
        ({"source": {"task": KHOP}}, "learning_rate"),
        ({"source": {**SOURCE, "backbone": {"kind": "random"}}}, "trained"),
        ({"heads": 3}, "source: backbone: "),
    ],
)
def test_impossible_sources_are_refused(reprogrammed, fields, says) -> None:
    with pytest.raises(ValidationError, match=says):
        reprogrammed(**fields)
