"""A trial in a worker: its record in the store, or why there is none."""

from pathlib import Path
from typing import Any

import pytest

import pipeline.worker
from fut.config import TrialConfig
from pipeline.store import Store, StoreError
from pipeline.tracking import Tracking
from pipeline.worker import Job, run_and_store, trainable
from pipeline.workspace import Workspace


@pytest.fixture
def job(tiny: Path) -> Job:
    """A sweep's job, with its store."""
    workspace = Workspace.open(tiny)
    workspace.store.create()
    tracking = Tracking("fut-tests", "disabled", workspace.root)
    return Job("tiny", workspace.store.path, workspace.datasets, workspace.backbones, 1, 0, tracking)


@pytest.fixture
def config(tiny: Path) -> TrialConfig:
    """A trial."""
    return Workspace.open(tiny).params.cells("tiny")[0].trials[0]


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What is reported to Tune."""
    reported: list[dict[str, Any]] = []
    monkeypatch.setattr(pipeline.worker.tune, "report", reported.append)
    return reported


def never(*arguments: Any) -> Any:
    """In the place of what must not be called."""
    pytest.fail("a trial was run")


def test_a_trial_leaves_its_record_and_its_program(
    config: TrialConfig, job: Job, reports: list[dict[str, Any]]
) -> None:
    trainable({"trial": 1}, [("another", {}), (config.id, config.canonical())], job)
    store = Store(job.store)
    record = store.read(config.id)
    assert store.ids() == {config.id} and store.check() == []
    assert reports == [{"trial": config.id, **record["result"]}]
    assert record["result"]["steps"] == 100 and record["environment"]["threads"] == 1


def test_a_trial_that_is_in_the_store_already_is_reported_and_not_run(
    config: TrialConfig, job: Job, reports: list[dict[str, Any]], finish: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline.worker, "run_trial", never)
    finish(Store(job.store), config, seconds=7.0)
    trainable({"trial": 0}, [(config.id, config.canonical())], job)
    assert reports[0]["train_seconds"] == 7.0


def test_other_code_than_the_sweeps_is_refused(
    config: TrialConfig, job: Job, reports: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline.worker, "run_trial", never)
    with pytest.raises(RuntimeError, match="code of fut was changed after the sweep started; start the sweep again"):
        trainable({"trial": 0}, [("0" * 64, config.canonical())], job)
    assert reports == [] and Store(job.store).ids() == set()
    assert Store(job.store).failures()["0" * 64]["message"].startswith("the code of fut was changed")


def test_a_fault_leaves_its_traceback_and_a_success_removes_it(config: TrialConfig, job: Job) -> None:
    store = Store(job.store)
    obstacle = store.program_path(config.id)
    obstacle.mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        run_and_store(config, job)
    assert store.ids() == set()
    failure = store.failures()[config.id]
    assert (failure["study"], failure["error"], failure["config"]) == ("tiny", "IsADirectoryError", config.canonical())
    assert "save_program" in failure["traceback"]
    obstacle.rmdir()
    record = run_and_store(config, job)
    assert store.failures() == {} and store.read(config.id) == record


def test_an_interruption_is_no_failure_of_the_trial(
    config: TrialConfig, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline.worker, "run_trial", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_and_store(config, job)
    store = Store(job.store)
    assert store.ids() == set() and store.failures() == {}


def test_a_store_that_vanished_is_named_and_nothing_trained(
    config: TrialConfig, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job.store / "store.json").unlink()
    monkeypatch.setattr(pipeline.worker, "run_trial", never)
    with pytest.raises(StoreError, match="is not there"):
        run_and_store(config, job)


def test_a_fault_of_wandb_after_training_does_not_cost_the_record(
    config: TrialConfig, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(run: Any, record: Any) -> None:
        raise ConnectionError("W&B is away")

    monkeypatch.setattr("pipeline.tracking.TrackedRun.summarise", broken)
    assert run_and_store(config, job)["trial"] == config.id
    assert Store(job.store).ids() == {config.id} and not Store(job.store).failures()
