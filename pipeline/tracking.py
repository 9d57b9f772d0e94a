"""Weights & Biases: every trial logs to a run of its own, offline unless a key or WANDB_MODE says otherwise.

W&B is a window on the sweep, never where numbers are kept: those are in the records.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import wandb

from fut.config import TrialConfig
from fut.training import Epoch


class Tracking(NamedTuple):
    """Where and how runs are logged."""

    project: str
    mode: str  # "online", "offline" or "disabled"
    folder: Path  # absolute


def decide_mode(wanted: str) -> str:
    """The mode of W&B: WANDB_MODE, else what params say, where ``auto`` means online if and only if a key is set.

    Nothing is asked and nothing guessed from files: a key is WANDB_API_KEY in the environment.
    """
    if mode := os.environ.get("WANDB_MODE"):
        return mode
    if wanted != "auto":
        return wanted
    return "online" if os.environ.get("WANDB_API_KEY") else "offline"


def flat(values: dict[str, Any]) -> dict[str, Any]:
    """A trial's configuration with one level of names: the task's and backbone's own join the trial's.

    >>> flat({"task": {"name": "khop", "hops": 1}, "backbone": {"kind": "random"}, "width": 8})
    {'task': 'khop', 'hops': 1, 'backbone': 'random', 'width': 8}
    """
    joined: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            inner = dict(value)
            label = {"task": "name", "backbone": "kind"}.get(name)
            joined |= ({name: inner.pop(label)} if label else {}) | inner
        else:
            joined[name] = value
    return joined


class TrackedRun:
    """One W&B run."""

    def __init__(self, run: "wandb.Run") -> None:
        self.run = run
        run.define_metric("*", step_metric="epoch")

    def log_epoch(self, row: Epoch) -> None:
        """Log an epoch's row; what was not measured is left out."""
        self.run.log({name: value for name, value in row.items() if value is not None})

    def summarise(self, record: dict[str, Any]) -> None:
        """Write the trial's result into the run's summary."""
        values = {**record["result"], **record["references"]}
        self.run.summary.update({name: value for name, value in values.items() if value is not None})


@contextmanager
def tracked(config: TrialConfig, study: str, tracking: Tracking) -> Iterator[TrackedRun]:
    """A W&B run around a trial, finished whatever happens."""
    tracking.folder.mkdir(parents=True, exist_ok=True)
    switches = {name: config.has(name) for name in ("residual", "layernorm", "mlp")}
    recipe = config.recipe.model_dump(exclude={"kind", "seed", "unembedding"}, exclude_none=True)
    run = wandb.init(
        project=tracking.project,
        mode=cast(Any, tracking.mode),
        dir=tracking.folder,
        id=None,
        name=config.id[:12],
        group=study,
        job_type="trial",
        tags=[config.task.name, config.backbone.kind, config.components],
        config={**flat(config.canonical()), **recipe, **switches, "study": study, "trial": config.id},
        reinit="create_new",  # a reused worker's next trial must not land in the last one's run
        settings=wandb.Settings(
            console="off",
            silent=True,
            x_disable_stats=True,
            x_disable_meta=True,
            disable_git=True,
            disable_code=True,
            init_timeout=60,
            finish_timeout=60,
        ),
    )
    code = 1
    try:
        yield TrackedRun(run)
        code = 0
    finally:
        run.finish(exit_code=code)
