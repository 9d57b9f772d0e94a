"""Logging to Weights & Biases: a run of its own for every trial, flat, complete, finished, and offline by default."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import wandb

from fut.config import TrialConfig
from pipeline.params import load_params
from pipeline.tracking import Tracking, decide_mode, flat, tracked


@pytest.mark.parametrize(
    ("params", "mode", "key", "decided"),
    [
        ("auto", None, None, "offline"),
        ("auto", None, "k" * 40, "online"),
        ("auto", "offline", "k" * 40, "offline"),
        ("auto", "online", None, "online"),
        ("auto", "disabled", None, "disabled"),
        ("auto", "", "", "offline"),  # set, but empty: not set
        ("offline", None, "k" * 40, "offline"),
        ("online", None, None, "online"),
        ("disabled", None, "k" * 40, "disabled"),
        ("online", "disabled", "k" * 40, "disabled"),
        ("disabled", "offline", None, "offline"),
    ],
)
def test_the_mode_is_wandb_mode_then_params_then_whether_there_is_a_key(
    params: str, mode: str | None, key: str | None, decided: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("WANDB_MODE", mode), ("WANDB_API_KEY", key)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert decide_mode(params) == decided


def trials(tiny: Path) -> list[TrialConfig]:
    """Four small trials."""
    return [trial for cell in load_params(tiny).cells("tiny") for trial in cell.trials]


def epoch(number: int) -> dict[str, float | int | None]:
    """A row of an epoch."""
    return {
        "epoch": number, "step": 10 * number, "learning_rate": 0.01, "train_loss": 2.0 / number, "val_loss": 1.5,
        "val_accuracy": 0.5, "val_nmse": None, "seconds": 0.1,
    }  # fmt: skip


RECORD = {
    "result": {"test_accuracy": 0.75, "nmse": None, "steps": 20, "stop_reason": "budget"},
    "references": {"reference_majority": 0.25},
}


def inspect(folder: Path) -> list[dict[str, Any]]:
    """The entries of an offline run's file."""
    read = subprocess.run(
        [str(Path(sys.executable).with_name("wandb")), "leet", "inspect", "--json", str(folder)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [json.loads(line) for line in read.stdout.splitlines()]


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the machine's owner counts."""
    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_DIR", "WANDB_PROJECT", "WANDB_RUN_ID", "WANDB_RUN_GROUP"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.slow
@pytest.mark.usefixtures("offline")
def test_trials_one_after_the_other_in_a_process_have_runs_of_their_own(tiny: Path, tmp_path: Path) -> None:
    tracking = Tracking("laboratory", "offline", tmp_path / "made" / "here")
    run = trials(tiny)[:3]
    for config in run[:2]:
        with tracked(config, "tiny", tracking) as logged:
            logged.log_epoch(epoch(1))
            logged.log_epoch(epoch(2))
            logged.summarise(RECORD)
        assert logged.problem is None
    with pytest.raises(ZeroDivisionError), tracked(run[2], "tiny", tracking) as logged:
        logged.log_epoch(epoch(1))
        raise ZeroDivisionError
    assert wandb.run is None  # nothing is left open for the next trial to land in

    folders = sorted(tracking.folder.glob("wandb/offline-run-*"), key=lambda folder: folder.stat().st_mtime)
    assert len(folders) == 3
    read = {}
    for folder in folders:
        entries = inspect(folder)
        (head,) = (entry["run"] for entry in entries if entry["type"] == "run")
        read[head["config"]["update"]["trial"]] = (head, entries)
    assert read.keys() == {config.id for config in run}
    for config in run:
        head, entries = read[config.id]
        assert (head["project"], head["run_group"], head["job_type"]) == ("laboratory", "tiny", "trial")
        assert head["display_name"] == config.id[:12]
        assert head["tags"] == ["khop", "random", "attention"]
        assert_flat_and_complete(head["config"]["update"], config)
        history = [entry["history"]["item"] for entry in entries if entry["type"] == "history"]
        assert [row["epoch"] for row in history] == ([1] if config is run[2] else [1, 2])
        assert history[0]["train_loss"] == 2.0 and "val_nmse" not in history[0]
        (steps,) = (entry["metric"] for entry in entries if entry["type"] == "metric")
        assert (steps["glob_name"], steps["step_metric"]) == ("*", "epoch")
        summary: dict[str, Any] = {}
        for entry in entries:
            summary |= entry["summary"]["update"] if entry["type"] == "summary" else {}
        (end,) = (entry["exit"] for entry in entries if entry["type"] == "exit")
        if config is run[2]:
            assert end["exit_code"] == 1 and "test_accuracy" not in summary
        else:
            assert end["exit_code"] == 0
            assert (summary["test_accuracy"], summary["reference_majority"]) == (0.75, 0.25)
            assert summary["steps"] == 20 and "nmse" not in summary


def assert_flat_and_complete(config: dict[str, Any], trial: TrialConfig) -> None:
    """Whether a run's configuration has every field of the trial and of its backbone's recipe, one level deep."""
    values = {name: value for name, value in config.items() if name != "_wandb"}
    assert not [name for name, value in values.items() if isinstance(value, dict | list)]
    assert (values["study"], values["trial"]) == ("tiny", trial.id)
    for name in ("width", "heads", "layers", "seed", "learning_rate", "components", "trainable"):
        assert values[name] == getattr(trial, name)
    assert (values["task"], values["backbone"]) == (trial.task.name, trial.backbone.kind)
    expected = {**trial.canonical()["task"], **trial.canonical()["training"]}
    expected |= {"residual": False, "layernorm": False, "mlp": False}
    recipe = trial.recipe.model_dump(exclude={"kind", "seed", "unembedding"}, exclude_none=True)
    for name, value in {**expected, **recipe}.items():
        if name != "name":
            assert values[name] == value, name


class FakeRun:
    """In the place of a run of W&B: an NMSE in its summary, and a finish."""

    def __init__(self) -> None:
        self.summary: dict[str, Any] = {}
        self.codes: list[int] = []

    def define_metric(self, *arguments: Any, **options: Any) -> None: ...

    def finish(self, exit_code: int) -> None:
        self.codes.append(exit_code)


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt, SystemExit])
def test_a_run_is_finished_once_whatever_happens(
    error: type[BaseException] | None, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, given = FakeRun(), []
    monkeypatch.setattr(wandb, "setup", lambda settings: SimpleNamespace(settings=settings))
    monkeypatch.setattr(wandb, "init", lambda **options: given.append(options) or run)
    try:
        with tracked(trials(tiny)[0], "tiny", Tracking("p", "online", tmp_path / "runs")) as logged:
            logged.summarise({"result": {"nmse": 0.02, "test_accuracy": None}, "references": {}})
            if error:
                raise error
    except BaseException as raised:
        assert type(raised) is error
    assert run.codes == [1 if error else 0]
    assert run.summary == {"nmse": 0.02}
    assert given[0]["mode"] == "online" and given[0]["dir"] == tmp_path / "runs" and (tmp_path / "runs").is_dir()
    assert given[0]["reinit"] == "create_new"


def test_a_field_of_the_target_and_one_of_the_backbone_do_not_share_a_name() -> None:
    trial = TrialConfig(
        task={"name": "simulate", "target_dim": 2, "target_qk_dim": 3}, backbone={"kind": "random", "qk_dim": 5},
        heads=1, layers=1, width=8, learning_rate=0.01, seed=0,
    )  # fmt: skip
    values = flat(trial.canonical())
    assert (values["target_qk_dim"], values["qk_dim"]) == (3, 5)
    leaves = [name for part in trial.canonical().values() if isinstance(part, dict) for name in part]
    names = [*leaves, *(name for name, part in trial.canonical().items() if not isinstance(part, dict))]
    assert len(set(names)) == len(names)
