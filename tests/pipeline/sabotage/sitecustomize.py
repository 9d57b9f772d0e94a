"""Faults in the trials of a sweep, with no hook in the product: Python imports a module of this name when it starts.

It does something only where the variable FUT_SABOTAGE names a folder:

    plan.json   trial id → what becomes of the trial, one of the cases below
    started     a line for each trial that was started: its process and its id
    ID.held     a trial is being held
    go          held trials go on, as they do when the tests (the process FUT_TESTS) have ended
    clock       the clock has been set back by a day
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

DAY = timedelta(days=1)


def hang() -> None:
    """Go nowhere."""
    while True:
        time.sleep(1)


def spoil(folder: Path, worker: ModuleType) -> None:
    """Let the trials of a module `pipeline.worker` go as planned."""
    run_trial = worker.run_trial

    def run(config: Any, *arguments: Any) -> Any:
        with (folder / "started").open("a") as file:
            file.write(f"{os.getpid()} {config.id}\n")
        *others, on_epoch, programs = arguments

        def hold(row: Any) -> None:
            on_epoch(row)
            (folder / f"{config.id}.held").touch()
            while Path("/proc", os.environ["FUT_TESTS"]).exists() and not (folder / "go").exists():
                time.sleep(0.05)

        match json.loads((folder / "plan.json").read_text()).get(config.id):
            case "raises":
                raise ArithmeticError("this trial was sabotaged")
            case "hangs":
                hang()
            case "is killed":
                os.kill(os.getpid(), signal.SIGKILL)
            case "is killed once" if (folder / "started").read_text().count(config.id) == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            case "is held":  # in the middle of its training
                return run_trial(config, *others, hold, programs)
        return run_trial(config, *others, on_epoch, programs)

    worker.run_trial = run


def set_back(folder: Path, module: ModuleType) -> None:
    """Let a module's `datetime` say the time of a clock that may have been set back."""

    class Clock(datetime):
        @classmethod
        def now(cls, zone: Any = None) -> Any:
            return datetime.now(zone) - (DAY if (folder / "clock").exists() else timedelta())

    module.datetime = Clock


class Saboteur(MetaPathFinder):
    """Finds the modules of the product as the other finders do, and alters some when they are loaded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.alter = {"pipeline.worker": spoil, "fut.trial": set_back, "pipeline.store": set_back}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The spec of a module that is to be altered; None for any other."""
        if not (alter := self.alter.pop(name, None)) or not (spec := find_spec(name)) or not spec.loader:
            return None
        load = spec.loader.exec_module

        def load_and_alter(module: ModuleType) -> None:
            load(module)
            alter(self.folder, module)

        spec.loader.exec_module = load_and_alter  # type: ignore[method-assign]
        return spec


def clock_of(folder: Path, seconds: Callable[[], float]) -> Callable[[], float]:
    """A `time.time` that may be set back."""
    return lambda: seconds() - (DAY.total_seconds() if (folder / "clock").exists() else 0)


if named := os.environ.get("FUT_SABOTAGE"):
    sys.meta_path.insert(0, Saboteur(Path(named)))
    time.time = clock_of(Path(named), time.time)
