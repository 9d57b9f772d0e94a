"""Curves: hand-computed means and intervals; selection looks at validation alone; no trial is lost on the way."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis import schema
from analysis.curves import INTERVAL, NO_INTERVAL, curves, estimate
from analysis.schema import TableError


def seeds(values: list[float | None], **columns) -> list[dict]:
    """Trials of seeds 0, 1, …, with these test and validation accuracies."""
    return [{"seed": seed, "val_accuracy": each, "test_accuracy": each} | columns for seed, each in enumerate(values)]


def test_student_interval_by_hand() -> None:
    # mean 0.95, deviations ∓0.05: sd = √(0.005 / 2) = 0.05; t(0.975, 2) = 4.302653; half width 4.302653 · 0.05 / √3
    found = estimate([0.9, 0.95, 1.0])
    assert (found.n, found.interval) == (3, INTERVAL)
    assert found.mean == pytest.approx(0.95) and found.sd == pytest.approx(0.05)
    assert found.upper - found.mean == pytest.approx(0.1242069, abs=1e-6)
    assert found.mean - found.lower == pytest.approx(0.1242069, abs=1e-6)


def test_interval_is_clipped_to_the_range_of_the_metric() -> None:
    assert estimate([0.9, 0.95, 1.0], 0.0, 1.0).upper == 1.0
    assert estimate([0.001, 0.001, 0.1], 0.0, math.inf).lower == 0.0


@pytest.mark.parametrize(("values", "sd"), [([], None), ([0.5], None), ([0.5, 0.7], pytest.approx(math.sqrt(0.02)))])
def test_fewer_than_three_seeds_have_no_interval(values: list[float], sd: float | None) -> None:
    found = estimate(values)
    assert (found.lower, found.upper, found.interval) == (None, None, NO_INTERVAL)
    assert found.sd == sd and found.n == len(values)


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    draws = np.random.default_rng(0).normal(0.3, 2.0, (2_000, 3))
    covered = [found.lower <= 0.3 <= found.upper for found in (estimate(row.tolist()) for row in draws)]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.015)  # standard error 0.005


def test_a_cell_in_full(trials) -> None:
    shared = {"width": 16, "reference_majority": 0.25}
    frame = curves(
        trials(
            *seeds([0.9, 0.95, 1.0], train_seconds=2.0, **shared),
            *seeds([0.5, 0.5, 0.6], train_seconds=3.0, learning_rate=0.1, **shared),
        )
    )
    assert len(frame) == 1
    row = frame.iloc[0]
    assert (row["learning_rate"], row["learning_rates"]) == (0.01, "0.01 0.1")
    assert (row["n"], row["seeds"], row["n_trials"], row["train_seconds"]) == (3, "0 1 2", 6, 15.0)
    assert row["mean"] == row["val_mean"] == pytest.approx(0.95)
    assert not row["meets_criterion"] and row["criterion_metric"] == "test_accuracy" and row["criterion_value"] == 0.99
    assert row["reference_majority"] == 0.25 and row["width"] == 16 and row["backbone"] == "random"


def test_the_mean_is_of_the_test_metric_at_the_rate_chosen_on_validation(trials) -> None:
    low = [{"seed": s, "learning_rate": 0.01, "val_accuracy": 0.8, "test_accuracy": 0.3 + 0.1 * s} for s in range(3)]
    high = [{"seed": s, "learning_rate": 0.1, "val_accuracy": 0.7, "test_accuracy": 1.0} for s in range(3)]
    row = curves(trials(*low, *high)).iloc[0]
    assert row["learning_rate"] == 0.01 and row["mean"] == pytest.approx(0.4) and row["val_mean"] == pytest.approx(0.8)


def test_the_smallest_nmse_wins_and_the_criterion_is_an_upper_bound(trials) -> None:
    def rate(learning_rate: float, values: list[float]) -> list[dict]:
        return [
            {
                "seed": seed,
                "criterion_metric": "nmse",
                "criterion_value": 0.01,
                "learning_rate": learning_rate,
                "val_nmse": value,
                "nmse": value,
                "val_accuracy": None,
                "test_accuracy": None,
            }
            for seed, value in enumerate(values)
        ]

    row = curves(trials(*rate(0.01, [0.1, 0.2, 0.3]), *rate(0.03, [0.001, 0.002, 0.003]))).iloc[0]
    assert row["learning_rate"] == 0.03 and row["mean"] == pytest.approx(0.002) and row["meets_criterion"]
    assert row["lower"] == 0.0  # 0.002 − 4.3027 · 0.001 / √3 is below 0
    assert row["upper"] == pytest.approx(0.002 + 4.302653 * 0.001 / math.sqrt(3))


def test_of_equal_means_the_smaller_rate_wins_whatever_the_order(trials) -> None:
    # 0.1 + 0.2 + 0.3 depends on the order of addition in floating point; the mean must not.
    three = seeds([0.1, 0.2, 0.3], learning_rate=0.1) + seeds([0.3, 0.2, 0.1], learning_rate=0.03)
    assert curves(trials(*three)).iloc[0]["learning_rate"] == 0.03
    assert curves(trials(*reversed(three))).iloc[0]["learning_rate"] == 0.03


@pytest.mark.parametrize("lost", [None, math.nan, math.inf])
def test_a_rate_without_every_metric_never_beats_a_complete_one(trials, lost) -> None:
    bad = seeds([1.0, 1.0, lost], learning_rate=0.1)
    row = curves(trials(*bad, *seeds([0.1, 0.1, 0.1]))).iloc[0]
    assert row["learning_rate"] == 0.01 and row["n"] == 3
    fewer = curves(trials(*seeds([1.0, 1.0], learning_rate=0.1), *seeds([0.1, 0.1, 0.1]))).iloc[0]
    assert fewer["learning_rate"] == 0.01


def test_diverged_trials_are_counted_and_never_solve_a_cell(trials) -> None:
    row = curves(
        trials(
            *seeds([1.0, 1.0]), *[{"seed": 2, "val_accuracy": None, "test_accuracy": None, "stop_reason": "diverged"}]
        )
    ).iloc[0]
    assert (row["n"], row["seeds"], row["n_diverged"], row["n_trials"]) == (2, "0 1", 1, 3)
    assert row["mean"] == 1.0 and not row["meets_criterion"] and row["interval"] == NO_INTERVAL


def test_a_cell_without_any_metric_keeps_its_row(trials) -> None:
    row = curves(trials(*seeds([None, None, None], stop_reason="diverged"))).iloc[0]
    assert (row["n"], row["seeds"], row["n_diverged"]) == (0, "", 3)
    assert math.isnan(row["mean"]) and math.isnan(row["lower"]) and not row["meets_criterion"]


def test_missing_trials_are_counted_cell_by_cell(trials) -> None:
    lost = [
        {
            "study": "width",
            "cell": cell,
            "trial": f"{cell}{i}",
            "reason": reason,
            "error": "e",
            "traceback": None,
            "when": None,
            "config": None,
        }
        for i, (cell, reason) in enumerate([("a", "missing"), ("a", "failed"), ("b", "missing")])
    ]
    failures = schema.to_frame(schema.to_table("failures", lost))
    frame = curves(trials(*seeds([1.0], cell="a"), *seeds([1.0], cell="c")), failures)
    assert dict(zip(frame["cell"], frame["n_missing"], strict=True)) == {"a": 2, "c": 0}


def test_cells_with_null_keys_are_kept_and_studies_stay_apart(trials) -> None:
    frame = curves(
        trials(
            *seeds([1.0, 1.0], study="a", cell="x", task="dyck", hops=None, distribution=None),
            *seeds([0.5, 0.5], study="b", cell="x", task="dyck", hops=None, distribution=None),
            *seeds([0.2], study="b", cell="y"),
        )
    )
    assert [(row.study, row.cell, row.n, row.mean) for row in frame.itertuples()] == [
        ("a", "x", 2, 1.0),
        ("b", "x", 2, 0.5),
        ("b", "y", 1, 0.2),
    ]
    assert frame["hops"].tolist() == [pd.NA, pd.NA, 1] and frame["n_trials"].sum() == 5


def test_learned_and_compiled_results_of_one_cell_are_two_rows(trials) -> None:
    """A compiled one has no learning rate: nothing was trained."""
    frame = curves(trials(*seeds([0.9, 0.9]), *seeds([1.0, 1.0], method="compiled", learning_rate=None)))
    assert frame["method"].tolist() == ["compiled", "learned"] and frame["mean"].tolist() == [1.0, 0.9]
    assert frame["learning_rate"].isna().tolist() == [True, False] and frame["learning_rates"].tolist() == ["", "0.01"]
    assert frame["n"].tolist() == [2, 2] and frame["seeds"].tolist() == ["0 1", "0 1"]


def test_trials_that_cannot_be_of_one_cell_are_refused(trials) -> None:
    with pytest.raises(TableError, match=r"study width, cell c0.*width: 16, 32"):
        curves(trials({"width": 16}, {"width": 32, "seed": 1}))
    with pytest.raises(TableError, match="one seed and learning rate"):
        curves(trials({"trial": "t1"}, {"trial": "t2"}))
    with pytest.raises(TableError, match="criterion metric 'loss'"):
        curves(trials({"criterion_metric": "loss"}))


def test_no_trials_make_no_curves(trials) -> None:
    frame = curves(trials())
    assert frame.empty and frame.dtypes.to_dict() == curves(trials(*seeds([1.0]))).dtypes.to_dict()


metric = st.none() | st.floats(0, 1)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(metric, metric), min_size=6, max_size=6), st.permutations(range(6)))
def test_selection_never_sees_the_test_metric(trials, values, order) -> None:
    grid = [(seed, rate) for rate in (0.01, 0.1) for seed in range(3)]

    def frame(tests: list[float | None]) -> pd.DataFrame:
        return curves(
            trials(
                *(
                    {"seed": seed, "learning_rate": rate, "val_accuracy": val, "test_accuracy": test}
                    for (seed, rate), (val, _), test in zip(grid, values, tests, strict=True)
                )
            )
        )

    tests = [test for _, test in values]
    before, after = frame(tests), frame([tests[index] for index in order])
    assert before["learning_rate"].tolist() == after["learning_rate"].tolist()
    pd.testing.assert_series_equal(before["val_mean"], after["val_mean"])
