"""A trial in a worker: its record in the store, or why there is none."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pipeline.worker
from fut.config import TrialConfig
from fut.datasets import path_of
from pipeline.store import Store
from pipeline.tracking import Tracking
from pipeline.worker import Job, Told, attempt, forget_stalls, stall_path, trainable
from pipeline.workspace import Workspace


@pytest.fixture
def job(tiny: Path) -> Job:
    """A sweep's job, with its store."""
    workspace = Workspace.open(tiny)
    workspace.store.create()
    tracking = Tracking("fut-tests", "disabled", workspace.root)
    return Job("tiny", workspace.store.path, workspace.datasets, workspace.backbones, 1, 0, tracking, 60)


@pytest.fixture
def config(tiny: Path) -> TrialConfig:
    """A trial."""
    return Workspace.open(tiny).params.cells("tiny")[0].trials[0]


def never(*arguments: Any) -> Any:
    """In the place of what must not be called."""
    pytest.fail("a trial was run")


def run(config: TrialConfig, job: Job) -> Told:
    """Attempt a trial."""
    return attempt(config.id, config.canonical(), job)


def raising(error: BaseException) -> Any:
    """In the place of a function: raises."""

    def function(*arguments: Any, **options: Any) -> Any:
        raise error

    return function


def test_a_trial_leaves_its_record_and_its_program(
    config: TrialConfig, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[dict[str, Any]] = []
    monkeypatch.setattr(pipeline.worker.tune, "report", reports.append)
    trainable({"trial": 1}, [("another", {}), (config.id, config.canonical())], job)
    store = Store(job.store)
    record = store.read(config.id)
    assert store.ids() == {config.id} and store.check() == []
    assert reports == [{"told": Told(config.id, record["result"])._asdict()}]
    assert record["result"]["steps"] == 100 and record["environment"]["threads"] == 1


def test_a_trial_that_is_in_the_store_already_is_told_and_not_run(
    config: TrialConfig, job: Job, finish: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline.worker, "run_trial", never)
    record = finish(Store(job.store), config, seconds=7.0)
    assert run(config, job) == Told(config.id, record["result"])


def test_other_code_than_the_sweeps_is_refused(config: TrialConfig, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline.worker, "run_trial", never)
    told = attempt("0" * 64, config.canonical(), job)
    words = "the code of fut was changed after the sweep started; start the sweep again"
    assert told.failure is not None and words in told.failure
    assert Store(job.store).failures()["0" * 64]["message"] == words and Store(job.store).ids() == set()


def test_a_fault_leaves_its_traceback_and_a_success_removes_it(config: TrialConfig, job: Job) -> None:
    store = Store(job.store)
    obstacle = store.program_path(config.id)
    obstacle.mkdir(parents=True)
    told = run(config, job)
    assert store.ids() == set() and told.result is None and told.unusable is None
    failure = store.failures()[config.id]
    assert (failure["study"], failure["error"], failure["config"]) == ("tiny", "IsADirectoryError", config.canonical())
    assert "save_arrays" in failure["traceback"] and failure["traceback"] == told.failure
    obstacle.rmdir()
    assert run(config, job) == Told(config.id, store.read(config.id)["result"])
    assert store.failures() == {}


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_an_end_of_the_process_is_no_failure_of_the_trial(
    error: BaseException, config: TrialConfig, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline.worker, "run_trial", raising(error))
    with pytest.raises(type(error)):
        run(config, job)
    store = Store(job.store)
    assert store.ids() == set() and store.failures() == {}


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 7 TiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory: you tried"),
        pipeline.worker.torch.OutOfMemoryError("CUDA out of memory"),
    ],
)
def test_a_trial_without_enough_memory_names_the_settings(
    error: Exception, config: TrialConfig, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline.worker, "run_trial", raising(error))
    assert run(config, job).result is None
    failure = Store(job.store).failures()[config.id]
    assert failure["error"] == "MemoryError" and failure["message"].startswith(str(error))
    assert "lower training.batch_size or the width, or raise cpus_per_trial" in failure["message"]


def test_a_store_that_vanished_is_named_and_nothing_trained(
    config: TrialConfig, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job.store / "store.json").unlink()
    monkeypatch.setattr(pipeline.worker, "run_trial", never)
    told = run(config, job)
    assert told.unusable is not None and "is not there" in told.unusable
    assert list(job.store.iterdir()) == []


def test_a_store_that_vanishes_in_mid_trial_is_named(
    config: TrialConfig, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_trial(*arguments: Any) -> Any:
        job.store.rename(job.store.with_name("moved"))
        raise OSError(errno.ENOENT, "No such file or directory", str(job.store))

    monkeypatch.setattr(pipeline.worker, "run_trial", run_trial)
    told = run(config, job)
    assert told.unusable is not None and "is not there" in told.unusable and not job.store.exists()


def test_a_full_disk_is_told_as_what_no_other_trial_can_pass(
    config: TrialConfig, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(pipeline.worker, "run_trial", raising(error))
    assert run(config, job).unusable == "[Errno 28] No space left on device; make room there"


def test_a_damaged_dataset_is_made_again_and_noticed(config: TrialConfig, job: Job) -> None:
    job.datasets.mkdir(parents=True)
    path = path_of(config.task, job.datasets)
    path.write_bytes(b"no dataset")
    told = run(config, job)
    assert told.result is not None
    (notice,) = told.notices
    assert notice.endswith(f"the card is missing. Set aside as {path.name}.set_aside and generated again")


def test_what_wandb_could_not_do_is_noticed_and_costs_no_record(
    config: TrialConfig, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline.tracking.wandb, "init", raising(ConnectionError("W&B is away")))
    told = run(config, job._replace(tracking=job.tracking._replace(mode="offline")))
    assert told.result == Store(job.store).read(config.id)["result"]
    (notice,) = told.notices
    assert notice.startswith("W&B: ") and "W&B is away" in notice


# A trial that hangs.  Its process is ended from below the interpreter, so these are processes of their own.

HANG = """
import sys, time
from pathlib import Path
import pipeline.worker
from pipeline.workspace import Workspace
from pipeline.tracking import Tracking

def run_trial(config, datasets, backbones, program, threads, gpus, on_epoch, programs):
    for _ in range(int(sys.argv[2])):
        time.sleep(0.5)
        on_epoch({})
    hang_here()

def hang_here():
    time.sleep(60)

pipeline.worker.run_trial = run_trial
workspace = Workspace.open(Path(sys.argv[1]))
tracking = Tracking("fut-tests", "disabled", workspace.root)
job = pipeline.worker.Job(
    "tiny", workspace.store.path, workspace.datasets, workspace.backbones, 1, 0, tracking, float(sys.argv[3])
)
trial = workspace.params.cells("tiny")[0].trials[0]
pipeline.worker.attempt(trial.id, trial.canonical(), job)
"""


@pytest.mark.slow
def test_a_trial_that_hangs_ends_its_worker_and_the_next_worker_says_where(
    tiny: Path, config: TrialConfig, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = subprocess.run([sys.executable, "-c", HANG, str(tiny), "0", "1"], capture_output=True, text=True)
    assert ended.returncode == 1 and ended.stdout == ""
    monkeypatch.setattr(pipeline.worker, "run_trial", never)
    told = run(config, job)
    failure = Store(job.store).failures()[config.id]
    assert failure["error"] == "TimeoutError" and "raise stalled_after" in failure["message"]
    assert told.failure == failure["traceback"] and "in hang_here" in failure["traceback"]
    forget_stalls(Store(job.store))
    monkeypatch.undo()
    assert run(config, job).result is not None


@pytest.mark.slow
def test_every_epoch_gives_a_trial_new_time(tiny: Path, config: TrialConfig, job: Job) -> None:
    ended = subprocess.run([sys.executable, "-c", HANG, str(tiny), "8", "2"], capture_output=True, text=True)
    assert ended.returncode == 1  # after 4 s of epochs and 2 s of none
    stack = stall_path(Store(job.store), config.id).read_text()
    assert "in hang_here" in stack, "it was ended while it made progress"


def test_a_trial_that_ends_leaves_nothing_of_its_timer(config: TrialConfig, job: Job) -> None:
    assert run(config, job).result is not None
    assert os.listdir(job.store / "stalled") == []
