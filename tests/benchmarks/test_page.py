"""The page of the figures cannot drift from the recorded ones."""

import pytest

from benchmarks import page


def test_the_page_holds_the_recorded_figures_and_no_others() -> None:
    written = page.PAGE.read_text(encoding="utf-8")
    again = "run `.venv/bin/python -m benchmarks.page`"
    assert page.recorded(), "no figures are recorded"
    assert page.text(written, page.recorded()) == written, f"the page is not that of the recorded figures: {again}"


def test_what_stands_around_the_figures_stays() -> None:
    before = f"above\n{page.BEGIN}\nold\n{page.END}\nbelow\n"
    assert page.text(before, []) == f"above\n{page.BEGIN}\n\n\n{page.END}\nbelow\n"


def test_a_page_without_a_place_for_the_figures_is_refused() -> None:
    with pytest.raises(ValueError, match="no place for the figures"):
        page.text("no markers here", [])
