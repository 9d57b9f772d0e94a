"""What counts as slower beyond noise, and how figures are laid out."""

import pytest

from benchmarks.figures import Figure, Report, change, changes, grid


def figure(*samples: float, **fields: object) -> Figure:
    return Figure(**{"row": "r", "column": "c", "unit": "ms", "better": "lower", "samples": samples, **fields})


def report(**subjects: list[Figure]) -> Report:
    return Report(
        kind="k", machine={}, versions={}, began="2026-01-01", seconds=1.0, load=(0.0, 0.0), subjects=subjects
    )


CALM = (99.0, 100.0, 100.0, 100.0, 101.0)


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        ((108.0, 109.0, 109.0, 109.0, 110.0), None),  # 9 % is within the tolerance, however calm
        ((119.0, 120.0, 120.0, 120.0, 121.0), 1.2),
        ((90.0, 95.0, 120.0, 150.0, 180.0), None),  # 20 % more, but the quartiles 95 and 150 enclose the old ones
        ((79.0, 80.0, 80.0, 80.0, 81.0), 0.8),
        ((120.0,), None),  # measured once, 20 % is within the tolerance of 25 %
        ((130.0,), 1.3),
    ],
)
def test_beyond_noise_is_a_median_further_off_than_the_tolerance_and_a_spread_that_does_not_reach_it(
    new: tuple[float, ...], expected: float | None
) -> None:
    assert change(figure(*new), figure(*CALM)) == (None if expected is None else pytest.approx(expected))


def test_a_rate_gets_worse_by_falling() -> None:
    fast, slow = figure(*CALM, better="higher"), figure(49, 50, 50, 50, 51, better="higher")
    assert change(slow, fast) == pytest.approx(2) and change(fast, slow) == pytest.approx(0.5)


def test_a_figure_without_a_better_direction_is_not_compared() -> None:
    assert change(figure(200, better=None), figure(100, better=None)) is None


def test_changes_pair_figures_by_subject_row_and_column_and_put_the_worst_first() -> None:
    old = report(one=[figure(1, row="a"), figure(1, row="b"), figure(1, row="gone")], two=[figure(1, row="a")])
    new = report(one=[figure(2, row="a"), figure(1, row="b"), figure(9, row="new")], two=[figure(3, row="a")])
    assert [(found.subject, found.new.row, found.factor) for found in changes(new, old)] == [
        ("two", "a", pytest.approx(3)),
        ("one", "a", pytest.approx(2)),
    ]


def test_a_table_has_a_line_a_row_and_an_empty_cell_where_there_is_no_figure() -> None:
    figures = [figure(1.5), figure(7, column="d", unit=""), figure(2000, row="s", column="d", unit="")]
    assert grid(figures) == [["", "c [ms]", "d"], ["r", "1.5", "7"], ["s", "", "2,000"]]


def test_a_figure_says_its_spread_and_whether_it_keeps_what_is_asked() -> None:
    assert figure(8, 9, 10, 11, 12, at_most=11).text() == "10 ±10% (≤ 11)"
    assert figure(12, at_most=11).text() == "12 (NOT ≤ 11)"


def test_a_report_is_read_back_as_it_was_written(tmp_path) -> None:
    written = report(one=[figure(0.1, 0.2)])
    written.write(tmp_path / "report.json")
    assert Report.read(tmp_path / "report.json") == written
    assert written.figure("one", "r", "c").samples == [0.1, 0.2]
    with pytest.raises(KeyError, match="no figure 'r', 'd' of 'one'"):
        written.figure("one", "r", "d")
