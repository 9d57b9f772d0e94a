"""The last words of a run."""

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import pipeline.summary
from analysis import schema
from analysis.curves import curves
from pipeline.summary import main, summarise
from pipeline.workspace import Workspace


def test_failures_are_counted_and_a_study_without_cells_is_named(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failure = dict.fromkeys(schema.FAILURES.names) | {"study": "tiny", "cell": "c0", "trial": "a" * 64}
    failures = schema.to_frame(schema.to_table("failures", [failure | {"reason": "failed", "error": "no"}]))
    none = schema.to_frame(schema.to_table("trials", []))
    tables: dict[str, Any] = {"failures": failures, "curves": curves(none, failures)}
    monkeypatch.setattr(pipeline.summary, "load", lambda name, folder: tables[name])
    said = io.StringIO()
    summarise(Workspace.open(tiny), Console(file=said, width=200))
    assert "tiny: 0 cells, 0 trials, 0.0 minutes of training" in said.getvalue()
    assert "1 trials failed or are missing: see the table failures" in said.getvalue()


def test_without_tables_the_command_says_what_to_run(tiny: Path) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(tiny)
    assert exit_.value.code == 1
