"""The stages of the figures and the summary: a picture for each study of the run, and the words at its end."""

import io
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from analysis import schema
from analysis.curves import curves
from pipeline import figures, summary
from pipeline.workspace import Workspace

BLANKS = {"string": "", "int64": 1, "double": 1.0, "bool": False}


@pytest.fixture
def tabled(tiny: Path) -> Callable[..., Workspace]:
    """A workspace whose tables hold a curve of two widths for each of some studies."""

    def make(*studies: str) -> Workspace:
        workspace = Workspace.open(tiny)
        blank = {field.name: None if field.nullable else BLANKS[str(field.type)] for field in schema.TRIALS}
        rows = [
            blank
            | {
                "study": study,
                "cell": str(width),
                "task": "khop",
                "task_parameters": '{"name": "khop", "hops": 1}',
                "hops": 1,
                "method": "learned",
                "backbone": "random",
                "components": "attention",
                "trainable": "program",
                "width": width,
                "seed": seed,
                "criterion_metric": "test_accuracy",
                "criterion_value": 0.9,
                "val_accuracy": 0.9,
                "train_seconds": 60.0,
                "test_accuracy": width / 16,
                "references": '{"reference_one_token": 0.45}',
            }
            for study in studies
            for width in (8, 16)
            for seed in range(3)
        ]
        found: pd.DataFrame = curves(schema.to_frame(schema.to_table("trials", rows)))
        table = schema.to_table("curves", schema.to_rows(found.drop(columns="schema_version")))
        schema.write(table, workspace.tables)
        schema.write(schema.to_table("failures", []), workspace.tables)
        schema.write(schema.to_table("transfer", []), workspace.tables)
        return workspace

    return make


def test_a_picture_for_each_study_of_the_run_and_no_other(tabled: Callable[..., Workspace]) -> None:
    workspace = tabled("tiny", "other")
    workspace.figures.mkdir(parents=True)
    (workspace.figures / "dropped.png").write_text("of a study that is no longer run")
    figures.draw_figures(workspace)
    assert [path.name for path in workspace.figures.iterdir()] == ["tiny.png"]
    source = (workspace.results / "vega" / "tiny.json").read_text()
    assert "two widths of two backbones" in source  # the study's own line


@pytest.mark.parametrize("stage", [figures, summary])
def test_without_tables_the_stage_says_what_to_run(stage, tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        stage.main(tiny)
    assert ended.value.code == 1 and "dvc repro tables" in capsys.readouterr().err


def test_a_study_without_cells_is_named(tabled: Callable[..., Workspace], capsys: pytest.CaptureFixture[str]) -> None:
    workspace = tabled("other")
    with pytest.raises(SystemExit):
        figures.main(workspace.params_path)
    assert "no cell of study 'tiny'" in capsys.readouterr().err


def test_the_summary_says_what_was_learned_and_where_it_is(tabled: Callable[..., Workspace]) -> None:
    workspace = tabled("tiny")
    console = Console(width=200, record=True, file=io.StringIO())
    summary.summarise(workspace, console)
    text = console.export_text()
    for said in (
        "tiny: 2 cells, 6 trials, 6.0 minutes of training",
        "100.0 % (m = 16)",
        "16 is the smallest width tried that meets the criterion",
        f"{workspace.tables}",
        f"{workspace.figures}",
    ):
        assert said in text
    assert "failed or are missing" not in text


def test_the_summary_is_plain_in_a_pipe(tabled: Callable[..., Workspace], capsys: pytest.CaptureFixture[str]) -> None:
    summary.main(tabled("tiny").params_path)
    text = capsys.readouterr().out
    assert "\x1b" not in text and "No better" not in text and "random 1 of 2" in text


def test_the_transfer_has_a_picture_where_its_table_has_rows(tabled: Callable[..., Workspace]) -> None:
    workspace = tabled("tiny")
    blank = {field.name: None if field.nullable else BLANKS[str(field.type)] for field in schema.TRANSFER}
    row = blank | {"task": "dyck", "task_parameters": '{"name": "dyck"}', "backbone": "sparse"}
    del row["schema_version"]
    for rows, names in (([row], {"tiny", "transfer"}), ([], {"tiny"})):  # the picture of rows that have gone goes too
        schema.write(schema.to_table("transfer", rows), workspace.tables)
        figures.draw_figures(workspace)
        assert {path.stem for path in workspace.figures.iterdir()} == names
        assert {path.stem for path in (workspace.results / "vega").iterdir()} == names
    assert not (workspace.figures / "transfer.png").exists()
