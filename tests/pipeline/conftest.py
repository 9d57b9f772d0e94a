"""Small configurations, records and stores for the tests of the pipeline."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fut.config import TrialConfig
from fut.files import save_arrays
from fut.record import SCHEMA_VERSION, Record
from pipeline.store import Store

TINY = """
run: [tiny]
transfer:
  tasks: [{name: khop, length: 8, train_size: 100, val_size: 50, test_size: 50}]
  layers: 1
  target_dim: 4
  seeds: [0]
  times_sufficient: [0.9, 1]
  training: {steps: 10, batch_size: 8, steps_per_epoch: 5, warmup_steps: 2}
studies:
  tiny:
    about: two widths of two backbones
    seeds: [0, 1]
    base:
      task: {name: khop, length: 8, train_size: 400, val_size: 50, test_size: 50}
      backbone: {kind: random, values: full, qk_dim: 4}
      heads: 1
      layers: 1
      width: 8
      training: {steps: 100}
    grid:
      width: [8, 12]
  other:
    seeds: [0]
    base:
      task: {name: khop, length: 8, train_size: 400, val_size: 50, test_size: 50}
      backbone: {kind: sparse}
      heads: 1
      layers: 1
      width: 12
      training: {steps: 200}
"""


@pytest.fixture(scope="session", autouse=True)
def _signals_are_heard() -> None:
    """Also under `nohup` or in the background: what is ignored here, the tests' processes would inherit as ignored."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A params.yaml with a study to run (2 cells, 4 trials) and one more, in a folder of its own."""
    path = tmp_path / "project" / "params.yaml"
    path.parent.mkdir()
    path.write_text(TINY)
    return path


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    made = Store(tmp_path / "store")
    made.create()
    return made


@pytest.fixture
def finish() -> Callable[..., Record]:
    """Puts the program and the record of a trial into a store, as if it had been trained."""

    def finish(store: Store, trial: TrialConfig, seconds: float = 2.0, steps: int = 100, threads: int = 1) -> Record:
        program = {"embedding": np.full((3, 2), trial.seed, np.float32)}
        save_arrays(store.program_path(trial.id), program, {"backbone": "b", "trial": trial.id})
        record = record_of(trial, program, seconds, steps, threads)
        store.write(record)
        return record

    return finish


def record_of(
    trial: TrialConfig, program: dict[str, np.ndarray], seconds: float, steps: int, threads: int
) -> dict[str, Any]:
    """A record with the fields that the pipeline looks at."""
    from fut.digest import array_digest

    return {
        "schema_version": SCHEMA_VERSION,
        "trial": trial.id,
        "config": trial.canonical(),
        "recipe": trial.recipe.model_dump(),
        "result": {"test_accuracy": 0.1 + 0.2, "nmse": None, "train_seconds": seconds, "steps": steps},
        "references": {},
        "epochs": [{"epoch": 1, "val_loss": 1e-300}],
        "digests": {"program": array_digest(program), "code": trial.code},
        "environment": {"threads": threads, "host": "here"},
    }
