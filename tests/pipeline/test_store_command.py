"""The command `store check`: what it says, where, why, what to do next, and its exit status."""

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import pipeline.store
from fut.config import TrialConfig
from fut.record import Record
from pipeline.params import load_params
from pipeline.store import Store

Finish = Callable[..., Record]
NOTHING_TO_DO = "\nNo trial that was finished is missing.\n"
ROOT = Path(pipeline.store.__file__).parent.parent


@pytest.fixture
def trials(tiny: Path) -> list[TrialConfig]:
    params = load_params(tiny)
    return [trial for name in ("tiny", "other") for cell in params.cells(name) for trial in cell.trials]


@pytest.fixture
def filled(tiny: Path, trials: list[TrialConfig], finish: Finish) -> Store:
    """The store of a project whose study `tiny` is complete, with the trials of the study `other` too."""
    store = Store(tiny.parent / "store")
    store.create()
    for trial in trials:
        finish(store, trial)
    completion = tiny.parent / "results" / "sweeps" / "tiny.json"
    completion.parent.mkdir(parents=True)
    completion.write_text("{}")
    return store


class Said(NamedTuple):
    """How the command ended, and what it wrote."""

    status: int
    output: str
    errors: str


Check = Callable[[], Said]


@pytest.fixture
def check(tiny: Path, capsys: pytest.CaptureFixture[str]) -> Check:
    """The command, in this process."""

    def run() -> Said:
        code: Any = 0
        try:
            pipeline.store.check(params=tiny)
        except SystemExit as end:
            code = end.code
        output, errors = capsys.readouterr()
        return Said(1, output, f"{errors}{code}\n") if isinstance(code, str) else Said(code, output, errors)

    return run


def cut(store: Store, trial: TrialConfig) -> Path:
    path = store.record_path(trial.id)
    path.write_bytes(path.read_bytes()[:-40])
    return path


def test_it_says_what_was_wrong_where_it_is_now_and_how_to_run_it_again(
    tiny: Path, filled: Store, trials: list[TrialConfig], check: Check
) -> None:
    damaged = cut(filled, trials[0])
    run = subprocess.run(
        [sys.executable, "-m", "pipeline.store", "check"],
        cwd=tiny.parent, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 1 and not run.stderr
    first, counts, remedy = run.stdout.splitlines()
    before, moved = first.split("; set aside as ")
    assert before.startswith(f"{damaged}: not readable JSON (")
    assert Path(moved).parent == filled.path / "set_aside" and Path(moved).name.startswith(trials[0].id)
    assert Path(moved).exists()
    assert counts == f"{filled.path}: {len(trials) - 1} records are good, 1 set aside, 0 failures noted"
    assert remedy == (
        "Trials of tiny are missing. To run them: dvc repro --single-item --force sweep@tiny, then dvc repro"
    )
    again = counts.replace("1 set aside", "0 set aside")
    assert check() == Said(0, f"{again}\n{remedy}\n", "")  # and it says so until they have run


def test_a_study_whose_sweep_is_not_complete_needs_no_force(
    tiny: Path, filled: Store, trials: list[TrialConfig], check: Check
) -> None:
    (tiny.parent / "results" / "sweeps" / "tiny.json").unlink()
    cut(filled, trials[0])
    assert check().output.endswith("\nTrials of tiny are missing. To run them: dvc repro\n")


def test_trials_of_a_study_beside_the_run_are_run_by_quick(
    filled: Store, trials: list[TrialConfig], check: Check
) -> None:
    cut(filled, trials[-1])
    status, output, _ = check()
    assert status == 1
    assert output.endswith("\nTrials of other are missing. To run them: python -m pipeline.quick other\n")
    assert "tiny" not in output.splitlines()[-1]
    assert check().output.endswith(NOTHING_TO_DO)


def test_a_study_of_the_run_that_has_not_been_begun_lacks_nothing(tiny: Path, check: Check) -> None:
    store = Store(tiny.parent / "store")
    store.create()
    assert check() == Said(0, f"{store.path}: 0 records are good, 0 set aside, 0 failures noted{NOTHING_TO_DO}", "")


def test_a_second_copy_of_a_record_costs_no_trial(filled: Store, trials: list[TrialConfig], check: Check) -> None:
    path = filled.record_path(trials[0].id)
    (folder := path.parent.with_name("zz")).mkdir()
    (folder / path.name).write_bytes(path.read_bytes())
    status, output, _ = check()
    assert status == 1 and output.startswith(f"{folder / path.name}: the file is not named by its trial")
    assert output.endswith(NOTHING_TO_DO)
    assert check() == Said(
        0, f"{filled.path}: {len(trials)} records are good, 0 set aside, 0 failures noted{NOTHING_TO_DO}", ""
    )


def test_a_trial_whose_record_has_a_new_name_is_missed_too(
    filled: Store, trials: list[TrialConfig], check: Check
) -> None:
    path = filled.record_path(trials[0].id)
    path.rename(path.with_stem("copy"))
    status, output, _ = check()
    assert status == 1 and output.startswith(f"{path.with_stem('copy')}: the file is not named by its trial")
    assert "\nTrials of tiny are missing. To run them: dvc repro --single-item --force sweep@tiny" in output


def test_a_name_that_a_terminal_cannot_show_is_escaped(
    filled: Store, trials: list[TrialConfig], check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = cut(filled, trials[0])
    path.rename(path.with_name(os.fsdecode(b"\xff.json")))
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", terminal)
    assert check().status == 1
    terminal.seek(0)
    assert "\\udcff.json: not readable JSON" in terminal.read()


@pytest.mark.parametrize(
    ("marker", "says"),
    [
        (None, "is not there (no store.json); has a disk been unmounted, or the folder moved? Check `store`"),
        ("", "store.json: not readable JSON ("),
        ("[]", "store.json is not that of a trial store; move it away, or name another folder as `store`"),
    ],
    ids=["gone", "damaged", "something else"],
)
def test_a_store_that_cannot_be_checked_is_told_in_one_line(
    filled: Store, check: Check, marker: str | None, says: str
) -> None:
    path = filled.path / "store.json"
    path.unlink() if marker is None else path.write_text(marker)
    status, output, errors = check()
    assert status == 1 and says in errors and not output
    assert len(errors.splitlines()) == 1
