"""Subject `aggregation`: 20,000 trials from the store into tables, each stage in a process of its own.

The records are made up, as large as real ones of 2,000 steps, for a grid of 1,000 cells with 5 seeds and 4 learning
rates.  Nothing is trained, and writing them is not timed.
"""

import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from unittest import mock

import numpy as np
import torch

from benchmarks.figures import Figure
from benchmarks.process import run
from benchmarks.terminal import say
from fut.config import TrialConfig
from fut.digest import digest
from fut.program import save_program
from fut.record import SCHEMA_VERSION, Record
from pipeline.store import Store
from pipeline.workspace import Workspace

ABOUT = "20,000 records from the store into tables"
MOST_SECONDS, MOST_MB = 60.0, 2_000.0
PARAMS = """
run: [many]
wandb: {mode: disabled}
studies:
  many:
    seeds: [0, 1, 2, 3, 4]
    learning_rate: [0.001, 0.003, 0.01, 0.03]
    base: {method: learned}
    grid:
      task:
        - {name: dyck, max_length: 16}
        - {name: khop, hops: 1}
        - {name: khop, hops: 2}
        - {name: simulate, target_dim: 2}
      backbone: [{kind: random}, {kind: trained}]
      components: [attention, residual, residual+layernorm, mlp, residual+layernorm+mlp]
      "heads, layers": [[1, 1], [1, 2], [2, 1], [2, 2], [1, 3]]
      width: [8, 16, 32, 64, 96]
"""


def measure() -> list[Figure]:
    """The sweep's look through a full store, and the tables."""
    figures = []
    with tempfile.TemporaryDirectory(prefix="fut-bench-") as scratch:
        params = Path(scratch) / "params.yaml"
        params.write_text(PARAMS)
        say("20,000 records are made up")
        trials = _fill_store(params)
        for name, module, asked in (("a sweep with nothing to do", "sweep", False), ("tables", "tables", True)):
            say(f"{trials:,} records: {name}")
            study = ["many"] if module == "sweep" else []
            ran = run([sys.executable, "-m", f"pipeline.{module}", *study, "--params", str(params)], params.parent)
            row = f"{trials:,} records, {name}"
            for column, unit, sample, most in (
                ("time", "s", ran.seconds, MOST_SECONDS),
                ("peak memory", "MB", ran.peak_bytes / 1e6, MOST_MB),
            ):
                at_most = most if asked else None
                figures.append(
                    Figure(row=row, column=column, unit=unit, samples=[sample], better="lower", at_most=at_most)
                )
    return figures


def _fill_store(params: Path) -> int:
    """Fill the store of a configuration; returns how many trials it has, and leaves nothing of them in memory."""
    workspace = Workspace.open(params)
    trials = [trial for cell in workspace.params.cells("many") for trial in cell.trials]
    fill(workspace.store, trials)
    return len(trials)


def fill(store: Store, trials: Iterable[TrialConfig]) -> None:
    """Put made-up records and programs of trials into a new store, and let the disk keep them when it likes."""
    store.create()
    draw = np.random.default_rng(0)
    with mock.patch.object(os, "fsync", lambda handle: None):
        for trial in trials:
            weights = draw.standard_normal((trial.width, trial.task.out_dim), np.float32)
            program = {"unembedding": torch.from_numpy(weights)}
            path = store.program_path(trial.id)
            store.write(record(trial, save_program(path, program, digest(trial.recipe.id), trial.id), draw))


def record(trial: TrialConfig, program_digest: str, draw: np.random.Generator) -> Record:
    """A record as training would leave it, with metrics and times drawn at random."""
    plan, accuracies = trial.training, trial.task.metric == "accuracy"
    values = draw.random(plan.steps // plan.steps_per_epoch)
    epochs = [
        {
            "epoch": number,
            "step": number * plan.steps_per_epoch,
            "learning_rate": trial.learning_rate * value,
            "train_loss": value,
            "val_loss": value + 0.01,
            "val_accuracy": value if accuracies else None,
            "val_nmse": None if accuracies else value,
            "seconds": number + value,
        }
        for number, value in enumerate(values.tolist(), start=1)
    ]
    final = epochs[-1]
    test = float(draw.random())
    return {
        "schema_version": SCHEMA_VERSION,
        "trial": trial.id,
        "config": trial.canonical(),
        "recipe": trial.recipe.model_dump(),
        "result": {
            "val_accuracy": final["val_accuracy"],
            "test_accuracy": test if accuracies else None,
            "val_nmse": final["val_nmse"],
            "nmse": None if accuracies else test,
            "agreement": None if accuracies else float(draw.random()),
            "stop_reason": "budget",
            "stop_detail": "",
            "steps": plan.steps,
            "epochs": len(epochs),
            "train_seconds": final["seconds"],
            "trainable_parameters": trial.width * (trial.task.input_dim + trial.task.out_dim),
            "frozen_parameters": trial.layers * trial.width**2,
            **dict.fromkeys(("margin", "condition_number", "relative_error")),  # nothing was compiled
        },
        "references": {"reference_majority": 0.5} if accuracies else {},
        "epochs": epochs,
        "digests": {
            "data": digest(trial.dataset_id),
            "backbone": digest(trial.recipe.id),
            "code": trial.code,
            "dataset_id": trial.dataset_id,
            "backbone_id": trial.recipe.id,
            "program": program_digest,
        },
        "environment": {
            **{name: "0.0.0" for name in ("fut", "python", "torch", "lightning", "numpy")},
            "host": "a machine",
            "platform": "Linux-6.1.0-x86_64-with-glibc2.36",
            "cpus": 2,
            "threads": 1,
            "accelerator": "cpu",
            "started": "2026-01-01T00:00:00+00:00",
        },
    }
