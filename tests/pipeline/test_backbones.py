"""The stage of the backbones."""

from pathlib import Path

import pytest

from fut.backbones.files import load
from fut.files import SUFFIX
from pipeline.backbones import build_backbones
from pipeline.workspace import Workspace


def test_the_stage_builds_one_backbone_for_each_recipe(tiny: Path) -> None:
    workspace = Workspace.open(tiny, None, ["tiny", "other"])
    done = build_backbones(workspace)
    assert (done.built, done.kept) == (5, 0)  # two widths with two draws each, and one that draws nothing
    for cells in workspace.run_cells().values():
        for trial in (trial for cell in cells for trial in cell.trials):
            assert load(trial.recipe, workspace.backbones).card["digest"]
    again = build_backbones(workspace)
    assert (again.built, again.kept) == (0, 5)


def test_damaged_backbones_are_named_and_made_again_and_unnamed_ones_go(
    tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = Workspace.open(tiny, None, ["tiny", "other"])
    build_backbones(workspace)
    path = sorted(workspace.backbones.glob(f"*{SUFFIX}"))[0]
    whole = path.read_bytes()
    path.write_bytes(whole[:-4] + b"\x01\x02\x03\x04")
    done = build_backbones(workspace)
    assert (done.built, done.kept, len(done.remade)) == (0, 4, 1)
    assert str(path) in capsys.readouterr().err
    assert path.read_bytes() == whole
    fewer = build_backbones(Workspace.open(tiny, None, ["other"]))
    assert (fewer.built, fewer.kept, fewer.removed) == (0, 1, 4)
