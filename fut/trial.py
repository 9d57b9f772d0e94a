"""From a trial's configuration to its record.  Read this file first: it is the whole run, top to bottom."""

import os
import platform
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from threadpoolctl import threadpool_limits

import fut
from fut.backbones.files import ensure_backbone
from fut.config import TrialConfig
from fut.datasets import ensure_dataset
from fut.program import save_program
from fut.record import SCHEMA_VERSION, Record
from fut.starts import STARTS
from fut.training import Epoch, Outcome, measure, train
from fut.transformer import Transformer


def run_trial(
    config: TrialConfig,
    datasets: Path,
    backbones: Path,
    program: Path,
    threads: int = 1,
    gpus: float = 0,
    on_epoch: Callable[[Epoch], None] = lambda row: None,
    programs: Callable[[str], Path] | None = None,
) -> Record:
    """Run one trial: the same configuration gives the same record, but for times and host, in any process.

    Args:
        config: what to run.
        datasets: folder of the built datasets; a missing one is built.
        backbones: folder of the built backbones, likewise.
        program: the file that receives the trained program.
        threads: threads of the CPU that the trial may use.
        gpus: 0 trains on the CPU, anything above on the first visible GPU.
        on_epoch: called with each epoch's row, for progress.
        programs: where the program of a finished trial lies, by the trial's id; for pretrained backbones.

    Returns:
        The record, JSON values only.  A diverged run is a result; only faults raise.

    Raises:
        RuntimeError: a frozen tensor has moved.
        SourceMissing: a pretrained backbone's source has left no program.
    """
    started = datetime.now(UTC)
    _fresh_process_state(config.seed, threads)
    arrays, data_card = ensure_dataset(config.task, datasets)
    backbone = ensure_backbone(config.recipe, backbones, programs)
    examples = config.task.examples(arrays, config.heads, config.layers, config.seed)
    model = Transformer(config, backbone)
    start: dict[str, Any] = {}

    if config.method == "compiled":
        model.double()  # before its frozen tensors are looked at
    frozen = model.frozen_digest()
    if config.start in STARTS:
        with threadpool_limits(threads):
            start = STARTS[config.start](config, backbone, model)
    if config.method == "compiled":
        outcome = measure(config, model, examples, start["verdict"])
        outcome.train_seconds += start["seconds"]
    else:
        outcome = train(config, model, examples, gpus, on_epoch)
    if model.frozen_digest() != frozen:
        raise RuntimeError("a frozen tensor moved during training: this record would be worthless")

    digests = {
        "data": data_card["digest"],
        "backbone": backbone.digest,
        "code": config.code,
        "dataset_id": config.dataset_id,
        "backbone_id": config.recipe.id,
        "program": save_program(program, model.program(), backbone.digest, config.id),
    }
    return {
        "schema_version": SCHEMA_VERSION,
        "trial": config.id,
        "config": config.canonical(),
        "recipe": config.recipe.model_dump(),
        "result": _result(outcome, model, start),
        "references": data_card["references"],
        "epochs": outcome.epochs,
        "digests": digests,
        "environment": _environment(threads, gpus, started),
    }


def _fresh_process_state(seed: int, threads: int) -> None:
    """Undo what an earlier trial may have left in this process; our own draws do not use the global generators."""
    torch.set_num_threads(threads)
    torch.set_default_dtype(torch.float32)
    pl.seed_everything(seed, workers=True, verbose=False)


def _result(outcome: Outcome, model: Transformer, start: dict[str, Any]) -> dict[str, Any]:
    return {
        "val_accuracy": outcome.val.get("accuracy"),
        "test_accuracy": outcome.test.get("accuracy"),
        "val_nmse": outcome.val.get("nmse"),
        "nmse": outcome.test.get("nmse"),
        "agreement": outcome.test.get("agreement"),
        "stop_reason": outcome.stop_reason,
        "stop_detail": outcome.stop_detail,
        "steps": outcome.epochs[-1]["step"] if outcome.epochs else 0,
        "epochs": len(outcome.epochs),
        "train_seconds": outcome.train_seconds,
        "trainable_parameters": sum(parameter.numel() for parameter in model.parameters()),
        "frozen_parameters": sum(buffer.numel() for buffer in model.buffers()),
        **{name: start.get(name) for name in ("margin", "condition_number", "relative_error")},
    }


def _environment(threads: int, gpus: float, started: datetime) -> dict[str, Any]:
    return {
        "fut": fut.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "lightning": pl.__version__,
        "numpy": np.__version__,
        "host": platform.node(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "threads": threads,
        "accelerator": "gpu" if gpus else "cpu",
        "started": started.isoformat(timespec="seconds"),
    }
