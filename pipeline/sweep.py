"""The stage of a study: run the trials that the store does not hold yet, on all cores, with Ray Tune."""

import json
import logging
import os
import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

import ray
import typer
from ray import tune
from rich.console import Console

from fut.config import TrialConfig
from fut.files import write_atomically
from pipeline.estimate import effort
from pipeline.grid import Cell
from pipeline.params import refuse
from pipeline.progress import Progress
from pipeline.store import StoreError
from pipeline.tracking import Tracking, decide_mode
from pipeline.worker import Job, trainable
from pipeline.workspace import PARAMS, ParamsOption, Workspace, WorkspaceOption

OBJECT_STORE_BYTES = 100 * 2**20  # trials pass scalars and paths only
SHOWN = 10  # incomplete trials that are named one by one
INTERRUPTED = 130  # what a shell says of a program that Ctrl-C ended
ENVIRONMENT = {  # of the driver and, through it, of its workers
    "RAY_AUTH_MODE": "disabled",  # a cluster of our own, on loopback
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # the numbers are in the records
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Tune's own ends a sweep as if it were complete
    "RAY_AIR_NEW_OUTPUT": "0",  # the new one prints a box at any verbosity
    "TUNE_GLOBAL_CHECKPOINT_S": "600",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}


def run_sweep(workspace: Workspace, study: str, console: Console) -> int:
    """Run what is missing of a study and write its completion file.

    Returns:
        The exit status: 0 if every expected trial has a record, 130 after Ctrl-C or SIGTERM, else 1.
    """
    cells, store = workspace.params.cells(study), workspace.store
    expected = {trial.id: trial for cell in cells for trial in cell.trials}
    store.create()
    for problem in store.check(expected):
        console.print(f"{problem}; its trial runs again", highlight=False)
    known = {trial: store.read(trial)["result"] for trial in expected if store.has(trial)}
    costs = {trial: effort(config) for trial, config in expected.items() if trial not in known}
    missing = sorted(costs, key=lambda trial: (-costs[trial], trial))  # the long ones first: no core waits for the last
    console.print(
        f"{study}: {len(cells)} cells, {len(expected)} trials, {len(known)} in the store, {len(missing)} to run",
        highlight=False,
    )
    interrupted = False
    if missing:
        progress = Progress(study, cells, known, {trial: costs[trial] for trial in missing}, console)
        try:
            with _signals_raise(), progress:
                _run_trials(workspace, study, [expected[trial] for trial in missing], progress)
        except KeyboardInterrupt:
            interrupted = True
    return _close(workspace, study, cells, interrupted, console)


def _run_trials(workspace: Workspace, study: str, trials: list[TrialConfig], progress: Progress) -> None:
    """Run trials with Ray Tune, on a cluster of our own unless params name one."""
    params = workspace.params
    tracking = Tracking(params.wandb.project, decide_mode(params.wandb.mode), workspace.root)
    job = Job(
        study,
        workspace.store.path,
        workspace.datasets,
        workspace.backbones,
        params.cpus_per_trial,
        params.gpus_per_trial,
        tracking,
    )
    os.environ |= {name: os.environ.get(name, value) for name, value in ENVIRONMENT.items()}
    own: dict[str, Any] = {
        "num_cpus": os.cpu_count(),
        "object_store_memory": OBJECT_STORE_BYTES,
        "include_dashboard": False,
    }
    ray.init(
        address=params.ray_address,
        log_to_driver=False,
        logging_level=logging.ERROR,
        **(own if params.ray_address == "local" else {}),
    )

    def name(trial: Any) -> str:
        return trials[trial.config["trial"]].id[:12]

    with tempfile.TemporaryDirectory(prefix="fut-tune-") as scratch:  # Tune's own notes, which nothing reads
        try:
            tune.Tuner(
                tune.with_resources(
                    tune.with_parameters(
                        trainable, trials=[(trial.id, trial.canonical()) for trial in trials], job=job
                    ),
                    {"cpu": params.cpus_per_trial, "gpu": params.gpus_per_trial},
                ),
                param_space={"trial": tune.grid_search(list(range(len(trials))))},
                tune_config=tune.TuneConfig(
                    reuse_actors=True,  # a worker's start and imports cost as much as a short trial
                    trial_name_creator=name,
                    trial_dirname_creator=name,
                ),
                run_config=tune.RunConfig(name=study, storage_path=scratch, verbose=0, callbacks=[progress]),
            ).fit()
        finally:
            ray.shutdown()


@contextmanager
def _signals_raise() -> Iterator[None]:
    """SIGTERM and a closed terminal end the sweep as Ctrl-C does."""

    def interrupt(number: int, frame: object) -> NoReturn:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _close(workspace: Workspace, study: str, cells: list[Cell], interrupted: bool, console: Console) -> int:
    """Compare the finished trials with the expected ones, and say what is missing, why, and what to do."""
    store = workspace.store
    failures = store.failures()
    missing = [
        {"trial": trial.id, "reason": _reason(trial.id, failures, interrupted)}
        for cell in cells
        for trial in cell.trials
        if not store.has(trial.id)
    ]
    expected = sum(len(cell.trials) for cell in cells)
    content = {
        "study": study,
        "cells": [
            {
                "cell": cell.id,
                "criterion_value": workspace.params.studies[study].criterion_for(cell.first.task),
                "trials": [trial.id for trial in cell.trials],
            }
            for cell in cells
        ],
        "expected": expected,
        "finished": expected - len(missing),
        "missing": missing,
    }
    write_atomically(workspace.sweep(study), (json.dumps(content, indent=1) + "\n").encode())
    if not missing:
        console.print(f"{study}: all {expected} trials are in the store", highlight=False)
        return 0
    console.print(f"{study}: incomplete, {len(missing)} of {expected} trials are missing:", highlight=False)
    for entry in missing[:SHOWN]:
        console.print(f"  {entry['trial'][:12]}: {entry['reason']}", highlight=False)
    if len(missing) > SHOWN:
        console.print(f"  … and {len(missing) - SHOWN} more", highlight=False)
    console.print("What is done is kept: run the same command again, and only these trials run.", highlight=False)
    return INTERRUPTED if interrupted else 1


def _reason(trial: str, failures: Mapping[str, dict[str, Any]], interrupted: bool) -> str:
    if trial in failures:
        failure = failures[trial]
        return f"{failure['error']}: {failure['message']} (run it alone: python -m pipeline.trial {trial[:12]})"
    return "not run: the sweep was interrupted" if interrupted else "no record: its worker was lost"


def main(
    study: Annotated[str, typer.Argument(help="the study to run")],
    params: ParamsOption = PARAMS,
    workspace: WorkspaceOption = None,
) -> None:
    """Run the trials of a study that the store does not hold yet."""
    opened = Workspace.open(params, workspace)
    if study not in opened.params.studies:
        refuse(f"there is no study {study!r} in {params}; it has {', '.join(opened.params.studies)}")
    try:
        status = run_sweep(opened, study, Console(soft_wrap=True))
    except StoreError as error:
        raise SystemExit(f"{study}: {error}") from error
    raise SystemExit(status)


if __name__ == "__main__":
    typer.run(main)
