"""The picture of the transfer: every mean and every seed where it belongs, the rules, and the words."""

import itertools

import pandas as pd
import pytest

from analysis import schema
from analysis.transfer import transfer_figure

BLANKS = {"string": "", "int64": 1, "double": 1.0, "bool": False}
KINDS = [("sparse", None), ("random", None), ("control", "identical_heads"), ("control", "low_rank")]
CONSTANT = {"dyck": 0.5, "khop": 0.28}


def table(tasks: dict[str, str], widths: list[int], seeds: list[int]) -> pd.DataFrame:
    """A table in which the agreement names its row: width / 100, more by the seed, less for controls."""
    blank = {field.name: None if field.nullable else BLANKS[str(field.type)] for field in schema.TRANSFER}
    rows = [
        blank
        | {
            "task": name,
            "task_parameters": parameters,
            "backbone": kind,
            "control": control,
            "seed": seed,
            "width": width,
            "sufficient_width": 40,
            "heads": 2,
            "layers": 3,
            "target_dim": 6,
            "target_accuracy": 0.987,
            "agreement": width / 100 + (seed or 0) / 10 - (control is not None) / 5,
            "constant_agreement": CONSTANT[name],
        }
        for (name, parameters), width, (kind, control) in itertools.product(tasks.items(), widths, KINDS)
        for seed in ([None] if kind == "sparse" else seeds)
    ]
    for row in rows:
        del row["schema_version"]
    return schema.to_frame(schema.to_table("transfer", rows))


@pytest.fixture
def spec() -> dict:
    """The picture of two tasks at two widths with two seeds."""
    tasks = {"dyck": '{"name": "dyck"}', "khop": '{"name": "khop", "hops": 1}'}
    return transfer_figure(table(tasks, [20, 50], [0, 1])).to_dict()


def layers(spec: dict, kind: str, size: int | None = None) -> list[list[dict]]:
    """The data of all marks of a kind, and of a size, panel by panel."""
    found = []
    for row in spec["vconcat"]:
        for panel in row["hconcat"]:
            for layer in panel["layer"]:
                mark = layer["mark"]
                if mark["type"] == kind and (size is None or mark.get("size") == size):
                    found.append(spec["datasets"][layer["data"]["name"]])
    return found


def test_lines_are_means_over_seeds_against_multiples_of_n(spec: dict) -> None:
    for rows in layers(spec, "line"):
        drawn = {(row["series"], row["times"]): row["agreement"] for row in rows}
        assert drawn == pytest.approx(
            {
                ("sparse", 0.5): 0.2, ("sparse", 1.25): 0.5, ("random", 0.5): 0.25, ("random", 1.25): 0.55,
                ("control, identical_heads", 0.5): 0.05, ("control, identical_heads", 1.25): 0.35,
                ("control, low_rank", 0.5): 0.05, ("control, low_rank", 1.25): 0.35,
            }
        )  # fmt: skip
    assert len(layers(spec, "line")) == 2


def test_every_seed_is_a_small_mark_and_sparse_backbones_have_none(spec: dict) -> None:
    small = layers(spec, "point", size=14)
    assert len(small) == 2
    for rows in small:
        assert len(rows) == 12 and "sparse" not in {row["series"] for row in rows}  # 3 drawn kinds × 2 widths × 2 seeds
        found = {row["seed"]: row["agreement"] for row in rows if row["series"] == "random" and row["width"] == 50}
        assert found == pytest.approx({0: 0.5, 1: 0.6})


def test_rules_stand_at_n_and_at_the_constant_answer_of_each_task(spec: dict) -> None:
    found = [row for rows in layers(spec, "rule") for row in rows]
    assert [row["times"] for row in found if "times" in row] == [1.0, 1.0]
    assert [row["agreement"] for row in found if "agreement" in row] == [0.5, 0.28]
    labels = {row["label"] for rows in layers(spec, "text") for row in rows}
    assert labels == {"m = N", "constant|answer|50.0 %", "constant|answer|28.0 %"}


def test_titles_and_caption_say_what_is_shown(spec: dict) -> None:
    titles = [(panel["title"]["text"], panel["title"]["subtitle"]) for panel in spec["vconcat"][0]["hconcat"]]
    said = "N = 40, target right at 98.7 % of test"
    assert titles == [("dyck", said), ("khop, k = 1", said)]
    caption = " ".join(spec["title"]["subtitle"])
    assert "H = 2, L = 3, d = 6" in caption and "n = 2 seeds" in caption


def test_kinds_differ_in_colour_shape_and_dashes(spec: dict) -> None:
    for channel in ("color", "shape", "strokeDash"):
        scales = [
            layer["encoding"][channel]["scale"]
            for panel in spec["vconcat"][0]["hconcat"]
            for layer in panel["layer"]
            if channel in layer.get("encoding", {})
        ]
        assert scales and all(len({str(one) for one in scale["range"]}) == 4 for scale in scales)


def test_a_single_width_and_three_tasks_are_drawn(spec: dict) -> None:
    names = ['{"name": "khop", "hops": 1}', '{"name": "khop", "hops": 2}']
    frames = [table({"khop": text}, [40], [0]) for text in names] + [table({"dyck": '{"name": "dyck"}'}, [40], [0])]
    spec = transfer_figure(pd.concat(frames, ignore_index=True)).to_dict()
    titles = [panel["title"]["text"] for row in spec["vconcat"] for panel in row["hconcat"]]
    assert titles == ["khop, k = 1", "khop, k = 2", "dyck"]
