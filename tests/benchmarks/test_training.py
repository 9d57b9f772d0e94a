"""The stopwatch measures the steps that a trial takes, and both loops take the same ones."""

import pytest
import torch

from benchmarks.training import by_bare_loop, by_trainer, examples_of, reduced, shortened
from fut.backbones import build
from fut.config import TrialConfig
from fut.transformer import Transformer

TRIAL = TrialConfig.model_validate(
    {
        "task": {"name": "khop", "length": 8, "train_size": 300},
        "backbone": {"kind": "random"},
        "heads": 1,
        "layers": 1,
        "width": 8,
        "learning_rate": 0.01,
        "seed": 0,
    }
)


def test_a_shortened_trial_is_one_epoch_of_the_same_steps() -> None:
    short = shortened(TRIAL, 20)
    assert short.training.steps == short.training.steps_per_epoch == 20
    assert short.training.batch_size == TRIAL.training.batch_size and short.recipe == TRIAL.recipe


def test_a_reduced_trial_has_as_many_sequences_in_each_split() -> None:
    splits = examples_of(reduced(TRIAL, 130))
    assert {name: len(split.inputs) for name, split in splits.items()} == {"train": 130, "val": 130, "test": 130}


def test_the_bare_loop_and_the_trainer_take_the_same_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Transformer] = []

    def model(*arguments: object) -> Transformer:
        made.append(Transformer(*arguments))
        return made[-1]

    monkeypatch.setattr("benchmarks.training.Transformer", model)
    config = shortened(reduced(TRIAL, 130), 12)
    examples = examples_of(config)
    bare, timed = by_bare_loop(config, examples), by_trainer(config, examples)
    assert len(bare) == len(timed.starts) == 12
    assert timed.evaluation > 0 and timed.test > 0
    untrained = Transformer(config, build(config.recipe))
    for name, trained in made[0].program().items():
        assert torch.equal(trained, made[1].program()[name])
        assert not torch.equal(trained, untrained.program()[name])
