"""Findings: sentences whose numbers follow from the curves, by hand."""

import json

import pytest

from analysis.curves import curves
from analysis.findings import best, sentences


@pytest.fixture
def widths(trials):
    """One curve a kind of backbone: the accuracy at each width, three seeds without scatter."""

    def make(**kinds: dict[int, float]):
        references = json.dumps({"reference_one_token": 0.5, "reference_majority": 0.3})
        return curves(
            trials(
                *(
                    {
                        "cell": f"{kind}{width}",
                        "backbone": kind,
                        "width": width,
                        "seed": seed,
                        "val_accuracy": accuracy,
                        "test_accuracy": accuracy,
                        "references": references,
                    }
                    for kind, curve in kinds.items()
                    for width, accuracy in curve.items()
                    for seed in range(3)
                )
            )
        )

    return make


def test_smallest_width_that_meets_the_criterion(widths) -> None:
    found = sentences(
        widths(
            sparse={8: 0.9, 16: 0.99, 32: 1.0}, random={8: 0.8, 16: 1.0, 32: 0.98, 64: 1.0}, control={8: 0.6, 16: 0.6}
        )
    )
    place = "khop, k = 1, residual + LayerNorm"
    assert found == [
        "Cells that meet the criterion (mean accuracy at least 99 %): sparse 2 of 3, random 2 of 4, control 0 of 2.",
        f"{place}, control: no width up to 16 meets the criterion.",
        f"{place}, random: 16 is the smallest width tried that meets the criterion (though not at 32).",
        f"{place}, sparse: 16 is the smallest width tried that meets the criterion.",
    ]


def test_what_beats_no_reference_rule_is_named(widths) -> None:
    assert sentences(widths(random={8: 0.5}, sparse={8: 0.51}))[1:] == [
        "No better than the best reference rule: khop, k = 1, residual + LayerNorm, random "
        "(m = 8, 50.0 % against 50.0 %)."
    ]


def test_best_mean_over_widths_with_its_width(widths) -> None:
    table = best(widths(sparse={8: 0.9, 16: 0.95, 32: 0.7}, trained={64: 1.0}))
    assert table.columns.tolist() == ["sparse", "trained"]
    assert table.loc["khop, k = 1, residual + LayerNorm"].tolist() == ["95.0 % (m = 16)", "100.0 %"]


def test_simulate_is_told_in_units_of_the_sufficient_width(trials) -> None:
    # N_EU = 8 H: met from 8 (1.0) at H = 1, from 24 (1.5) at H = 2, never at H = 3
    errors = {(1, 4): 0.1, (1, 8): 0.01, (2, 16): 0.02, (2, 24): 0.001, (3, 24): 0.5, (3, 48): 0.2}
    frame = curves(
        trials(
            *(
                {
                    "cell": f"{heads}-{width}",
                    "task": "simulate",
                    "hops": None,
                    "heads": heads,
                    "width": width,
                    "target_dim": 2,
                    "sufficient_width": 12 * heads,
                    "sufficient_width_compiled": 8 * heads,
                    "criterion_metric": "nmse",
                    "criterion_value": 0.01,
                    "nmse": error,
                    "val_nmse": error,
                    "test_accuracy": None,
                    "val_accuracy": None,
                }
                for (heads, width), error in errors.items()
            )
        )
    )
    assert sentences(frame) == [
        "Cells that meet the criterion (mean NMSE at most 0.01): random 2 of 6.",
        "random: smallest width tried that meets the criterion, as a multiple of N_EU: median 1.25, from 1.00 to 1.50, "
        "in 2 of 3 shapes; never in simulate, H = 3, L = 2, d = 2, residual + LayerNorm (up to 2 N_EU).",
    ]
    assert best(frame)["random"].tolist() == ["0.01 (m = 8)", "0.001 (m = 24)", "0.2 (m = 48)"]


def test_compiled_programs_are_counted_beside_learned_ones(trials) -> None:
    compiled = {"method": "compiled", "learning_rate": None, "init": None, "test_accuracy": 1.0, "val_accuracy": 1.0}
    frame = curves(trials({"init": "random"}, {**compiled, "cell": "c1"}))
    assert sentences(frame)[0] == (
        "Cells that meet the criterion (mean accuracy at least 99 %): random (compiled) 1 of 1, random 0 of 1."
    )
    assert best(frame)["random"].tolist() == ["100.0 %", "80.0 %"]


def test_a_cell_without_a_result_is_said_to_have_none(trials) -> None:
    lost = {"test_accuracy": None, "val_accuracy": None, "stop_reason": "diverged"}
    frame = curves(trials(lost))
    assert best(frame)["random"].tolist() == ["no result"]
    assert sentences(frame) == ["Cells that meet the criterion (mean accuracy at least 99 %): random 0 of 1."]
