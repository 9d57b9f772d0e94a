"""Multiples of the sufficient width, and cells that are refused for something else."""

from typing import Any

import pytest

from pipeline.widths import STAND_IN, Multiple, sufficient_multiple

CELL = {
    "task": {"name": "simulate", "target_dim": 2},
    "backbone": {"kind": "random"},
    "heads": 1,
    "layers": 1,
    "width": Multiple(1.5),
}


def test_a_multiple_is_of_what_is_sufficient_for_what_trains() -> None:
    # H = L = 1, k = p = d = 2: N = 2k + p = 6 where U is fixed, N_EU = max(N - p, d) = 4
    assert sufficient_multiple(CELL) == 6
    assert sufficient_multiple(CELL | {"trainable": "embedding"}) == 9


@pytest.mark.parametrize(
    "wrong",
    [
        {"task": {"name": "simulat"}},
        {"components": ["attention"]},
        {"backbone": "random"},
        {"heads": "two"},
        {"layers": 0},
        {"trainable": "nothing"},
        {"backbone": {"kind": "random", "qk_dim": -1}},
    ],
)
def test_a_cell_that_is_refused_for_something_else_gets_a_stand_in(wrong: dict[str, Any]) -> None:
    assert sufficient_multiple(CELL | wrong) == STAND_IN


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"task": {"name": "khop"}}, "times_sufficient needs a target, and task khop has none"),
        ({"trainable": "unembedding"}, "no width is known to be sufficient"),
    ],
)
def test_a_cell_without_a_sufficient_width_is_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        sufficient_multiple(CELL | wrong)
