"""The stage of a study: run the trials that the store does not hold yet, on all cores, with Ray Tune."""

import json
import logging
import os
import tempfile
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import ray
import torch
import typer
from ray import tune
from rich.console import Console

from fut.config import TrialConfig
from fut.files import write_atomically
from pipeline.command import INTERRUPTED, run_command, writing
from pipeline.estimate import effort
from pipeline.grid import Cell
from pipeline.interrupt import interruptible
from pipeline.lock import only_sweep
from pipeline.params import Params, refuse
from pipeline.progress import Progress
from pipeline.reaper import reaper
from pipeline.store import Store, StoreError
from pipeline.tracking import Tracking, decide_mode
from pipeline.worker import OUT_OF_MEMORY, Job, forget_stalls, trainable
from pipeline.workspace import PARAMS, ParamsOption, Workspace, WorkspaceOption

OBJECT_STORE_BYTES = 100 * 2**20  # trials pass scalars and paths only
SHOWN = 10  # incomplete trials that are named one by one
ENVIRONMENT = {  # of the driver and, through it, of its workers
    "RAY_AUTH_MODE": "disabled",  # a cluster of our own, on loopback
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # the numbers are in the records
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Tune's own ends a sweep as if it were complete
    "RAY_AIR_NEW_OUTPUT": "0",  # the new one prints a box at any verbosity
    "TUNE_GLOBAL_CHECKPOINT_S": "600",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",  # a lost worker is said in our own words
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}


def run_sweep(workspace: Workspace, study: str, console: Console) -> int:
    """Run what is missing of a study and write its completion file.

    Returns:
        The exit status: 0 if every expected trial has a record, 130 after Ctrl-C or SIGTERM, else 1.

    Raises:
        StoreError: another sweep has the store, or it cannot be made or written.
    """
    if fault := _too_little(workspace.params):
        refuse(fault)
    store = workspace.store
    store.create()
    with interruptible() as listen, only_sweep(store.path, study):
        return _sweep(workspace, study, console, listen)


def _sweep(workspace: Workspace, study: str, console: Console, listen: Callable[[], None]) -> int:
    cells, store = workspace.params.cells(study), workspace.store
    expected = {trial.id: trial for cell in cells for trial in cell.trials}
    for problem in store.check(expected):
        console.print(f"{problem}; its trial runs again", highlight=False)
    forget_stalls(store)
    known = {trial: store.read(trial)["result"] for trial in expected if store.has(trial)}
    costs = {trial: effort(config) for trial, config in expected.items() if trial not in known}
    missing = sorted(costs, key=lambda trial: (-costs[trial], trial))  # the long ones first: no core waits for the last
    console.print(
        f"{study}: {len(cells)} cells, {len(expected)} trials, {len(known)} in the store, {len(missing)} to run",
        highlight=False,
    )
    stopped, status = "", 1
    if missing:
        console.print(f"{study}: Ray and its workers are being started", highlight=False)
        progress = Progress(study, cells, known, {trial: costs[trial] for trial in missing}, console)
        try:
            with progress:
                _run_trials(workspace, study, [expected[trial] for trial in missing], progress, listen)
        except KeyboardInterrupt:
            stopped, status = "the sweep was interrupted", INTERRUPTED
        except StoreError as error:
            stopped = "the sweep had to stop"
            console.print(f"{study}: {error}", highlight=False)
    return _close(workspace, study, cells, stopped, console) and status


def _run_trials(
    workspace: Workspace, study: str, trials: list[TrialConfig], progress: Progress, listen: Callable[[], None]
) -> None:
    """Run trials with Ray Tune, on a cluster of our own unless params name one.

    Those with a pretrained backbone come after the others, among which their sources are, and only as far as these
    have left a record.
    """
    params, store = workspace.params, workspace.store
    tracking = Tracking(params.wandb.project, decide_mode(params.wandb.mode), workspace.root)
    job = Job(
        study,
        store.path,
        workspace.datasets,
        workspace.backbones,
        params.cpus_per_trial,
        params.gpus_per_trial,
        tracking,
        params.stalled_after,
    )
    os.environ |= {name: os.environ.get(name, value) for name, value in ENVIRONMENT.items()}
    own: dict[str, Any] = {
        "num_cpus": usable_cpus(),
        "object_store_memory": OBJECT_STORE_BYTES,
        "include_dashboard": False,
    }

    def name(trial: Any) -> str:
        return trials[trial.config["trial"]].id[:12]

    # The folder holds Tune's own notes, which nothing reads.
    with tempfile.TemporaryDirectory(prefix="fut-tune-") as scratch, reaper() as name_processes:
        try:
            ray.init(
                address=params.ray_address,
                log_to_driver=False,
                logging_level=logging.ERROR,
                **(own if params.ray_address == "local" else {}),
            )
            listen()  # Ray takes SIGTERM for itself
            name_processes()
            for wave in (_without_source, _with_source):
                numbers = [number for number, trial in enumerate(trials) if wave(trial, store)]
                if not numbers:
                    continue
                tune.Tuner(
                    tune.with_resources(
                        tune.with_parameters(
                            trainable, trials=[(trial.id, trial.canonical()) for trial in trials], job=job
                        ),
                        {"cpu": params.cpus_per_trial, "gpu": params.gpus_per_trial},
                    ),
                    param_space={"trial": tune.grid_search(numbers)},
                    tune_config=tune.TuneConfig(
                        reuse_actors=True,  # a worker's start and imports cost as much as a short trial
                        trial_name_creator=name,
                        trial_dirname_creator=name,
                    ),
                    run_config=tune.RunConfig(
                        name=study,
                        storage_path=scratch,
                        verbose=0,
                        callbacks=[progress],
                        failure_config=tune.FailureConfig(max_failures=1),  # of a worker; a trial that raises tells it
                    ),
                ).fit()
        finally:
            ray.shutdown()
            listen()  # and again


def _without_source(trial: TrialConfig, store: Store) -> bool:
    return trial.source_trial is None


def _with_source(trial: TrialConfig, store: Store) -> bool:
    """Whether a trial has a source, and its source a record."""
    return trial.source_trial is not None and store.has(trial.source_trial.id)


def usable_cpus() -> int:
    """The cores that this process may use: a container or a batch system may give it fewer than the machine has."""
    return len(os.sched_getaffinity(0))


def _too_little(params: Params) -> str | None:
    """What a trial asks for and this machine has not; Ray would wait for it for ever."""
    if params.ray_address != "local":
        return None
    if params.cpus_per_trial > (cpus := usable_cpus()):
        return f"cpus_per_trial: {params.cpus_per_trial}, and this machine has {cpus}; lower it"
    if params.gpus_per_trial > (gpus := torch.cuda.device_count()):
        return f"gpus_per_trial: {params.gpus_per_trial:g}, and this machine has {gpus}; lower it"
    return None


def _close(workspace: Workspace, study: str, cells: list[Cell], stopped: str, console: Console) -> bool:
    """Compare the finished trials with the expected ones, and say what is missing, why, and what to do.

    Returns:
        Whether any is missing.
    """
    store, trials = workspace.store, [trial.id for cell in cells for trial in cell.trials]
    try:
        failures, done = store.failures(), {trial for trial in trials if store.has(trial)}
    except StoreError as error:  # it has vanished
        failures, done, stopped = {}, set(), stopped or str(error)
    lacking = {
        trial.id: trial.source_trial.id
        for cell in cells
        for trial in cell.trials
        if trial.source_trial is not None and trial.source_trial.id not in done
    }
    missing = [
        {"trial": trial, "reason": _reason(trial, failures, stopped, lacking.get(trial))}
        for trial in trials
        if trial not in done
    ]
    expected = len(trials)
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
    with writing(workspace.sweep(study)):
        write_atomically(workspace.sweep(study), (json.dumps(content, indent=1) + "\n").encode())
    if not missing:
        console.print(f"{study}: all {expected} trials are in the store", highlight=False)
        return False
    console.print(f"{study}: incomplete, {len(missing)} of {expected} trials are missing:", highlight=False)
    for entry in missing[:SHOWN]:
        console.print(f"  {entry['trial'][:12]}: {entry['reason']}", highlight=False)
    if len(missing) > SHOWN:
        console.print(f"  … and {len(missing) - SHOWN} more", highlight=False)
    console.print("What is done is kept: run the same command again, and only these trials run.", highlight=False)
    return True


def _reason(trial: str, failures: Mapping[str, dict[str, Any]], stopped: str, lacking: str | None) -> str:
    if lacking:
        return f"not run: its source, trial {lacking[:12]}, has no record"
    if trial in failures:
        failure = failures[trial]
        return f"{failure['error']}: {failure['message']} (run it alone: python -m pipeline.trial {trial[:12]})"
    return f"not run: {stopped}" if stopped else f"its worker was lost twice; if memory ran out, {OUT_OF_MEMORY}"


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
        status = run_sweep(opened, study, Console(soft_wrap=True, markup=False))
    except StoreError as error:
        raise SystemExit(f"{study}: {error}") from error
    raise SystemExit(status)


if __name__ == "__main__":
    run_command(main)
