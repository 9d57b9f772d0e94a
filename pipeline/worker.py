"""One trial in a Ray worker: run it, log it to W&B, put its record in the store."""

import traceback
from pathlib import Path
from typing import Any, NamedTuple

from ray import tune

from fut.config import TrialConfig
from fut.trial import run_trial
from pipeline.store import Store
from pipeline.tracking import Tracking, tracked


class Job(NamedTuple):
    """What a worker needs to know of the sweep; paths are absolute."""

    study: str
    store: Path
    datasets: Path
    backbones: Path
    threads: int
    gpus: float
    tracking: Tracking


def run_and_store(config: TrialConfig, job: Job) -> dict[str, Any]:
    """Run a trial and make its record visible; a fault leaves its traceback in the store, and is raised."""
    store = Store(job.store)
    try:
        with tracked(config, job.study, job.tracking) as run:
            record = run_trial(
                config, job.datasets, job.backbones, store.program_path(config.id), job.threads, job.gpus, run.log_epoch
            )
            store.write(record)  # before W&B can fail
            run.summarise(record)
    except Exception as error:
        if not store.has(config.id):  # else only W&B failed, and the numbers are safe
            store.write_failure(config.id, job.study, config.canonical(), error, traceback.format_exc())
            raise
        traceback.print_exc()
    store.clear_failure(config.id)
    return store.read(config.id)


def trainable(point: dict[str, int], trials: list[tuple[str, dict[str, Any]]], job: Job) -> None:
    """The function that Ray Tune calls: `point["trial"]` is the number of a (trial id, configuration) in `trials`.

    Raises:
        RuntimeError: the code of this process is not the one that the sweep was started with.
    """
    trial, values = trials[point["trial"]]
    config = TrialConfig.model_validate(values)
    store = Store(job.store)
    if config.id != trial:
        error = RuntimeError("the code of fut was changed after the sweep started; start the sweep again")
        store.write_failure(trial, job.study, values, error, "")
        raise error
    record = store.read(config.id) if store.has(config.id) else run_and_store(config, job)
    tune.report({"trial": config.id, **record["result"]})
