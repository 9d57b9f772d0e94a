"""The plan: counts and core-hours before anything runs."""

from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from fut.config import TrialConfig
from fut.record import Record
from pipeline.estimate import Estimator
from pipeline.plan import count, main, plan, read_records
from pipeline.store import Store
from pipeline.workspace import Workspace

Finish = Callable[..., Record]


def printed(workspace: Workspace) -> str:
    console = Console(file=StringIO(), width=160, highlight=False, soft_wrap=True)
    plan(workspace, console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def row(text: str, study: str) -> list[str]:
    return next(line for line in text.splitlines() if line.startswith(study)).split()


@pytest.fixture
def workspace(tiny: Path) -> Workspace:
    opened = Workspace.open(tiny)
    opened.store.create()
    return opened


def test_before_anything_has_run_core_hours_are_unknown(tiny: Path) -> None:
    text = printed(Workspace.open(tiny))  # without a store
    assert row(text, "tiny")[1:7] == ["yes", "2", "4", "0", "4", "unknown"]
    assert row(text, "other")[1:7] == ["-", "1", "1", "0", "1", "unknown"]
    assert row(text, "this run")[2:7] == ["2", "4", "0", "4", "unknown"]
    assert "two widths of two backbones" in text
    assert "4 trials to train, and as many W&B runs" in text
    assert not (tiny.parent / "store").exists()


def test_core_hours_come_from_the_records(workspace: Workspace, finish: Finish) -> None:
    trials = [trial for cell in workspace.params.cells("tiny") for trial in cell.trials]
    finish(workspace.store, trials[0], seconds=1800.0, steps=50, threads=2)
    # 1800 s on 2 threads for 50 steps: 72 core-seconds a step; 3 trials of 100 steps are 6 core-hours
    assert row(printed(workspace), "tiny")[1:7] == ["yes", "2", "4", "1", "3", "6"]
    # the other study has another backbone: the same task decides, 200 steps are 4 core-hours
    assert row(printed(workspace), "other")[1:7] == ["-", "1", "1", "0", "1", "4"]
    for trial in trials[1:]:
        finish(workspace.store, trial)
    text = printed(workspace)
    assert row(text, "this run")[2:7] == ["2", "4", "4", "0", "0"]
    assert "nothing is missing" in text


def test_the_finest_group_that_has_records_decides_by_its_median(workspace: Workspace) -> None:
    (random,) = {cell.first.backbone.kind: cell.first for cell in workspace.params.cells("tiny")}.values()
    sparse = workspace.params.cells("other")[0].first

    def record(kind: str, components: str, seconds: float, task: str = "khop") -> Record:
        return {
            "config": {"task": {"name": task}, "backbone": {"kind": kind}, "components": components},
            "result": {"train_seconds": seconds, "steps": 10},
            "environment": {"threads": 1},
        }

    def cost(trial: TrialConfig, *records: Record) -> float | None:
        return Estimator(records).core_seconds(trial)

    same = [record("random", "attention", seconds) for seconds in (1.0, 2.0, 90.0)]
    assert cost(random, *same, record("random", "residual", 500.0)) == 2.0 / 10 * 100
    assert cost(random, record("random", "residual", 5.0), record("sparse", "attention", 900.0)) == 5.0 / 10 * 100
    assert cost(sparse, record("random", "residual", 7.0)) == 7.0 / 10 * 200
    assert cost(sparse, record("sparse", "attention", 7.0, task="dyck")) is None


def test_a_trial_of_two_studies_is_counted_once(tiny: Path, finish: Finish) -> None:
    body = tiny.read_text().split("studies:\n")[1].split("  other:")[0].replace("tiny:", "twin:")
    tiny.write_text(tiny.read_text().replace("run: [tiny]", "run: [tiny, twin]") + body.replace("[8, 12]", "[12, 16]"))
    workspace = Workspace.open(tiny)
    workspace.store.create()
    finish(workspace.store, workspace.params.cells("twin")[0].trials[0])
    text = printed(workspace)
    assert row(text, "tiny")[2:6] == row(text, "twin")[2:6] == ["2", "4", "1", "3"]
    assert row(text, "this run")[2:6] == ["3", "6", "1", "5"]
    assert "2 trials belong to several studies of the run; they run once and are counted once." in text
    assert "5 trials to train" in text


def test_unreadable_records_count_as_missing(workspace: Workspace, finish: Finish) -> None:
    trial = workspace.params.cells("tiny")[0].trials[0]
    finish(workspace.store, trial)
    workspace.store.record_path(trial.id).write_text("{")
    text = printed(workspace)
    assert row(text, "tiny")[4:6] == ["0", "4"]
    assert "1 records cannot be read" in text
    assert workspace.store.record_path(trial.id).exists()  # a plan changes nothing


def test_a_partly_known_estimate_says_so(workspace: Workspace, finish: Finish) -> None:
    cells = workspace.params.cells("tiny")
    finish(workspace.store, cells[0].trials[0], seconds=3600.0, steps=100)
    stored, estimator, _ = read_records(workspace.store)
    text = Path(workspace.params_path).read_text().replace("{name: khop, length: 8", "{name: dyck")
    workspace.params_path.write_text(text)
    dyck = Workspace.open(workspace.params_path).params.cells("tiny")
    both = count([*cells, *dyck], stored, estimator)
    assert (both.cells, both.trials, both.missing) == (4, 8, 7)
    assert both.core_hours == "3 + unknown (4 trials)"


def test_reading_an_empty_store_finds_nothing(tmp_path: Path) -> None:
    assert read_records(Store(tmp_path / "none"))[0] == set()


def test_brackets_in_a_line_about_a_study_are_text(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny.write_text(tiny.read_text().replace("about: two widths of two backbones", 'about: "see [/b] and [red]"'))
    main(tiny)
    assert "see [/b] and [red]" in capsys.readouterr().out
