"""The last words of a run: what was learned, and where the tables and pictures are."""

import sys

from rich import box
from rich.console import Console
from rich.table import Table

from analysis.findings import best, sentences
from analysis.schema import TableError, load
from pipeline.command import run_command
from pipeline.workspace import PARAMS, ParamsOption, Workspace, WorkspaceOption

PIPED_WIDTH = 120  # columns; a pipe has no width of its own


def summarise(workspace: Workspace, console: Console) -> None:
    """Print the summary of every study of `run`.

    Raises:
        TableError: a table is missing, or of another version.
    """
    curves, failures = load("curves", workspace.tables), load("failures", workspace.tables)
    for study in workspace.params.run:
        cells = curves[curves["study"] == study].reset_index(drop=True)
        seconds = cells["train_seconds"].sum()
        console.print(
            f"\n[bold]{study}[/bold]: {len(cells)} cells, {cells['n_trials'].sum()} trials, "
            f"{seconds / 60:.1f} minutes of training",
            highlight=False,
        )
        if cells.empty:
            continue
        means = best(cells)
        metric = "NMSE" if cells["criterion_metric"].eq("nmse").all() else "accuracy"
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column(f"best mean test {metric} over seeds", overflow="fold")
        for name in means.columns:
            table.add_column(str(name), justify="right")
        for place, row in means.iterrows():
            table.add_row(str(place), *map(str, row))
        console.print(table)
        for sentence in sentences(cells):
            console.print(f"- {sentence}", markup=False, highlight=False)
    if len(failures):
        console.print(f"\n{len(failures)} trials failed or are missing: see the table failures", highlight=False)
    console.print(
        f"\nTables   {workspace.tables} (Parquet, with CSV copies; described in docs/tables.md)\n"
        f"Pictures {workspace.figures} (or: dvc plots show)",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def main(params: ParamsOption = PARAMS, workspace: WorkspaceOption = None) -> None:
    """Say what the studies of `run` have shown."""
    opened = Workspace.open(params, workspace)
    console = Console() if sys.stdout.isatty() else Console(width=PIPED_WIDTH)
    try:
        summarise(opened, console)
    except TableError as error:
        print(f"summary: {error}", file=sys.stderr)
        raise SystemExit(1) from error


if __name__ == "__main__":
    run_command(main)
