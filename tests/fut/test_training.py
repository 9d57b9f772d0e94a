"""The training loop: what moves, in which order batches come, and when it ends."""

import math
from collections.abc import Iterable
from itertools import chain

import numpy as np
import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from fut.backbones import build
from fut.tasks.base import Examples
from fut.training import EVALUATION_BATCH, Batch, InOrder, ProgramTraining, Shuffled, learning_rate_factor, train
from fut.transformer import Transformer


def prepared(config):
    model = Transformer(config, build(config.recipe))
    return model, config.task.examples(config.task.generate(), config.heads, config.layers, config.seed)


def shuffled(size: int, batch_size: int, batches: int, seed: int = 0) -> Shuffled:
    """Over examples whose inputs are their numbers, and whose labels are these a hundred higher."""
    return Shuffled(Examples(torch.arange(size), 100 + torch.arange(size)), batch_size, batches, seed)


def rows(batches: Iterable[Batch]) -> list[list[int]]:
    return [inputs.tolist() for inputs, _ in batches]


def test_batches_are_whole_passes_in_an_order_of_the_seed() -> None:
    order = shuffled(10, 3, 4)
    epochs = [rows(order) for _ in range(3)]
    assert len(order) == 4 and all(len(epoch) == 4 for epoch in epochs)
    batches = list(chain(*epochs))
    passes = [list(chain(*batches[start : start + 3])) for start in range(0, 12, 3)]  # nine of ten rows a pass
    assert all(len(set(each)) == 9 and set(each) <= set(range(10)) for each in passes)
    assert len({tuple(each) for each in passes}) == 4
    assert rows(shuffled(10, 3, 12)) == batches
    assert rows(shuffled(10, 3, 12, seed=1)) != batches


def test_a_batch_larger_than_the_split_is_the_split() -> None:
    assert sorted(rows(shuffled(5, 64, 1))[0]) == [0, 1, 2, 3, 4]


def test_labels_stay_with_their_inputs() -> None:
    for batches in (shuffled(10, 3, 4), InOrder(shuffled(1_001, 1, 1).examples)):
        assert all(labels.tolist() == [100 + number for number in inputs.tolist()] for inputs, labels in batches)


def test_an_evaluation_sees_every_example_once_and_InOrder() -> None:
    batches = rows(InOrder(shuffled(1_001, 1, 1).examples))
    assert list(chain(*batches)) == list(range(1_001)) and max(map(len, batches)) <= EVALUATION_BATCH


@pytest.mark.parametrize(
    "trainable, kind", [("program", "random"), ("embedding", "random"), ("unembedding", "sparse"), ("all", "trained")]
)
def test_what_trains_moves_and_nothing_else(trial, trainable, kind) -> None:
    config = trial(trainable=trainable, backbone={"kind": kind}, components="residual+layernorm+mlp", width=20)
    model, examples = prepared(config)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    frozen = model.frozen_digest()
    train(config, model, examples)
    moved = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert moved == {name for name, _ in model.named_parameters()}
    assert model.frozen_digest() == frozen


def test_the_optimiser_has_seen_exactly_the_parameters(trial) -> None:
    model, _ = prepared(trial())
    optimizer = ProgramTraining(trial(), model, print).configure_optimizers()
    seen = {id(tensor) for group in optimizer.param_groups for tensor in group["params"]}
    assert seen == {id(model.token_embedding), id(model.position_embedding), id(model.unembedding)}


def test_the_learning_rate_really_changes_at_every_step(trial) -> None:
    """A schedule under a wrong key would be ignored without an error."""
    config = trial()
    model, examples = prepared(config)
    used = []

    def watch(optimizer, args, kwargs):
        used.append(optimizer.param_groups[0]["lr"])

    handle = register_optimizer_step_pre_hook(watch)
    try:
        train(config, model, examples)
    finally:
        handle.remove()
    assert used == pytest.approx([0.01 * learning_rate_factor(step, config.training) for step in range(20)])


def test_one_row_an_epoch(trial) -> None:
    model, examples = prepared(trial())
    rows = []
    outcome = train(trial(), model, examples, on_epoch=rows.append)
    assert rows == outcome.epochs
    assert [(row["epoch"], row["step"]) for row in rows] == [(1, 10), (2, 20)]
    assert outcome.stop_reason == "budget"
    assert rows[-1]["val_accuracy"] == outcome.val["accuracy"]


def test_metrics_are_those_of_the_whole_split(trial) -> None:
    config = trial()
    model, examples = prepared(config)
    outcome = train(config, model, examples)
    with torch.no_grad():
        answers = model(examples["test"].inputs).argmax(-1)
    right = total = 0
    for given, wanted in zip(answers.flatten().tolist(), examples["test"].labels.flatten().tolist(), strict=True):
        if wanted >= 0:
            right, total = right + (given == wanted), total + 1
    assert outcome.test["accuracy"] == pytest.approx(right / total)


def scripted(trial, monkeypatch, metrics, losses=None, task="khop"):
    """Train with metrics (and training losses) that a script dictates; returns the outcome."""
    config = trial(training={"steps": 60, "batch_size": 16, "steps_per_epoch": 10, "warmup_steps": 0})
    model, examples = prepared(config)
    script = iter(metrics)
    monkeypatch.setattr(ProgramTraining, "_measure", lambda self: (1.0, {"accuracy": next(script)}))
    if losses:
        monkeypatch.setattr(
            type(config.task), "loss", lambda self, outputs, labels: outputs.sum() * 0 + losses(outputs)
        )
    return train(config, model, examples)


@pytest.mark.parametrize(
    "metrics, epochs, reason",
    [
        ([0.999, 0.5, 0.999, 0.5, 0.999, 0.5, 0], 6, "budget"),  # never twice running
        ([0.5, 0.999, 1.0, 0], 3, "solved"),
        ([0.999, 0.999, 0], 2, "solved"),
        ([0.998, 0.998, 0.998, 0.998, 0.998, 0.998, 0], 6, "budget"),
    ],
)
def test_early_stop_needs_the_bound_twice_running(trial, monkeypatch, metrics, epochs, reason) -> None:
    outcome = scripted(trial, monkeypatch, metrics)
    assert (len(outcome.epochs), outcome.stop_reason) == (epochs, reason)


def test_a_loss_that_is_not_finite_ends_the_trial_as_a_result(trial, monkeypatch) -> None:
    outcome = scripted(trial, monkeypatch, [0.5] * 7, losses=lambda outputs: math.nan)
    assert (outcome.stop_reason, len(outcome.epochs)) == ("diverged", 1)
    assert outcome.epochs[0]["train_loss"] is None and "not finite" in outcome.stop_detail


def test_a_loss_ten_times_the_first_ends_the_trial(trial, monkeypatch) -> None:
    steps = iter([1.0] * 10 + [9.0] * 10 + [11.0] * 40)
    outcome = scripted(trial, monkeypatch, [0.5] * 7, losses=lambda outputs: next(steps))
    assert (outcome.stop_reason, len(outcome.epochs)) == ("diverged", 3)


def test_training_learns(trial) -> None:
    """Labels that repeat the tokens are learned by any backbone with residual connections."""
    config = trial(training={"steps": 200, "batch_size": 16, "steps_per_epoch": 50, "warmup_steps": 5})
    model, examples = prepared(config)
    copied = {split: Examples(e.inputs, e.inputs.clone()) for split, e in examples.items()}
    assert train(config, model, copied).test["accuracy"] > 0.95


def test_a_trial_outside_slurm_is_not_run_as_a_part_of_it(trial, monkeypatch) -> None:
    for name, value in {
        "SLURM_NTASKS": "4",
        "SLURM_JOB_NAME": "job",
        "SLURM_PROCID": "1",
        "SLURM_LOCALID": "1",
        "SLURM_NODEID": "0",
        "SLURM_NODELIST": "a,b",
    }.items():
        monkeypatch.setenv(name, value)
    model, examples = prepared(trial())
    assert len(train(trial(), model, examples).epochs) == 2


def test_simulate_reports_nmse(trial) -> None:
    config = trial(
        task={"name": "simulate", "target_dim": 2, "train_size": 100, "val_size": 50, "test_size": 50},
        components="attention",
        heads=1,
        layers=1,
    )
    model, examples = prepared(config)
    outcome = train(config, model, examples)
    with torch.no_grad():
        outputs = model(examples["test"].inputs).numpy().astype("f8")
    labels = examples["test"].labels.numpy().astype("f8")
    assert outcome.test["nmse"] == pytest.approx(((outputs - labels) ** 2).mean() / np.var(labels), rel=1e-4)
