"""Subject `evaluation`: which share of a trial's training goes into measuring it.

An evaluation on validation is all that the end of an epoch takes: from the last step to where the next epoch begins.
A trial of the shape's own length has one after each of its epochs, and one on test at its end.
"""

from benchmarks.figures import Figure
from benchmarks.shapes import SHAPES
from benchmarks.training import rounds

ABOUT = "evaluation's share of a trial's training"


def measure() -> list[Figure]:
    """Time of each evaluation, and their share of a whole trial, for each shape."""
    figures = []
    for name, config in SHAPES:
        plan, found = config.training, rounds()[name]
        epochs = plan.steps // plan.steps_per_epoch
        shares = []
        for each in found:
            evaluations = epochs * each.evaluation + each.test
            shares.append(100 * evaluations / (plan.steps * each.step + evaluations))
        for column, samples in (
            (f"on {config.task.val_size:,} of validation", [1e3 * each.evaluation for each in found]),
            (f"on {config.task.test_size:,} of test", [1e3 * each.test for each in found]),
        ):
            figures.append(Figure(row=name, column=column, unit="ms", samples=samples, better="lower"))
        figures.append(Figure(row=name, column="share of a trial", unit="%", samples=shares))
    return figures
