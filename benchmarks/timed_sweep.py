"""A real sweep that notes when what happens: `python -m benchmarks.timed_sweep STUDY --params FILE`.

It runs `pipeline.sweep`, and notes in the folder that `FUT_BENCH_NOTES` names, a file a process, when imports were done
and when each trial began and ended in its worker.
"""

import json
import os
from pathlib import Path
from time import time
from typing import Any
from unittest import mock

IMPORTING = time()

from pipeline import worker  # noqa: E402  (a worker's imports are measured)

IMPORTED = time()
FOLDER = "FUT_BENCH_NOTES"


def note(**values: Any) -> None:
    """Note some values and the process that they come from."""
    values["process"] = os.getpid()
    with (Path(os.environ[FOLDER]) / f"{os.getpid()}.jsonl").open("a") as file:
        file.write(json.dumps(values) + "\n")


def notes(folder: Path) -> list[dict[str, Any]]:
    """What all processes have noted."""
    return [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]


def trainable(point: dict[str, int], **given: Any) -> None:
    """The sweep's own function, under a stopwatch."""
    began = time()
    inner: dict[str, float] = {}
    run_trial = worker.run_trial

    def timed(*arguments: Any) -> dict[str, Any]:
        start = time()
        record = run_trial(*arguments)
        inner.update(run=time() - start, training=record["result"]["train_seconds"])
        return record

    with mock.patch.object(worker, "run_trial", timed):
        worker.trainable(point, **given)
    note(what="trial", began=began, ended=time(), imports=IMPORTED - IMPORTING, **inner)


def main() -> None:
    """Run a sweep with the function above in the place of its own."""
    import typer

    from pipeline import sweep

    note(what="driver", imported=time())
    with mock.patch.object(sweep, "trainable", trainable):
        typer.run(sweep.main)


if __name__ == "__main__":
    from benchmarks import timed_sweep  # under this name workers import it, and find what it measures

    timed_sweep.main()
