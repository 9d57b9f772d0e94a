"""What a run would do, before anything runs: cells, trials, what the store holds, what is missing, core-hours."""

from collections.abc import Iterable
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table

from fut.config import TrialConfig
from pipeline.command import run_command
from pipeline.estimate import Estimator
from pipeline.grid import Cell
from pipeline.store import CorruptRecord, Store
from pipeline.workspace import PARAMS, ParamsOption, RunOption, Workspace, WorkspaceOption

PIPED_WIDTH = 160  # columns; a pipe has no width of its own


@dataclass(frozen=True)
class Count:
    """A study in numbers, or all studies of a run together."""

    cells: int
    trials: int
    stored: int
    core_seconds: float  # of the missing trials that can be estimated
    unknown: int  # missing trials of which nothing like them has run yet

    @property
    def missing(self) -> int:
        """Trials still to run."""
        return self.trials - self.stored

    @property
    def core_hours(self) -> str:
        """The estimate in words."""
        if not self.missing:
            return "0"
        if self.unknown == self.missing:
            return "unknown"
        hours = f"{self.core_seconds / 3600:.2g}" if self.core_seconds < 36_000 else f"{self.core_seconds / 3600:,.0f}"
        return f"{hours} + unknown ({self.unknown} trials)" if self.unknown else hours


def count(cells: Iterable[Cell], stored: set[str], estimator: Estimator) -> Count:
    """The numbers of some cells; a cell or trial that comes twice counts once."""
    distinct = {cell.id: cell for cell in cells}
    trials: dict[str, TrialConfig] = {trial.id: trial for cell in distinct.values() for trial in cell.trials}
    missing = [trial for name, trial in trials.items() if name not in stored]
    costs = [estimator.core_seconds(trial) for trial in missing]
    known = [cost for cost in costs if cost is not None]
    return Count(len(distinct), len(trials), len(trials) - len(missing), sum(known), len(costs) - len(known))


def read_records(store: Store) -> tuple[set[str], Estimator, list[CorruptRecord]]:
    """The trials with a good record, the estimator made of them, and the records that cannot be read."""
    good, bad = {}, []
    for trial in sorted(store.ids()):
        try:
            good[trial] = store.read(trial)
        except CorruptRecord as error:
            bad.append(error)
    return set(good), Estimator(good.values()), bad


def plan(workspace: Workspace, console: Console) -> None:
    """Print the plan of a workspace."""
    store, params = workspace.store, workspace.params
    stored, estimator, bad = read_records(store)
    cells = {name: params.cells(name) for name in params.studies}
    table = Table(box=box.SIMPLE if console.is_terminal else None, pad_edge=False, title_justify="left")
    table.add_column("study", no_wrap=True)
    for heading in ("run", "cells", "trials", "stored", "missing", "core-hours"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("about")
    for name in sorted(params.studies, key=lambda name: (name not in params.run, list(params.studies).index(name))):
        row = count(cells[name], stored, estimator)
        table.add_row(name, "yes" if name in params.run else "-", *_numbers(row), params.studies[name].about)
    total = count((cell for name in params.run for cell in cells[name]), stored, estimator)
    table.add_row("this run", "", *_numbers(total), style="bold")
    console.print(table)
    console.print()
    several = sum(len({trial.id for cell in cells[name] for trial in cell.trials}) for name in params.run)
    for line in _notes(total, several - total.trials, bad, store):
        console.print(line)


def _numbers(row: Count) -> list[str]:
    return [f"{row.cells:,}", f"{row.trials:,}", f"{row.stored:,}", f"{row.missing:,}", row.core_hours]


def _notes(total: Count, shared: int, bad: list[CorruptRecord], store: Store) -> list[str]:
    """What the table's last row needs to be understood."""
    if not total.missing:
        notes = ["This run: nothing is missing, no trial will be trained."]
    else:
        hours = "an unknown number of" if total.core_hours == "unknown" else f"at most {total.core_hours}"
        notes = [
            f"This run: {total.missing:,} trials to train, and as many W&B runs, for {hours} core-hours "
            "(whole budgets of steps, at the speed of the records so far)."
        ]
    if total.unknown:
        notes.append("Core-hours are unknown until a trial of the same task has been recorded.")
    if shared:
        notes.append(f"{shared:,} trials belong to several studies of the run; they run once and are counted once.")
    if bad:
        notes.append(
            f"{len(bad)} records cannot be read and count as missing; `python -m pipeline.store check` says why."
        )
    notes.append(f"Store: {store.path}")
    return notes


def main(params: ParamsOption = PARAMS, workspace: WorkspaceOption = None, run: RunOption = None) -> None:
    """Say what a run would do, without doing it."""
    opened = Workspace.open(params, workspace, run)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, soft_wrap=True, width=PIPED_WIDTH, color_system=None)
    plan(opened, console)


if __name__ == "__main__":
    run_command(main)
