"""One small study from its grid to its picture, in a folder of its own: `make quick`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from analysis.schema import TableError
from pipeline.backbones import build_backbones
from pipeline.command import run_command
from pipeline.datasets import build_datasets
from pipeline.figures import draw_figures
from pipeline.store import StoreError
from pipeline.summary import summarise
from pipeline.sweep import run_sweep
from pipeline.tables import TablesError, build_tables
from pipeline.workspace import PARAMS, ParamsOption, Workspace


def main(
    study: Annotated[str, typer.Argument(help="a study of params.yaml")] = "quick",
    params: ParamsOption = PARAMS,
    workspace: Annotated[Path, typer.Option(help="folder that receives artifacts and results")] = Path("quick"),
) -> None:
    """Run one study through every stage, beside the results of `run:`; it shares the trial store with them."""
    opened = Workspace.open(params, workspace, [study])
    build_datasets(opened)
    build_backbones(opened)
    try:
        if status := run_sweep(opened, study, Console(soft_wrap=True, markup=False)):
            raise SystemExit(status)
        build_tables(opened)
        draw_figures(opened)
        summarise(opened, Console(soft_wrap=True))
    except (StoreError, TablesError, TableError) as error:
        raise SystemExit(f"{study}: {error}") from error


if __name__ == "__main__":
    run_command(main)
