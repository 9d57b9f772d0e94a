"""The only training loop: a Lightning module and data module in which exactly a trial's trainable tensors train.

One epoch is `steps_per_epoch` optimiser steps followed by an evaluation on the validation split.
"""

import logging
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.environments import LightningEnvironment
from torch import Tensor

from fut.config import TrialConfig
from fut.seeds import generator
from fut.tasks.base import Examples, Task
from fut.training_plan import Training
from fut.transformer import Transformer

EVALUATION_BATCH = 250  # sequences; more at a time leave the processor's cache and are slower
DIVERGED_ABOVE = 10.0  # times the mean training loss of the first epoch
FINAL_LEARNING_RATE = 0.05  # of the peak, where the cosine ends

Batch = tuple[Tensor, Tensor]  # inputs and labels, B sequences each
Epoch = dict[str, float | int | None]
StopReason = Literal["budget", "solved", "diverged", "compiled"]


@dataclass
class Outcome:
    """What training found."""

    epochs: list[Epoch] = field(default_factory=list)
    stop_reason: StopReason = "budget"
    stop_detail: str = ""
    train_seconds: float = 0.0
    val: dict[str, float | None] = field(default_factory=dict)
    test: dict[str, float | None] = field(default_factory=dict)


def learning_rate_factor(step: int, training: Training) -> float:
    """The learning rate after `step` steps over its peak: linear warm-up, then a cosine to 5 %.

    >>> plan = Training(steps=300, warmup_steps=100)
    >>> [round(learning_rate_factor(step, plan), 3) for step in (0, 49, 99, 200, 300)]
    [0.01, 0.5, 1.0, 0.525, 0.05]
    """
    if step < training.warmup_steps:
        return (step + 1) / training.warmup_steps
    progress = (step - training.warmup_steps) / max(1, training.steps - training.warmup_steps)
    return FINAL_LEARNING_RATE + (1 - FINAL_LEARNING_RATE) * (1 + math.cos(math.pi * min(1.0, progress))) / 2


class Shuffled:
    """The batches of an epoch: one shuffled pass over a split after another, cut into epochs of fixed length.

    An iterable is all that Lightning asks for; torch's `DataLoader` would take a tenth of a millisecond a step.
    """

    def __init__(self, examples: Examples, batch_size: int, batches: int, seed: int) -> None:
        self.examples, self.batches = examples, batches
        size = len(examples.inputs)
        self.orders = self._endless(size, min(batch_size, size), seed)

    @staticmethod
    def _endless(size: int, batch_size: int, seed: int) -> Iterator[Tensor]:
        draw = generator(seed, "batches")
        while True:
            order = torch.from_numpy(draw.permutation(size))
            yield from order[: size - size % batch_size].split(batch_size)

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[Batch]:
        for _ in range(self.batches):
            rows = next(self.orders)
            yield self.examples.inputs[rows], self.examples.labels[rows]


class InOrder:
    """A split in chunks, for its evaluation; no list, which Lightning would take for many loaders."""

    def __init__(self, examples: Examples) -> None:
        chunks = zip(examples.inputs.split(EVALUATION_BATCH), examples.labels.split(EVALUATION_BATCH), strict=True)
        self.chunks: list[Batch] = list(chunks)

    def __len__(self) -> int:
        return len(self.chunks)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.chunks)


class TrialData(pl.LightningDataModule):
    """The three splits of a trial, batched."""

    def __init__(self, examples: dict[str, Examples], training: Training, seed: int) -> None:
        super().__init__()
        self.train = Shuffled(examples["train"], training.batch_size, training.steps_per_epoch, seed)
        self.val, self.test = InOrder(examples["val"]), InOrder(examples["test"])

    def train_dataloader(self) -> Shuffled:
        """Batches of the training split in the order of the seed's stream."""
        return self.train

    def val_dataloader(self) -> InOrder:
        """The validation split in order."""
        return self.val

    def test_dataloader(self) -> InOrder:
        """The test split in order."""
        return self.test


class ProgramTraining(pl.LightningModule):
    """Trains what the transformer holds as parameters; the frozen rest it cannot reach.

    The optimiser is stepped here and not by Lightning, whose own way to do it takes some tenths of a millisecond more.
    """

    def __init__(self, config: TrialConfig, model: Transformer, on_epoch: Callable[[Epoch], None]) -> None:
        super().__init__()
        assert config.learning_rate is not None  # as of every trial that trains
        self.automatic_optimization = False
        self.task: Task = config.task
        self.training_plan, self.learning_rate = config.training, config.learning_rate
        self.model, self.on_epoch = model, on_epoch
        self.outcome, self.steps = Outcome(), 0
        self.from_scratch = config.init == "random"  # else the first epoch may be good beyond comparison
        bound = config.training.solved_at
        self.solved_at = config.task.solved_at if bound is None else bound
        self._losses: list[Tensor] = []
        self._outputs: list[Tensor] = []
        self._labels: list[Tensor] = []
        self._times_solved = 0

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW over the trainable tensors."""
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=self.learning_rate,
            betas=(0.9, 0.98),
            weight_decay=self.training_plan.weight_decay,
            fused=True,
        )
        return self.optimizer

    def on_fit_start(self) -> None:
        """Start the clock."""
        self._started = time.perf_counter()

    def training_step(self, batch: Batch, index: int) -> None:
        """One step of the optimiser on the loss of one batch, at the learning rate of that step."""
        inputs, labels = batch
        loss = self.task.loss(self.model(inputs), labels)
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate_at(self.steps)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.steps += 1
        self._losses.append(loss.detach())  # self.log would cost more than a small step's arithmetic

    def _rate_at(self, step: int) -> float:
        return self.learning_rate * learning_rate_factor(step, self.training_plan)

    def validation_step(self, batch: Batch, index: int) -> None:
        """Collect the outputs of one chunk: metrics are over the whole split."""
        self._outputs.append(self.model(batch[0]))
        self._labels.append(batch[1])

    test_step = validation_step

    def _measure(self) -> tuple[float, dict[str, float | None]]:
        outputs, labels = torch.cat(self._outputs), torch.cat(self._labels)
        self._outputs, self._labels = [], []
        metrics = self.task.measure(outputs, labels)
        return float(self.task.loss(outputs, labels)), _finite_ones(metrics)

    def on_validation_epoch_end(self) -> None:
        """Write the epoch's row and decide whether to go on."""
        val_loss, metrics = self._measure()
        train_loss = float(torch.stack(self._losses).mean())
        self._losses = []
        self.outcome.val = metrics
        row: Epoch = {
            "epoch": self.current_epoch + 1,
            "step": self.steps,
            "learning_rate": self._rate_at(self.steps - 1),
            "train_loss": _finite(train_loss),
            "val_loss": _finite(val_loss),
            "val_accuracy": metrics.get("accuracy"),
            "val_nmse": metrics.get("nmse"),
            "seconds": time.perf_counter() - self._started,
        }
        self.outcome.epochs.append(row)
        self._stop_if_done(train_loss, metrics[self.task.metric])
        self.on_epoch(row)

    def _stop_if_done(self, train_loss: float, metric: float | None) -> None:
        first = self.outcome.epochs[0]["train_loss"]
        if not math.isfinite(train_loss):
            self._stop("diverged", f"training loss not finite in epoch {self.current_epoch + 1}")
        elif self.from_scratch and first is not None and train_loss > DIVERGED_ABOVE * first:
            self._stop("diverged", f"training loss {train_loss:.3g}, the first epoch's was {first:.3g}")
        better = metric is not None and (
            metric >= self.solved_at if self.task.higher_is_better else metric <= self.solved_at
        )
        self._times_solved = self._times_solved + 1 if better else 0
        if self._times_solved == 2:
            self._stop("solved", f"validation {self.task.metric} at {self.solved_at:g} or better twice running")

    def _stop(self, reason: StopReason, detail: str) -> None:
        self.outcome.stop_reason, self.outcome.stop_detail = reason, detail
        self.trainer.should_stop = True

    def on_test_epoch_end(self) -> None:
        """Keep the test metrics."""
        _, self.outcome.test = self._measure()


def train(
    config: TrialConfig,
    model: Transformer,
    examples: dict[str, Examples],
    gpus: float = 0,
    on_epoch: Callable[[Epoch], None] = lambda row: None,
) -> Outcome:
    """Train a model as a trial says, measure it on validation after each epoch and once, at the end, on test.

    Args:
        config: the trial.
        model: the transformer; its parameters are changed in place.
        examples: the splits ``train``, ``val`` and ``test``.
        gpus: 0 trains on the CPU; anything above trains on the GPU that the process sees first.
        on_epoch: called with each epoch's row.
    """
    _quiet()
    module = ProgramTraining(config, model, on_epoch)
    data = TrialData(examples, config.training, config.seed)
    trainer = pl.Trainer(
        accelerator="gpu" if gpus else "cpu",
        devices=1,
        strategy="auto",
        plugins=[LightningEnvironment()],
        max_epochs=config.training.steps // config.training.steps_per_epoch,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    started = time.perf_counter()
    trainer.fit(module, datamodule=data)
    module.outcome.train_seconds = time.perf_counter() - started
    trainer.test(module, datamodule=data, verbose=False)
    return module.outcome


def measure(config: TrialConfig, model: Transformer, examples: dict[str, Examples], detail: str) -> Outcome:
    """Measure a compiled program as it is, on validation and on test, in the model's precision.

    Args:
        config: the trial.
        model: the transformer with the program; its inputs are vectors.
        examples: the splits.
        detail: what to say of the program.
    """
    started, precision = time.perf_counter(), next(model.parameters()).dtype
    found = {}
    with torch.inference_mode():
        for split in ("val", "test"):
            outputs = torch.cat([model(inputs.to(precision)) for inputs, _ in InOrder(examples[split])])
            metrics = config.task.measure(outputs, examples[split].labels)
            found[split] = _finite_ones(metrics)
    seconds = time.perf_counter() - started
    return Outcome([], "compiled", detail, seconds, found["val"], found["test"])


def _finite_ones(metrics: Mapping[str, float | None]) -> dict[str, float | None]:
    return {name: None if value is None else _finite(value) for name, value in metrics.items()}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _quiet() -> None:
    """Silence what Lightning says of every run: devices found, steps not logged."""
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="pytorch_lightning")
