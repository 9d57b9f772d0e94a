"""Weights & Biases: every trial logs to a run of its own, offline unless a key or WANDB_MODE says otherwise.

W&B is a window on the sweep, never where numbers are kept: those are in the records. So nothing that fails there stops
a trial: a run that cannot go online goes offline, one that cannot be written is not, and its `problem` says why.
"""

import logging
import os
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple, cast

import wandb

from fut.config import TrialConfig
from fut.training import Epoch

START_SECONDS = 30  # that W&B has for starting a run
FINISH_SECONDS = 30  # and for finishing it
ROOM = 2**20  # bytes that its disk must have left, some 20 runs

logging.getLogger("wandb").setLevel(logging.CRITICAL)  # on a full disk each line of its diary is a traceback


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
    """A trial's run of W&B, as far as W&B goes along: what fails there is kept, not raised.

    A process whose run failed online stays offline: a dead server is waited for once, not in every trial.

    Attributes:
        problem: what went wrong, what it means and what to do about it, in one line; None if nothing did.
    """

    fallen: ClassVar[str | None] = None  # the problem that took this process offline

    def __init__(self, tracking: Tracking, **about: Any) -> None:
        self.run: wandb.Run | None = None
        self.problem: str | None = None
        self.project, self.mode, self.folder = tracking
        if self.mode == "disabled" or not self._has_room():
            return
        if self.mode != "offline" and not TrackedRun.fallen:
            self._start(about)
        if not self.run:
            self.mode, self.problem = "offline", TrackedRun.fallen
            self._start(about)

    def log_epoch(self, row: Epoch) -> None:
        """Log an epoch's row; what was not measured is left out."""
        with self._guard():
            if self.run:
                self.run.log({name: value for name, value in row.items() if value is not None})

    def summarise(self, record: dict[str, Any]) -> None:
        """Write the trial's result into the run's summary."""
        values = {**record["result"], **record["references"]}
        with self._guard():
            if self.run:
                self.run.summary.update({name: value for name, value in values.items() if value is not None})

    def finish(self, code: int) -> None:
        """Finish the run, with 0 as `code` if the trial succeeded."""
        if self.run:
            with self._guard():
                self.run.finish(exit_code=code)
            self._has_room()  # else rows may be missing

    def _start(self, about: dict[str, Any]) -> None:
        """Start a run in this mode."""
        with self._guard():
            session = wandb.setup(wandb.Settings(silent=True))  # silent: prints nothing, and asks for no key either
            terminal = SimpleNamespace(info=_ignore, warning=self._hear, error=_ignore)  # errors are raised as well
            wandb.termsetup(session.settings, terminal)
            self.run = wandb.init(
                project=self.project,
                mode=cast(Any, self.mode),
                dir=self.folder,
                reinit="create_new",  # a reused worker's next trial must not land in the last one's run
                settings=wandb.Settings(
                    console="off",
                    x_disable_stats=True,
                    x_disable_meta=True,
                    disable_git=True,
                    disable_code=True,
                    init_timeout=START_SECONDS,
                    finish_timeout=FINISH_SECONDS,
                    finish_timeout_raises=True,
                ),
                **about,
            )
            self.run.define_metric("*", step_metric="epoch")

    def _has_room(self) -> bool:
        """Whether the folder takes files: W&B goes elsewhere if not, or loses rows, and raises nothing."""
        with self._guard(disk=True):
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder) as file:
                file.write(bytes(ROOM))
            return True
        return False

    def _hear(self, warning: str) -> None:
        """What W&B would warn of on a terminal, such as an upload that the server refused for good."""
        self.problem = self.problem or self._explain(warning.partition("WARNING ")[2])

    def _explain(self, reason: str, disk: bool = False) -> str:
        """A problem in one line."""
        reason = textwrap.shorten(reason.strip().partition("\n")[0], 240, placeholder=" …")
        if not disk and self.mode != "offline":
            effect = f"what does not reach it is in {self.folder / 'wandb'}, the numbers are in the store"
            remedy = "check the key, the address and the network, or set WANDB_MODE=offline; `wandb sync` uploads later"
        else:
            effect = "this trial is not logged there, its numbers are in the store"
            remedy = f"make {self.folder} writable, with room on its disk" if disk else "the next trial tries again"
            remedy += "; WANDB_MODE=disabled does without W&B"
        return f"W&B: {reason}; {effect}; {remedy}"

    @contextmanager
    def _guard(self, disk: bool = False) -> Iterator[None]:
        """What W&B, or its `disk`, raises becomes the problem; the run ends, and the next one starts W&B afresh."""
        try:
            yield
        except Exception as error:
            self.run = None
            self.problem = self._explain(f"{type(error).__name__}: {error}", disk)
            if not disk and self.mode != "offline":
                TrackedRun.fallen = self.problem
            with suppress(Exception, SystemExit):  # SystemExit: its process did not end well
                wandb.teardown(exit_code=1)


def _ignore(text: str) -> None: ...


@contextmanager
def tracked(config: TrialConfig, study: str, tracking: Tracking) -> Iterator[TrackedRun]:
    """A W&B run around a trial, finished whatever happens; W&B itself raises nothing here."""
    switches = {name: config.has(name) for name in ("residual", "layernorm", "mlp")}
    recipe = config.recipe.model_dump(exclude={"kind", "seed", "unembedding"}, exclude_none=True)
    run = TrackedRun(
        tracking,
        name=config.id[:12],
        group=study,
        job_type="trial",
        tags=[config.task.name, config.backbone.kind, config.components],
        config={**flat(config.canonical()), **recipe, **switches, "study": study, "trial": config.id},
    )
    code = 1
    try:
        yield run
        code = 0
    finally:
        run.finish(code)
