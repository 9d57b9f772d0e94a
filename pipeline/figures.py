"""The stage of the figures: one picture a study of `run`, as PNG and as Vega-Lite."""

import sys

from analysis.figures import figure, save
from analysis.schema import TableError, load
from pipeline.command import run_command
from pipeline.workspace import PARAMS, ParamsOption, Workspace, WorkspaceOption


def draw_figures(workspace: Workspace) -> None:
    """Draw every study of `run` from the table of curves, and say where each picture is.

    Raises:
        TableError: the table is missing, of another version, or holds no cell of a study.
    """
    curves = load("curves", workspace.tables)
    sources = workspace.results / "vega"  # a folder of their own: DVC would take them for plots' data
    for study in workspace.params.run:
        picture = workspace.figures / f"{study}.png"
        save(figure(curves, study, workspace.params.studies[study].about), picture, sources / f"{study}.json")
        print(f"figures: {picture}")
    for path in [*workspace.figures.iterdir(), *sources.iterdir()]:
        if path.stem not in workspace.params.run:
            path.unlink()


def main(params: ParamsOption = PARAMS, workspace: WorkspaceOption = None) -> None:
    """Draw one picture for each study of `run`."""
    opened = Workspace.open(params, workspace)
    try:
        draw_figures(opened)
    except TableError as error:
        print(f"figures: {error}", file=sys.stderr)
        raise SystemExit(1) from error


if __name__ == "__main__":
    run_command(main)
