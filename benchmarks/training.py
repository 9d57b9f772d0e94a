"""Training under a stopwatch: the real `fut.training.train` beside a bare loop, over the same batches.

Five rounds go over all shapes in turn, so that a minute in which the machine is slow touches all of them.  In each,
every shape trains twice from the same start: in a loop of a few lines, and by the Trainer.
"""

import statistics
from collections import defaultdict
from functools import cache
from itertools import pairwise
from time import perf_counter
from typing import Any, NamedTuple
from unittest import mock

import torch

import fut.training
from benchmarks.shapes import SHAPES
from benchmarks.terminal import say
from fut.backbones import build
from fut.config import TrialConfig
from fut.tasks.base import Examples
from fut.training import ProgramTraining, TrialData, learning_rate_factor, train
from fut.transformer import Transformer

THREADS = 1  # of a trial, as `cpus_per_trial` has it by default
ROUNDS = 5
STEPS = 40
WARM_UP = 10  # steps that are not counted
PRODUCT_SIZE = 1024  # of the square matrices whose product gives the machine's rate
PRODUCTS = 8  # a round


class Round(NamedTuple):
    """What one shape took in one round, in seconds."""

    bare: float  # a step of the bare loop, the median
    step: float  # a step of the Trainer, the median
    evaluation: float  # the end of an epoch: the evaluation on validation and all around it
    test: float  # the evaluation on test
    rate: float  # floating-point operations a second in a product of matrices, in this round


class Timed(ProgramTraining):
    """The real module, noting the time in hooks that the Trainer calls anyway."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.starts: list[float] = []

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """A batch has been fetched and its step begins."""
        self.starts.append(perf_counter())

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """The step is done."""
        self.stepped = perf_counter()

    def on_train_epoch_end(self) -> None:
        """The evaluation on validation is done too."""
        self.evaluation = perf_counter() - self.stepped

    def on_test_start(self) -> None:
        """The evaluation on test begins."""
        self.tested = perf_counter()

    def on_test_end(self) -> None:
        """The evaluation on test is done."""
        self.test = perf_counter() - self.tested


def by_trainer(config: TrialConfig, examples: dict[str, Examples]) -> Timed:
    """Train as a trial does, under a stopwatch."""
    made: list[Timed] = []

    def timed(*arguments: Any) -> Timed:
        made.append(Timed(*arguments))
        return made[0]

    with mock.patch.object(fut.training, "ProgramTraining", timed):
        train(config, Transformer(config, build(config.recipe)), examples)
    return made[0]


def by_bare_loop(config: TrialConfig, examples: dict[str, Examples]) -> list[float]:
    """Train with the same optimiser and schedule on the same batches, and nothing else; seconds of each step."""
    model = Transformer(config, build(config.recipe))
    module = ProgramTraining(config, model, lambda row: None)
    optimizer = module.configure_optimizers()
    losses: list[torch.Tensor] = []
    starts = [perf_counter()]
    for step, (inputs, labels) in enumerate(TrialData(examples, config.training, config.seed).train):
        loss = config.task.loss(model(inputs), labels)
        for group in optimizer.param_groups:
            group["lr"] = module.learning_rate * learning_rate_factor(step, config.training)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        starts.append(perf_counter())
    return durations(starts)


def durations(starts: list[float]) -> list[float]:
    """Seconds from each start to the next."""
    return [after - before for before, after in pairwise(starts)]


def product_rate() -> float:
    """Floating-point operations a second in a product of two large float32 matrices, 2 n³ of them each."""
    left, right = (torch.rand(PRODUCT_SIZE, PRODUCT_SIZE) for _ in range(2))
    out = torch.empty(PRODUCT_SIZE, PRODUCT_SIZE)
    torch.mm(left, right, out=out)
    starts = [perf_counter()]
    for _ in range(PRODUCTS):
        torch.mm(left, right, out=out)
        starts.append(perf_counter())
    return 2 * PRODUCT_SIZE**3 / statistics.median(durations(starts))


def shortened(config: TrialConfig, steps: int = STEPS) -> TrialConfig:
    """A trial of one short epoch, the same in all else that a step's time depends on."""
    training = {**config.canonical()["training"], "steps": steps, "steps_per_epoch": steps, "warmup_steps": WARM_UP}
    return TrialConfig.model_validate({**config.canonical(), "training": training})


def reduced(config: TrialConfig, sequences: int) -> TrialConfig:
    """A trial with that many sequences in each split, which alter neither the arithmetic of a step nor its shape."""
    sizes = {f"{split}_size": sequences for split in config.task.sizes}
    return TrialConfig.model_validate({**config.canonical(), "task": {**config.canonical()["task"], **sizes}})


def examples_of(config: TrialConfig) -> dict[str, Examples]:
    """The splits of a trial."""
    return config.task.examples(config.task.generate(), config.heads, config.layers, config.seed)


@cache
def rounds() -> dict[str, list[Round]]:
    """The rounds of every shape, by its name; measured once, however many ask."""
    torch.set_num_threads(THREADS)
    found: dict[str, list[Round]] = defaultdict(list)
    trials = {}
    for shape in SHAPES:
        say(f"the data of {shape.name}")
        trials[shape.name] = shortened(shape.config), examples_of(shape.config)
    for number in range(ROUNDS):
        rate = product_rate()
        for name, (config, examples) in trials.items():
            say(f"round {number + 1} of {ROUNDS}, {name}")
            bare = by_bare_loop(config, examples)
            timed = by_trainer(config, examples)
            found[name].append(
                Round(
                    statistics.median(bare[WARM_UP:]),
                    statistics.median(durations(timed.starts)[WARM_UP:]),
                    timed.evaluation,
                    timed.test,
                    rate,
                )
            )
    return dict(found)
