"""Where everything lies."""

import os
from pathlib import Path

import pytest

from pipeline.workspace import Workspace


def test_folders_are_absolute_and_belong_to_the_configurations_folder(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tiny.parent)
    workspace = Workspace.open(Path("params.yaml"))
    os.chdir("/")
    root = tiny.parent
    assert workspace.root == root
    assert workspace.datasets == root / "artifacts/datasets"
    assert workspace.backbones == root / "artifacts/backbones"
    assert workspace.sweep("tiny") == root / "results/sweeps/tiny.json"
    assert (workspace.tables, workspace.figures) == (root / "results/tables", root / "results/figures")
    assert workspace.metrics == root / "results/metrics.json"
    assert workspace.store.path == root / "store"


def test_another_workspace_shares_the_store(tiny: Path, tmp_path: Path) -> None:
    workspace = Workspace.open(tiny, tmp_path / "made", ["other"])
    assert workspace.datasets == tmp_path / "made/artifacts/datasets"
    assert workspace.store.path == tiny.parent / "store"
    assert list(workspace.run_cells()) == ["other"]
    tiny.write_text(f"store: {tmp_path}/elsewhere\n" + tiny.read_text())
    assert Workspace.open(tiny).store.path == tmp_path / "elsewhere"


def test_an_unknown_study_ends_with_status_2(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        Workspace.open(tiny, None, ["tinny"])
    assert exit_.value.code == 2
    assert capsys.readouterr().err == "--run[0]: unknown study 'tinny': did you mean 'tiny'?\n"
