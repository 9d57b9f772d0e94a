"""One study to its picture: `make quick`."""

from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

import analysis
import pipeline.quick
import pipeline.sweep
from fut.trial import run_trial
from pipeline.quick import main
from pipeline.store import StoreError
from pipeline.workspace import Workspace


@pytest.fixture
def stored(tiny: Path) -> Workspace:
    """The two-width study with all four trials in the store."""
    tiny.write_text(tiny.read_text().replace("{steps: 100}", "{steps: 10, steps_per_epoch: 5, warmup_steps: 2}"))
    workspace = Workspace.open(tiny, tiny.parent / "parts")
    store = workspace.store
    store.create()
    for cell in workspace.params.cells("tiny"):
        for trial in cell.trials:
            store.write(run_trial(trial, workspace.datasets, workspace.backbones, store.program_path(trial.id)))
    return workspace


def test_one_study_goes_to_its_picture_in_a_folder_of_its_own(
    stored: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pipeline.sweep, "_run_trials", lambda *arguments: pytest.fail("a trial was run"))
    folder = tmp_path / "made"
    # `run` names another study, whose results must not be touched
    stored.params_path.write_text(stored.params_path.read_text().replace("run: [tiny]", "run: [other]"))
    main("tiny", stored.params_path, folder)
    trials, curves = (analysis.load(name, folder / "results" / "tables") for name in ("trials", "curves"))
    assert set(trials["study"]) == {"tiny"} and len(trials) == 4
    assert sorted(curves["width"]) == [8, 12]
    expected = [record["result"]["test_accuracy"] for record in map(stored.store.read, trials["trial"])]
    pd.testing.assert_series_equal(trials["test_accuracy"], pd.Series(expected, name="test_accuracy"))
    assert (folder / "results" / "figures" / "tiny.png").read_bytes().startswith(b"\x89PNG")
    assert analysis.load("transfer", folder / "results" / "tables").empty  # a stage of its own, which has not run
    assert not (folder / "results" / "figures" / "transfer.png").exists()
    assert {path.name for path in stored.params_path.parent.iterdir()} == {"params.yaml", "store", "parts"}
    output = capsys.readouterr().out
    assert "tiny: all 4 trials are in the store" in output
    assert str(folder / "results" / "figures") in output and str(folder / "results" / "tables") in output


def test_a_sweep_that_is_not_complete_ends_it_before_the_tables(
    stored: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline.quick, "run_sweep", lambda *arguments: 130)
    with pytest.raises(SystemExit) as exit_:
        main("tiny", stored.params_path, tmp_path / "made")
    assert exit_.value.code == 130
    assert not (tmp_path / "made" / "results").exists()


def test_a_fault_of_the_store_is_said_without_a_traceback(
    stored: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(workspace: Workspace, study: str, console: Console) -> int:
        raise StoreError("the store is away")

    monkeypatch.setattr(pipeline.quick, "run_sweep", away)
    with pytest.raises(SystemExit, match="tiny: the store is away"):
        main("tiny", stored.params_path, tmp_path / "made")


def test_an_unknown_study_ends_with_status_2(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main("tinny", tiny, tmp_path / "made")
    assert exit_.value.code == 2
    assert "did you mean 'tiny'" in capsys.readouterr().err
    assert not (tmp_path / "made").exists()
