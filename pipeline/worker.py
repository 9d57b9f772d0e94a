"""One trial in a Ray worker: run it, log it to W&B, put its record in the store, and tell the driver how it went.

A trial that raises is told like a result, so that its worker goes on with the next one.  Only a worker that is lost
(killed, hung, out of memory) ends a trial without a word.
"""

import contextlib
import faulthandler
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from ray import tune

import fut
from fut.config import TrialConfig
from fut.files import load_arrays, save_arrays
from fut.training import Epoch
from fut.trial import run_trial
from pipeline.disk import REMEDIES
from pipeline.store import Store, StoreError
from pipeline.tracking import Tracking, tracked

OUT_OF_MEMORY = (
    "lower training.batch_size or the width, or raise cpus_per_trial so that fewer trials share the memory of this "
    "machine"
)


class Job(NamedTuple):
    """What a worker needs to know of the sweep; paths are absolute."""

    study: str
    store: Path
    datasets: Path
    backbones: Path
    threads: int
    gpus: float
    tracking: Tracking
    stalled_after: float  # seconds


class Told(NamedTuple):
    """What a worker tells the driver of a trial."""

    trial: str
    result: dict[str, Any] | None = None
    failure: str | None = None  # the traceback, where the trial raised
    unusable: str | None = None  # why no trial of this sweep can leave a record any more
    notices: tuple[str, ...] = ()  # what did not stop the trial, and a person should know


def trainable(point: dict[str, int], trials: list[tuple[str, dict[str, Any]]], job: Job) -> None:
    """The function that Ray Tune calls: `point["trial"]` is the number of a (trial id, configuration) in `trials`."""
    told = attempt(*trials[point["trial"]], job)
    tune.report({"told": told._asdict()})


def attempt(trial: str, values: dict[str, Any], job: Job) -> Told:
    """Run a trial unless the store has it; a fault leaves its traceback in the store."""
    store = Store(job.store)
    try:
        if store.has(trial):
            return Told(trial, store.read(trial)["result"])
        if stack := stack_of_stall(store, trial):
            error: Exception = TimeoutError(
                f"no epoch was finished in {job.stalled_after:g} s, and its worker was ended; if the trial is only "
                "slow, raise stalled_after"
            )
            return _failed(trial, values, job, error, stack)
        config = TrialConfig.model_validate(values)
        if config.id != trial:
            error = RuntimeError("the code of fut was changed after the sweep started; start the sweep again")
            return _failed(trial, values, job, error, "")
        return _run(config, job)
    except StoreError as error:
        return Told(trial, unusable=str(error))


def _run(config: TrialConfig, job: Job) -> Told:
    """Run a trial to its record, or to its failure."""
    store = Store(job.store)
    store.program_path(config.id)  # raises where there is no store to train for
    try:
        with (
            tempfile.TemporaryDirectory(prefix="fut-trial-") as scratch,
            _fut_warnings() as notices,
            _ended_when_stalled(config.id, job) as alive,
            tracked(config, job.study, job.tracking) as logged,
        ):

            def epoch_done(row: Epoch) -> None:
                alive()
                logged.log_epoch(row)

            program = Path(scratch) / "program.safetensors"
            record = run_trial(
                config, job.datasets, job.backbones, program, job.threads, job.gpus, epoch_done, store.program_path
            )
            save_arrays(store.program_path(config.id), *load_arrays(program))  # nothing where the store has vanished
            store.write(record)  # first: W&B may take its time
            logged.summarise(record)
    except StoreError:
        raise
    except Exception as error:
        told = _failed(config.id, config.canonical(), job, _with_advice(error), traceback.format_exc())
        if isinstance(error, OSError) and error.errno in REMEDIES:
            told = told._replace(unusable=f"{error}; {REMEDIES[error.errno]}")
        return told
    store.clear_failure(config.id)
    if logged.problem:
        notices.append(logged.problem)
    return Told(config.id, record["result"], notices=tuple(notices))


def _failed(trial: str, values: dict[str, Any], job: Job, error: Exception, trace: str) -> Told:
    Store(job.store).write_failure(trial, job.study, values, error, trace)
    return Told(trial, failure=trace or f"{type(error).__name__}: {error}\n")


def _with_advice(error: Exception) -> Exception:
    """The error, with the setting to lower where memory ran out."""
    words = str(error).lower()
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in words:
        return MemoryError(f"{error}; {OUT_OF_MEMORY}")
    return error


def stall_path(store: Store, trial: str) -> Path:
    """Where the stack of a trial is written when it stalls."""
    return store.path / "stalled" / f"{trial}.txt"


def stack_of_stall(store: Store, trial: str) -> str:
    """Where a trial stood when its last worker was ended for it; empty if it was not."""
    try:
        return stall_path(store, trial).read_text()
    except FileNotFoundError:
        return ""


def forget_stalls(store: Store) -> None:
    """Let trials that stalled in an earlier sweep run again."""
    for path in (store.path / "stalled").glob("*.txt"):
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def _ended_when_stalled(trial: str, job: Job) -> Iterator[Callable[[], None]]:
    """End this process when the function that it yields has not been called for too long.

    The stack of every thread then stands in the file of `stall_path`.  The timer is a thread of its own below the
    interpreter, so that it works where a native call hangs and holds the interpreter's lock.
    """
    path = stall_path(Store(job.store), trial)
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as file:

        def alive() -> None:
            faulthandler.dump_traceback_later(job.stalled_after, exit=True, file=file)

        alive()
        try:
            yield alive
        finally:
            faulthandler.cancel_dump_traceback_later()
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def _fut_warnings() -> Iterator[list[str]]:
    """The texts of the warnings that come from `fut`, such as that of a damaged file which was made again."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield texts
    package = str(Path(fut.__file__).parent)
    texts += [str(warning.message) for warning in caught if warning.filename.startswith(package)]
