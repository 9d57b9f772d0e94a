"""The stage of the figures: a picture for each study of `run` and one of the transfer, as PNG and as Vega-Lite."""

import sys
from functools import partial

from analysis.figures import figure, save
from analysis.schema import TableError, load
from analysis.transfer import NAME, transfer_figure
from pipeline.command import run_command
from pipeline.workspace import PARAMS, ParamsOption, Workspace, WorkspaceOption


def draw_figures(workspace: Workspace) -> None:
    """Draw every study of `run`, and the transfer where its table holds any, and say where each picture is.

    Raises:
        TableError: a table is missing, of another version, or holds no cell of a study.
    """
    curves, transfer = load("curves", workspace.tables), load(NAME, workspace.tables)
    sources = workspace.results / "vega"  # a folder of their own: DVC would take them for plots' data
    studies = workspace.params.studies
    charts = {study: partial(figure, curves, study, studies[study].about) for study in workspace.params.run}
    if len(transfer):
        charts[NAME] = partial(transfer_figure, transfer)
    for name, draw in charts.items():
        picture = workspace.figures / f"{name}.png"
        save(draw(), picture, sources / f"{name}.json")
        print(f"figures: {picture}")
    for path in [*workspace.figures.iterdir(), *sources.iterdir()]:
        if path.stem not in charts:
            path.unlink()


def main(params: ParamsOption = PARAMS, workspace: WorkspaceOption = None) -> None:
    """Draw one picture for each study of `run`, and that of the transfer."""
    opened = Workspace.open(params, workspace)
    try:
        draw_figures(opened)
    except TableError as error:
        print(f"figures: {error}", file=sys.stderr)
        raise SystemExit(1) from error


if __name__ == "__main__":
    run_command(main)
