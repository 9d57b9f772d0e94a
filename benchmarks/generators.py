"""Subject `generators`: sequences a second on one core, beside a plain loop that draws the same.

"Drawn" is the strings and their answers; "dataset" is the whole of `generate`, every split filled by the sequences'
hashes, rows encoded and shuffled, and, for `simulate`, the labels of a trial's target.
"""

import random
import statistics
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import NamedTuple

import numpy as np
import torch

from benchmarks import plain
from benchmarks.figures import Figure
from benchmarks.terminal import say
from fut.tasks.base import Task
from fut.tasks.dyck import DRAWS, Dyck
from fut.tasks.khop import Khop, draw_strings, hop_targets
from fut.tasks.simulate import Simulate

ABOUT = "sequences that the generators make on one core, beside a plain loop"
COUNT = 20_000
PLAIN_COUNT = 300  # sequences of a plain loop's run
RUNS = 5
PARENTHESES = Dyck(min_length=12, max_length=60)
HOPS = 4
TARGET = Simulate(target_dim=4, train_size=COUNT)
HEADS = LAYERS = 2  # of the target


class Subject(NamedTuple):
    """A generator, how many sequences a run of it makes, and what a plain loop does for as many as it is told."""

    name: str
    sequences: int
    work: Callable[[], object]
    plain: Callable[[int], object] | None = None


def subjects() -> list[Subject]:
    """What is timed."""
    found = [
        Subject(f"khop k={HOPS}, n = {length}, drawn", COUNT, partial(khop, length), partial(plain_khop, length))
        for length in (32, 98)
    ]
    found.append(Subject("dyck, lengths 12 to 60, drawn", COUNT, dyck, plain_dyck))
    found += [
        Subject(
            f"dyck, length 60, {kind.replace('_', ' ')}, drawn",
            COUNT,
            partial(draw, np.random.default_rng(0), COUNT, 60),
            partial(plain_words, kind),
        )
        for kind, draw in DRAWS.items()
    ]
    inputs = TARGET.generate()
    found.append(
        Subject(
            f"simulate d=4 H{HEADS} L{LAYERS}, n = 10, labels",
            sum(TARGET.sizes.values()),
            lambda: TARGET.examples(inputs, HEADS, LAYERS, seed=0),
            partial(plain_labels, inputs["train/inputs"]),
        )
    )
    tasks: dict[str, Task] = {
        f"khop k={HOPS}, n = 32": Khop(hops=HOPS, length=32),
        f"khop k={HOPS}, n = 98": Khop(hops=HOPS, length=98),
        "dyck, lengths 12 to 60": PARENTHESES,
        "simulate d=4, n = 10": TARGET,
    }
    return found + [
        Subject(f"{name}, dataset", sum(task.sizes.values()), task.generate) for name, task in tasks.items()
    ]


def measure() -> list[Figure]:
    """Rates of generators and plain loops, and how often the second goes into the first."""
    torch.set_num_threads(1)
    figures = []
    for name, sequences, work, plain_work in subjects():
        say(name)
        rates = _rates(work, sequences)
        figures.append(Figure(row=name, column="generator", unit="sequences/s", samples=rates, better="higher"))
        if plain_work:
            plain_rates = _rates(partial(plain_work, PLAIN_COUNT), PLAIN_COUNT)
            times = [rate / statistics.median(plain_rates) for rate in rates]
            figures += [
                Figure(row=name, column="plain loop", unit="sequences/s", samples=plain_rates),
                Figure(row=name, column="times as fast", unit="", samples=times),
            ]
    return figures


def _rates(work: Callable[[], object], sequences: int) -> list[float]:
    rates = []
    for _ in range(RUNS):
        start = perf_counter()
        work()
        rates.append(sequences / (perf_counter() - start))
    return rates


def khop(length: int) -> None:
    """Strings and their answers."""
    hop_targets(draw_strings(np.random.default_rng(0), COUNT, length, 4), HOPS)


def dyck() -> None:
    """Positives and negatives in the task's shares, all lengths alike."""
    rng = np.random.default_rng(0)
    for kind, counts in PARENTHESES.plan(COUNT).items():
        for length, count in zip(PARENTHESES.lengths, counts, strict=True):
            DRAWS[kind](rng, int(count), length)


def plain_khop(length: int, count: int) -> None:
    """`khop` by plain loops."""
    draw = random.Random(0)
    for _ in range(count):
        plain.khop_answers(plain.khop_string(draw, length, 4), HOPS)


def plain_dyck(count: int) -> None:
    """`dyck` by plain loops."""
    draw = random.Random(0)
    for kind, counts in PARENTHESES.plan(count).items():
        for length, number in zip(PARENTHESES.lengths, counts, strict=True):
            for _ in range(number):
                plain.WORDS[kind](draw, length)


def plain_words(kind: str, count: int) -> None:
    """Words of one kind by plain loops."""
    draw = random.Random(0)
    for _ in range(count):
        plain.WORDS[kind](draw, 60)


def plain_labels(inputs: np.ndarray, count: int) -> None:
    """Labels of a target by plain loops."""
    target = TARGET.draw_target(HEADS, LAYERS, seed=0)
    for sequence in inputs[:count]:
        plain.target_outputs(target, sequence)
