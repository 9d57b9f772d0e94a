"""Subject `sweep`: how much of a sweep's core-seconds is training, and where the rest goes.

A small sweep of trials like those of the default studies runs as a user runs it.  Its wall time × cores is split
without a remainder:

    imports         interpreters, torch, Lightning, Ray and W&B, in the sweep's process (all cores wait) and its workers
    start           besides, until every core has had its first trial: Ray, its workers, the store, the grid
    training        `train_seconds` of the trials, evaluations on validation included
    around training in a trial: reading data and backbone, the evaluation on test, saving the program
    records         in a trial: writing the record and reading it back, the W&B run
    between trials  cores that wait for their next trial
    tail            cores for which no trial is left, while others still train
    end             from the last trial's end: Ray ends, the store is looked through, the completion file is written
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.figures import Figure
from benchmarks.machine import cores
from benchmarks.process import Ran, run
from benchmarks.terminal import say
from benchmarks.timed_sweep import FOLDER, notes

ABOUT = "a small sweep: how much of its core-seconds is training, and where the rest goes"
PARAMS = """
run: [bench]
wandb: {{project: fut-bench, mode: offline}}
studies:
  bench:
    seeds: {seeds}
    base: {{training: {{steps: 700, solved_at: 2.0}}}}  # no accuracy is that good: each trial takes all its steps
    grid:
      - task: {{name: dyck, max_length: 16}}
        backbone: [{{kind: sparse}}, {{kind: random, value_gain: 0.5}}]
        heads: 2
        layers: 2
        width: 64
      - task: {{name: khop, hops: 1}}
        backbone: [{{kind: sparse}}, {{kind: random, value_gain: 0.5}}]
        components: residual+layernorm
        heads: 1
        layers: 2
        width: 40
"""


class Span(NamedTuple):
    """When a trial was in its worker, in seconds since 1970."""

    began: float
    ended: float


def measure() -> list[Figure]:
    """Each part of a sweep, and what a sweep and a trial cost besides training."""
    count = cores()
    with tempfile.TemporaryDirectory(prefix="fut-bench-") as scratch:
        folder = Path(scratch)
        params, noted = folder / "params.yaml", folder / "notes"
        noted.mkdir()
        params.write_text(PARAMS.format(seeds=list(range(count))))  # four trials a core
        say("the sweep's data and backbones")
        for stage in ("datasets", "backbones"):
            run([sys.executable, "-m", f"pipeline.{stage}", "--params", str(params)], folder)
        say("the sweep")
        command = [sys.executable, "-m", "benchmarks.timed_sweep", "bench", "--params", str(params)]
        ran = run(command, folder, {FOLDER: str(noted)})
        parts = split(ran, notes(noted), count)
        trials = sum(entry["what"] == "trial" for entry in notes(noted))
    whole = count * ran.seconds
    figures = []
    for name, seconds in parts.items():
        better = None if name in ("training", "tail") else "lower"
        figures += [
            Figure(row=name, column="core-seconds", unit="s", samples=[seconds], better=better),
            Figure(row=name, column="share", unit="%", samples=[100 * seconds / whole]),
        ]
    fixed = (parts["imports"] + parts["start"] + parts["end"]) / count
    each = (parts["around training"] + parts["records"] + parts["between trials"]) / trials
    return [
        *figures,
        Figure(row=f"the sweep, {trials} trials", column="core-seconds", unit="s", samples=[whole]),
        Figure(row="a sweep, besides its trials", column="time", unit="s", samples=[fixed], better="lower"),
        Figure(row="a trial, besides its training", column="time", unit="s", samples=[each], better="lower"),
    ]


def split(ran: Ran, noted: list[dict[str, Any]], cores: int) -> dict[str, float]:
    """The core-seconds of a sweep by what they went into; they add up to its wall time × cores.

    Args:
        ran: the sweep's process.
        noted: what `benchmarks.timed_sweep` noted in it.
        cores: of the machine.
    """
    trials = [entry for entry in noted if entry["what"] == "trial"]
    spans = [Span(entry["began"], entry["ended"]) for entry in trials]
    starts = sorted(span.began for span in spans)
    first, last, done = starts[min(cores, len(starts)) - 1], starts[-1], max(span.ended for span in spans)
    (imported,) = (entry["imported"] for entry in noted if entry["what"] == "driver")
    imports = cores * (imported - ran.began) + sum({entry["process"]: entry["imports"] for entry in trials}.values())
    running, training = sum(entry["run"] for entry in trials), sum(entry["training"] for entry in trials)
    return {
        "imports": imports,
        "start": idle(spans, cores, ran.began, first) - imports,
        "training": training,
        "around training": running - training,
        "records": sum(span.ended - span.began for span in spans) - running,
        "between trials": idle(spans, cores, first, last),
        "tail": idle(spans, cores, last, done),
        "end": idle(spans, cores, done, ran.began + ran.seconds),
    }


def idle(spans: Sequence[Span], cores: int, since: float, until: float) -> float:
    """Core-seconds between two times in which a core holds no trial."""
    held = sum(max(0.0, min(span.ended, until) - max(span.began, since)) for span in spans)
    return cores * (until - since) - held
