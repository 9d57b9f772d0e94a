"""Made-up records are such as the pipeline takes for real ones."""

import pytest
from rich.console import Console

import analysis
from benchmarks.aggregation import PARAMS, fill
from pipeline.sweep import run_sweep
from pipeline.tables import build_tables
from pipeline.workspace import Workspace


@pytest.fixture
def workspace(tmp_path) -> Workspace:
    """The benchmark's grid, but for its widths, seeds and learning rates: 200 trials."""
    small = PARAMS.replace("[8, 16, 32, 64, 96]", "[8]").replace("[0, 1, 2, 3, 4]", "[0]")
    path = tmp_path / "params.yaml"
    path.write_text(small.replace("[0.001, 0.003, 0.01, 0.03]", "[0.01]"))
    return Workspace.open(path)


def test_a_sweep_and_the_tables_accept_made_up_records(workspace: Workspace) -> None:
    trials = [trial for cell in workspace.params.cells("many") for trial in cell.trials]
    fill(workspace.store, trials)
    assert run_sweep(workspace, "many", Console(quiet=True)) == 0  # every record and program is checked, none runs
    build_tables(workspace)
    found = analysis.load("trials", workspace.tables)
    assert len(found) == len(trials) == 200
    assert len(analysis.load("epochs", workspace.tables)) == 20 * 200
    assert len(analysis.load("curves", workspace.tables)) == 200
    assert len(analysis.load("failures", workspace.tables)) == 0


def test_the_grid_of_the_benchmark_has_twenty_thousand_trials(tmp_path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(PARAMS)
    cells = Workspace.open(path).params.cells("many")
    assert sum(len(cell.seeds) * len(cell.learning_rates) for cell in cells) == 20_000
