"""How fast the generators are, on one core: `python benchmarks/generators.py`.

Prints sequences a second, the best of five runs.  "drawn" is the strings and their answers; "dataset" is the whole of
`generate`: every split filled by the sequences' hashes, rows encoded and shuffled.
"""

from collections.abc import Callable
from functools import partial
from time import perf_counter

import numpy as np

from fut.tasks.base import Task
from fut.tasks.dyck import DRAWS, Dyck
from fut.tasks.khop import Khop, draw_strings, hop_targets
from fut.tasks.simulate import Simulate

COUNT = 20_000
RUNS = 5


def main() -> None:
    """Prints a line for each generator."""
    for length in (32, 98):
        report(f"khop, k = 4, alphabet 4, n = {length}, drawn", COUNT, partial(khop, length))
    parentheses = Dyck(min_length=12, max_length=60)
    report("dyck, lengths 12 to 60, drawn", COUNT, partial(dyck, parentheses))
    for kind, draw in DRAWS.items():
        report(f"dyck, length 60, {kind}, drawn", COUNT, partial(draw, np.random.default_rng(0), COUNT, 60))
    tasks: dict[str, Task] = {
        "khop, k = 4, alphabet 4, n = 32": Khop(hops=4, length=32),
        "khop, k = 4, alphabet 4, n = 98": Khop(hops=4, length=98),
        "dyck, lengths 12 to 60": parentheses,
        "simulate, d = 2, n = 10": Simulate(),
    }
    for name, task in tasks.items():
        report(f"{name}, dataset", sum(task.sizes.values()), task.generate)


def khop(length: int) -> None:
    """Strings and answers after four hops."""
    hop_targets(draw_strings(np.random.default_rng(0), COUNT, length, 4), 4)


def dyck(task: Dyck) -> None:
    """Positives and negatives in the task's shares, all lengths alike."""
    rng = np.random.default_rng(0)
    for kind, counts in task.plan(COUNT).items():
        for length, count in zip(task.lengths, counts, strict=True):
            DRAWS[kind](rng, int(count), length)


def report(what: str, sequences: int, work: Callable[[], object]) -> None:
    """Times a piece of work and prints its rate."""
    seconds = []
    for _ in range(RUNS):
        start = perf_counter()
        work()
        seconds.append(perf_counter() - start)
    print(f"{what:50s} {sequences / min(seconds):12,.0f} sequences/s")


if __name__ == "__main__":
    main()
