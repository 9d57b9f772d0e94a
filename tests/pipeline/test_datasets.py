"""The stage of the datasets."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pipeline.datasets
from fut.files import SUFFIX, card_path, load_arrays
from pipeline.datasets import build_datasets
from pipeline.workspace import Workspace


def test_the_stage_builds_what_the_run_names_and_nothing_twice(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workspace = Workspace.open(tiny, None, ["tiny", "other"])
    first = build_datasets(workspace)
    assert (first.built, first.kept, first.removed) == (1, 0, 0)  # both studies read the same data
    cells = workspace.params.cells("tiny")
    arrays, card = load_arrays(workspace.datasets / f"{cells[0].first.dataset_id}{SUFFIX}")
    assert card["splits"]["train"]["sequences"] == len(arrays["train/inputs"]) == 400
    assert "reference_one_token" in card["references"]
    second = build_datasets(workspace)
    assert (second.built, second.kept) == (0, 1)
    assert capsys.readouterr().out.splitlines()[1] == f"datasets: 0 built, 1 up to date ({workspace.datasets})"


def test_damaged_data_are_named_and_made_again(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workspace = Workspace.open(tiny)
    build_datasets(workspace)
    (path,) = workspace.datasets.glob(f"*{SUFFIX}")
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    capsys.readouterr()
    done = build_datasets(workspace)
    output = capsys.readouterr()
    assert (done.built, done.kept, len(done.remade)) == (0, 0, 1)
    assert str(path) in output.err
    assert "1 damaged and made again" in output.out
    assert path.read_bytes() == whole
    assert path.with_name(f"{path.name}.set_aside").read_bytes() == whole[:100]


def test_data_that_no_study_names_any_more_go(tiny: Path) -> None:
    workspace = Workspace.open(tiny)
    build_datasets(workspace)
    (old,) = workspace.datasets.glob(f"*{SUFFIX}")
    (workspace.datasets / "notes.txt").write_text("mine")
    tiny.write_text(tiny.read_text().replace("length: 8", "length: 9"))
    done = build_datasets(Workspace.open(tiny))
    assert (done.built, done.removed) == (1, 1)
    assert not old.exists() and not card_path(old).exists()
    assert (workspace.datasets / "notes.txt").exists()


def test_the_command_runs_from_any_folder_and_refuses_bad_params_before_any_work(tiny: Path, tmp_path: Path) -> None:
    root = Path(pipeline.datasets.__file__).parent.parent
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    def command(*options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pipeline.datasets", *options],
            cwd=elsewhere,
            check=False,
            env={**os.environ, "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
        )

    good = command("--params", "../project/params.yaml", "--workspace", "made")
    assert good.returncode == 0, good.stderr
    assert len(list((elsewhere / "made" / "artifacts" / "datasets").glob(f"*{SUFFIX}"))) == 1
    tiny.write_text(tiny.read_text().replace("length", "lenght"))
    bad = command("--params", str(tiny), "--workspace", "bad")
    assert bad.returncode == 2
    assert "studies.tiny.base.task.lenght: unknown key 'lenght': did you mean 'length'?" in bad.stderr
    assert "studies.other.base.task.lenght" in bad.stderr
    assert not (elsewhere / "bad").exists()
