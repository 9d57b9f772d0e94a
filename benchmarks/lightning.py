"""Subject `lightning`: what a step of the Trainer takes beyond the same step in a bare loop.

What the Trainer adds is measured at the six shapes, as the difference of the two medians of each round.  Its share is
of all steps of the default studies: one trial of each cell takes a few bare steps, and their mean is weighted with the
steps of the cell's trials.
"""

import statistics

import torch

from benchmarks.figures import Figure
from benchmarks.process import ROOT
from benchmarks.shapes import SHAPES
from benchmarks.terminal import say
from benchmarks.training import (
    THREADS,
    by_bare_loop,
    examples_of,
    reduced,
    rounds,
    shortened,
)
from pipeline.grid import Cell
from pipeline.workspace import Workspace

ABOUT = "what Lightning's Trainer adds to a step, beside a bare loop over the same batches"
MOST = 1.0  # ms that it may add
STUDIES = "all steps of the default studies"
CELL_STEPS = 15  # of each cell
CELL_WARM_UP = 5  # of these, not counted
SEQUENCES = 512  # of a cell's data


def measure() -> list[Figure]:
    """Bare step, Trainer's step and their difference, for each shape and for the default studies."""
    found = rounds()
    figures = []
    for name, _ in SHAPES:
        bare, added = [1e3 * each.bare for each in found[name]], [1e3 * (each.step - each.bare) for each in found[name]]
        figures += _figures(name, bare, added)
    bare = [1e3 * mean_step(default_cells())]
    added = [
        1e3 * statistics.mean(each.step - each.bare for each in shapes) for shapes in zip(*found.values(), strict=True)
    ]
    return figures + _figures(STUDIES, bare, added)


def _figures(row: str, bare: list[float], added: list[float]) -> list[Figure]:
    step = statistics.median(bare)
    return [
        Figure(row=row, column="bare step", unit="ms", samples=bare, better="lower"),
        Figure(row=row, column="added", unit="ms", samples=added, at_most=MOST),  # a difference: too noisy to compare
        Figure(row=row, column="share of the step", unit="%", samples=[100 * each / (step + each) for each in added]),
    ]


def default_cells() -> list[Cell]:
    """The cells of the default run, each once though it may serve several studies."""
    workspace = Workspace.open(ROOT / "params.yaml")
    return list({cell.id: cell for cells in workspace.run_cells().values() for cell in cells}.values())


def mean_step(cells: list[Cell]) -> float:
    """Seconds of a bare step, the mean over all steps that the cells' trials may take."""
    torch.set_num_threads(THREADS)
    seconds, steps = 0.0, 0
    for number, cell in enumerate(cells):
        say(f"a step of the default studies: cell {number + 1} of {len(cells)}")
        config = shortened(reduced(cell.first, SEQUENCES), CELL_STEPS)
        weight = cell.first.training.steps * len(cell.trials)
        seconds += weight * statistics.median(by_bare_loop(config, examples_of(config))[CELL_WARM_UP:])
        steps += weight
    return seconds / steps
