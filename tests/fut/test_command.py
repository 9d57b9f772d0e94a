"""The command `fut`: what it prints, and its exit status."""

import json
import re

import pytest
from typer.testing import CliRunner

from fut.command import app

SHAPE = ["--heads", "2", "--layers", "2", "--target-dim", "2"]


def ran(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def verified(*arguments: str) -> tuple[int, dict]:
    status, output, _ = ran("verify", *SHAPE, "--json", *arguments)
    return status, json.loads(output)


def test_width_names_all_widths() -> None:
    _, output, _ = ran("width", "--heads", "2", "--layers", "3", "--target-dim", "4", "--json")
    # 2 · 4 (2 + 4 + 8) + 4 · 8; without the leaves; trees; 2³ / 2; 2 · 3 · 4
    assert json.loads(output) == {
        "sufficient_width": 144, "sufficient_width_compiled": 112,
        "sparse_width": {"attention": 144, "residual": 316, "tied": 300}, "lower_bound": 4.0, "literal_bound": 24,
    }  # fmt: skip
    _, table, _ = ran("width", "--heads", "2", "--layers", "3", "--target-dim", "4")
    assert all(number in table for number in ("144", "112", "316", "300", "24")) and "N_EU" in table


def test_width_with_residual_connections_and_tied_layers() -> None:
    arguments = ("width", "--heads", "2", "--layers", "3", "--target-dim", "3", "--residual", "--json")
    assert json.loads(ran(*arguments)[1])["sufficient_width"] == 237
    assert json.loads(ran(*arguments, "--tied")[1])["sufficient_width"] == 129


@pytest.mark.parametrize("backbone", ["random", "sparse"])
@pytest.mark.parametrize("more", [[], ["--residual"], ["--tied"], ["--residual", "--tied"], ["--compile-unembedding"]])
def test_verify_is_exact_at_the_default_width(backbone: str, more: list[str]) -> None:
    status, found = verified("--backbone", backbone, *more)
    assert status == 0 and found["exact"] and found["relative_error"] < 1e-8 and found["margin"] > 0
    assert list(found) == [
        "sufficient_width", "width", "margin", "condition_number", "relative_error", "exact"
    ]  # fmt: skip


def test_verify_is_not_exact_one_below() -> None:
    status, found = verified("--backbone", "random", "--width", "31")
    assert (status, found["exact"], found["margin"], found["condition_number"]) == (1, False, 0, None)
    assert (found["sufficient_width"], found["width"]) == (32, 31)
    status, output, _ = ran("verify", *SHAPE, "--backbone", "random", "--width", "31")
    assert status == 1 and "32 would be sufficient" in output


@pytest.mark.parametrize("control", ["identical_heads", "low_rank"])
def test_controls_are_not_exact_at_twice_the_width(control: str) -> None:
    status, found = verified("--backbone", "control", "--control", control)
    assert (status, found["width"], found["margin"]) == (1, 64, 0) and found["relative_error"] > 0.1


@pytest.mark.parametrize("distribution", ["gaussian", "uniform", "laplace", "orthogonal"])
def test_each_distribution_is_drawn_and_named(distribution: str) -> None:
    status, output, _ = ran("verify", *SHAPE, "--backbone", "random", "--distribution", distribution)
    assert status == 0 and output.startswith(f"backbone          random ({distribution})\n")
    margin = verified("--backbone", "random", "--distribution", distribution)[1]["margin"]
    assert (margin == verified("--backbone", "random")[1]["margin"]) == (distribution == "gaussian")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["control"], "control (gaussian, identical_heads)"),
        (["control", "--control", "low_rank", "--distribution", "laplace"], "control (laplace, low_rank)"),
        (["sparse"], "sparse (attention)"),
        (["sparse", "--residual"], "sparse (residual)"),
        (["sparse", "--residual", "--tied"], "sparse (tied)"),
    ],
)
def test_the_text_says_which_backbone_was_tried(arguments: list[str], said: str) -> None:
    assert ran("verify", *SHAPE, "--backbone", *arguments)[1].startswith(f"backbone          {said}\n")


def test_the_seed_draws_others() -> None:
    assert verified("--backbone", "random")[1] == verified("--backbone", "random", "--seed", "0")[1]
    assert verified("--backbone", "random")[1]["margin"] != verified("--backbone", "random", "--seed", "1")[1]["margin"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["verify", *SHAPE, "--backbone", "random", "--width", "0"], "--width"),
        (["verify", *SHAPE, "--backbone", "dense"], "'dense' is not one of"),
        (["width", "--heads", "2", "--layers", "-1", "--target-dim", "2"], "--layers"),
        (
            ["verify", "--heads", "1", "--layers", "1", "--target-dim", "2", "--backbone", "control"],
            "identical_heads needs at least 2 heads",
        ),
        (["verify", *SHAPE, "--backbone", "sparse", "--distribution", "gaussian"], "weights are not drawn"),
        (["verify", *SHAPE, "--backbone", "random", "--control", "low_rank"], "says nothing of a random backbone"),
        (["verify", *SHAPE, "--backbone", "sparse", "--control", "low_rank"], "says nothing of a sparse backbone"),
        (["verify", *SHAPE, "--backbone", "sparse", "--width", "1"], "drops slots that the fixed unembedding reads"),
        (["verify", *SHAPE, "--backbone", "random", "--seed", "-1"], "--seed"),
    ],
)
def test_a_question_that_makes_no_sense_ends_with_2(arguments: list[str], said: str) -> None:
    status, output, errors = ran(*arguments)
    assert status == 2 and said in errors and output == ""


# Sizes that no machine has.

HUGE = "9" * 400


@pytest.mark.parametrize(
    ("backbone", "sizes"),
    [
        ("random", ["--heads", "3", "--layers", "12", "--target-dim", "8"]),
        ("control", ["--heads", "3", "--layers", "12", "--target-dim", "8"]),
        ("sparse", ["--heads", "3", "--layers", "16", "--target-dim", "8"]),
        ("random", [*SHAPE, "--width", str(10**26)]),
        ("sparse", [*SHAPE, "--width", str(10**26)]),
        ("random", ["--heads", "1", "--layers", "1", "--target-dim", str(10**20)]),
    ],
)
def test_what_no_memory_holds_is_refused_before_anything_is_drawn(
    backbone: str, sizes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("draw_target", "build"):
        monkeypatch.setattr(f"fut.command.{name}", lambda *arguments, **more: pytest.fail("something was drawn"))
    status, output, errors = ran("verify", "--backbone", backbone, *sizes)
    assert (
        status == 2 and output == "" and re.search(r"conditions at width .* take [\d.,e+]+ GB of memory, and", errors)
    )


@pytest.mark.parametrize("command", [["width"], ["width", "--json"], ["verify", "--backbone", "sparse"]])
@pytest.mark.parametrize(
    "sizes", [("10", "400", "2"), ("2", HUGE, "2"), (HUGE, "1", "2"), ("2", "2", HUGE), ("1", "400", "1")]
)
def test_astronomical_sizes_are_refused_in_words(command: list[str], sizes: tuple[str, str, str]) -> None:
    heads, layers, d = sizes
    status, output, errors = ran(*command, "--heads", heads, "--layers", layers, "--target-dim", d)
    assert status == 2 and output == "" and "a width of more than 100 digits: take fewer heads or layers" in errors


def test_large_sizes_are_still_printed_in_full() -> None:
    _, output, _ = ran("width", "--heads", "9", "--layers", "90", "--target-dim", "1", "--json")
    assert json.loads(output)["sufficient_width"] == 2 * sum(9**layer for layer in range(1, 91)) + 9**90
