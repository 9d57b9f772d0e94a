"""From trials to curves: the learning rate is chosen on validation, the result is reported on test.

The unit of repetition is the seed: a new backbone draw, new initial values, another batch order (and for simulate
another target), on the same dataset.  An interval over seeds so says how much draws and descent scatter; it says
nothing about another dataset or another configuration.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd
from scipy import stats

from analysis import schema

VALIDATION = {"test_accuracy": "val_accuracy", "nmse": "val_nmse"}  # the metric that selects, for each that is reported
RANGE = {"test_accuracy": (0.0, 1.0), "nmse": (0.0, math.inf)}
INTERVAL = "Student t 95 %"
NO_INTERVAL = "none: fewer than 3 seeds"
_ROUNDING = 1e-12  # of a mean: three times 0.99 have the mean 0.99 − 1e-16
KEYS = ["study", "cell", "method"]
SHARED = [field.name for field in schema.CELL_FIELDS] + [
    "sufficient_width",
    "sufficient_width_compiled",
    "criterion_metric",
    "criterion_value",
    "references",
    *(name for name in schema.TRIALS.names if name.startswith("reference_")),
    "trainable_parameters",
    "frozen_parameters",
]

MEASURED = [
    *KEYS,
    "trial",
    "learning_rate",
    "seed",
    "stop_reason",
    "steps",
    "train_seconds",
    "agreement",
    *VALIDATION,
    *VALIDATION.values(),
]


class Estimate(NamedTuple):
    """A mean over seeds, its spread and its interval."""

    n: int
    mean: float | None
    sd: float | None
    lower: float | None
    upper: float | None
    interval: str


def estimate(values: Sequence[float], low: float = -math.inf, high: float = math.inf) -> Estimate:
    """Mean over seeds with the 95 % Student t interval mean ± t(0.975, n − 1) · sd / √n, clipped to [low, high].

    Args:
        values: one finite value a seed.
        low: the smallest value that the metric can have.
        high: the largest.

    Returns:
        The sd is the sample one (n − 1), None below 2 values; the bounds are None below 3.
    """
    n = len(values)
    mean = math.fsum(values) / n if n else None
    sd = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1)) if mean is not None and n > 1 else None
    if mean is None or sd is None or n < 3:
        return Estimate(n, mean, sd, None, None, NO_INTERVAL)
    half = float(stats.t.ppf(0.975, n - 1)) * sd / math.sqrt(n)
    return Estimate(n, mean, sd, max(low, mean - half), min(high, mean + half), INTERVAL)


def curves(trials: pd.DataFrame, failures: pd.DataFrame | None = None) -> pd.DataFrame:
    """A row per cell: the learning rate with the best mean validation metric, and the test metric there.

    Of the learning rates with a finite validation metric for every seed of the cell, the one with the best mean over
    seeds wins; of equal means, the smaller rate.  Only if no rate is complete, those with the most seeds compete.  Test
    metrics play no part in it.

    Args:
        trials: the table of trials, typed as `analysis.load` returns it.
        failures: the table of failures, whose trials are counted cell by cell.

    Raises:
        schema.TableError: a cell with two trials of one seed and learning rate, or whose trials disagree on a column
            that they share by definition.
    """
    lost = _missing(failures)
    shared = _shared(trials)
    rows, seen = [], 0
    for key, cell in trials[MEASURED].groupby(KEYS, dropna=False, sort=True):
        study, name, _ = map(str, key)
        rows.append(_row(cell, shared[key], lost.get((study, name), 0)))
        seen += len(cell)
    if seen != len(trials):
        raise schema.TableError(f"{len(trials) - seen} of {len(trials)} trials belong to no cell")
    return schema.to_frame(schema.to_table("curves", rows))


def _missing(failures: pd.DataFrame | None) -> dict[tuple[str, str], int]:
    """Expected trials without a record, by study and cell."""
    if failures is None or failures.empty:
        return {}
    return {(str(study), str(cell)): len(rows) for (study, cell), rows in failures.groupby(["study", "cell"])}


def _shared(trials: pd.DataFrame) -> dict[tuple[Any, ...], dict[str, Any]]:
    """What the trials of each cell share, by the cell's key; for all cells at once, which is much faster."""
    distinct = trials[SHARED].drop_duplicates()
    if len(repeated := distinct[distinct.duplicated(KEYS, keep=False)]):
        _, cell = next(iter(repeated.groupby(KEYS, dropna=False, sort=True)))
        name = next(name for name in SHARED if cell[name].nunique(dropna=False) > 1)
        raise schema.TableError(
            f"{_place(cell)}: its trials disagree on {name}: {', '.join(map(str, cell[name].unique().tolist()[:4]))}"
        )
    return {tuple(row[key] for key in KEYS): row for row in schema.to_rows(distinct)}


def _row(cell: pd.DataFrame, shared: dict[str, Any], n_missing: int) -> dict[str, Any]:
    """One cell's row of `curves`."""
    metric = shared["criterion_metric"]
    if metric not in VALIDATION:
        raise schema.TableError(f"{_place(cell)}: criterion metric {metric!r} is none of {', '.join(VALIDATION)}")
    repeated = cell[cell.duplicated(["learning_rate", "seed"], keep=False)]
    if len(repeated):
        raise schema.TableError(
            f"{_place(cell)}: several trials with one seed and learning rate: "
            f"{', '.join(sorted(repeated['trial'])[:4])}"
        )
    rate = chosen_rate(cell, metric)
    chosen = (cell if rate is None else cell[cell["learning_rate"] == rate]).sort_values("seed")
    tested = chosen[_finite(chosen[metric])]
    found = estimate(tested[metric].tolist(), *RANGE[metric])
    met = (
        found.mean is not None
        and len(tested) == cell["seed"].nunique()
        and (
            found.mean >= shared["criterion_value"] - _ROUNDING
            if metric == "test_accuracy"
            else found.mean <= shared["criterion_value"] + _ROUNDING
        )
    )
    return {
        **shared,
        "learning_rate": rate,
        "learning_rates": " ".join(f"{value:g}" for value in sorted(cell["learning_rate"].dropna().unique())),
        "val_mean": estimate(chosen[VALIDATION[metric]][_finite(chosen[VALIDATION[metric]])].tolist()).mean,
        **found._asdict(),
        "seeds": " ".join(map(str, tested["seed"])),
        "n_diverged": int((chosen["stop_reason"] == "diverged").sum()),
        "n_missing": n_missing,
        "meets_criterion": met,
        "agreement": estimate(tested["agreement"][_finite(tested["agreement"])].tolist()).mean,
        "steps": float(chosen["steps"].mean()),
        "n_trials": len(cell),
        "train_seconds": float(cell["train_seconds"].sum()),
    }


def chosen_rate(cell: pd.DataFrame, metric: str) -> float | None:
    """The learning rate of a cell, chosen by the mean validation metric over seeds (rule: `curves`).

    None where nothing was trained.

    Args:
        cell: the trials of one cell.
        metric: the metric reported, test_accuracy or nmse, whose validation twin selects.
    """
    sign = -1.0 if metric == "test_accuracy" else 1.0
    ranks = []
    for rate in cell["learning_rate"].dropna().unique().tolist():
        values = cell[VALIDATION[metric]][cell["learning_rate"] == rate]
        found = estimate(values[_finite(values)].tolist())
        ranks.append((-found.n, math.inf if found.mean is None else sign * found.mean, rate))
    return min(ranks)[2] if ranks else None


def _finite(values: pd.Series) -> pd.Series:
    return values.notna() & ~values.isin([math.inf, -math.inf])


def _place(cell: pd.DataFrame) -> str:
    return f"study {cell['study'].iloc[0]}, cell {cell['cell'].iloc[0]}"
