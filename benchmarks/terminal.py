"""Where the benchmarks speak: tables on standard output, and a line of what is being done where that is a terminal."""

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.figures import Figure, grid

PIPED_WIDTH = 160  # columns; a pipe has no width of its own

CONSOLE = Console(highlight=False, markup=False, soft_wrap=True)
if not CONSOLE.is_terminal:
    CONSOLE = Console(highlight=False, markup=False, soft_wrap=True, width=PIPED_WIDTH, color_system=None)
STATUS = CONSOLE.status("")


def say(what: str) -> None:
    """Say what is being done."""
    STATUS.update(what)


def show(title: str, figures: list[Figure]) -> None:
    """Print figures as a table."""
    headings, *lines = grid(figures)
    table = Table(title=title, title_justify="left", box=box.SIMPLE if CONSOLE.is_terminal else None, pad_edge=False)
    table.add_column(headings[0])
    for heading in headings[1:]:
        table.add_column(heading, justify="right")
    for line in lines:
        table.add_row(*line)
    CONSOLE.print(table)
    CONSOLE.print()
