"""Pictures: every cell is drawn where it belongs, with its interval and rules; files are whole and readable."""

import itertools
import json
from pathlib import Path

import pandas as pd
import pytest

from analysis.curves import curves
from analysis.figures import figure, save
from analysis.marks import Axis, Series, spread
from analysis.schema import TableError


@pytest.fixture
def widths(trials) -> pd.DataFrame:
    """A width study of two backbones at three widths and three seeds, and a cell of another study."""
    rows = [
        {
            "cell": f"{kind}{width}",
            "backbone": kind,
            "width": width,
            "seed": seed,
            "test_accuracy": min(1.0, 0.6 + width / 100 + seed / 50),
            "references": '{"reference_majority": 0.5}',
        }
        for kind, width, seed in itertools.product(["sparse", "random"], [8, 16, 32], range(3))
    ]
    return curves(trials(*rows, {"study": "other", "cell": "z", "width": 99}))


def marks(spec: dict, kind: str) -> list[tuple[dict, list[dict]]]:
    """All marks of a kind in a Vega-Lite spec: their encodings and their data."""
    found = []

    def walk(node, data):
        if isinstance(node, dict):
            data = node.get("data", data)
            if isinstance(node.get("mark"), dict) and node["mark"]["type"] == kind:
                rows = data["values"] if "values" in data else spec["datasets"][data["name"]]
                found.append((node["encoding"], rows))
            for name, value in node.items():
                if name != "datasets":
                    walk(value, data)
        elif isinstance(node, list):
            for value in node:
                walk(value, data)

    walk(spec, None)
    return found


def texts(spec: dict) -> set[str]:
    """All labels at rules."""
    return {row["label"] for _, rows in marks(spec, "text") for row in rows}


def test_every_cell_of_the_study_is_a_point_with_its_interval(widths: pd.DataFrame) -> None:
    spec = figure(widths, "width").to_dict()
    drawn = [
        (row["series"], row["width"], row["mean"], row["lower"], row["upper"])
        for _, rows in marks(spec, "point")
        for row in rows
    ]
    cells = widths[widths["study"] == "width"]
    assert sorted(drawn) == sorted(
        zip(cells["backbone"], cells["width"], cells["mean"], cells["lower"], cells["upper"], strict=True)
    )
    ((area, rows),) = marks(spec, "area")
    assert (area["y"]["field"], area["y2"]["field"], len(rows)) == ("bottom", "upper", 6)
    assert all(row["bottom"] == row["lower"] for row in rows)
    ((line, _),) = marks(spec, "line")
    assert line["x"]["scale"]["type"] == "log" and line["x"]["scale"]["base"] == 2


def test_rules_stand_at_references_and_criterion(widths: pd.DataFrame) -> None:
    spec = figure(widths, "width").to_dict()
    assert texts(spec) == {"majority 50.0 %", "criterion 99 %"}
    rules = {row["value"] for _, rows in marks(spec, "rule") for row in rows}
    assert rules == {0.5, 0.99}


def test_title_and_caption_say_what_is_shown(widths: pd.DataFrame) -> None:
    title = figure(widths, "width", "From failing to solved").to_dict()["title"]
    assert title["text"] == "width: test accuracy against width m"
    caption = " ".join(title["subtitle"])
    for said in ("From failing to solved", "n = 3 seeds", "Student t 95 % interval over seeds", "chosen on validation"):
        assert said in caption


def test_simulate_has_a_logarithmic_axis_and_its_sufficient_widths(trials) -> None:
    rows = [
        {
            "cell": f"{heads}{width}",
            "task": "simulate",
            "hops": None,
            "target_dim": 2,
            "heads": heads,
            "width": width * heads,
            "seed": seed,
            "criterion_metric": "nmse",
            "criterion_value": 0.01,
            "nmse": 0.1 / width * (seed + 1),
            "val_nmse": 0.1,
            "test_accuracy": None,
            "val_accuracy": None,
            "sufficient_width": 12 * heads,
            "sufficient_width_compiled": 8 * heads,
        }
        for heads, width, seed in itertools.product([1, 2], [4, 8, 16], range(3))
    ]
    spec = figure(curves(trials(*rows)), "width").to_dict()
    assert texts(spec) == {"criterion 0.01", "N_EU = 8", "N = 12", "N_EU = 16", "N = 24"}
    for encoding, rows in marks(spec, "line"):
        assert encoding["y"]["scale"]["type"] == "log"
        low, high = encoding["y"]["scale"]["domain"]
        assert all(low <= row["mean"] <= high for row in rows) and low <= 0.01 <= high
    assert len(marks(spec, "line")) == 2  # a panel for each shape


def test_an_nmse_band_goes_down_to_a_tenth_of_the_mean_and_says_so(trials) -> None:
    """Over three seeds 0, 1, 2 the interval of the mean reaches far below 0, whose logarithm is infinite."""
    scores = {
        "nmse": {8: (0.0, 0.1, 0.2), 16: (0.9, 1.0, 1.1)},
        "test_accuracy": {8: (0.0, 0.1, 0.2), 16: (0.9, 0.9, 0.9)},
    }
    bottoms, captions = {}, {}
    for metric, by_width in scores.items():
        both = {"criterion_metric": metric, "criterion_value": 0.5, "test_accuracy": None, "val_accuracy": None}
        rows = [
            {
                **both,
                "cell": f"{width}",
                "width": width,
                "seed": seed,
                metric: value,
                metric.replace("test", "val"): value,
            }
            for width, values in by_width.items()
            for seed, value in enumerate(values)
        ]
        spec = figure(curves(trials(*rows)), "width").to_dict()
        ((_, drawn),) = marks(spec, "area")
        bottoms[metric] = {row["width"]: row["bottom"] for row in drawn}
        captions[metric] = "cut at a tenth of the mean" in " ".join(spec["title"]["subtitle"])
    # t(0.975, 2) = 4.3027: 1.0 ± 4.3027 · 0.1 / √3 begins at 0.7516
    assert bottoms["nmse"] == {8: pytest.approx(0.01), 16: pytest.approx(0.7516, abs=1e-4)}
    assert bottoms["test_accuracy"] == {8: 0.0, 16: pytest.approx(0.9)}
    assert captions == {"nmse": True, "test_accuracy": False}


def test_a_compiled_program_beyond_the_axis_stands_at_its_edge_and_the_caption_says_so(trials) -> None:
    nmse = {"criterion_metric": "nmse", "criterion_value": 0.01, "test_accuracy": None, "val_accuracy": None}
    rows = [
        {**nmse, "cell": f"{width}{method}", "width": width, "method": method, "nmse": error, "val_nmse": error}
        for width, method, error in [
            (8, "learned", 0.1),
            (16, "learned", 0.2),
            (8, "compiled", 0.3),
            (16, "compiled", 1e-15),
        ]
    ]
    spec = figure(curves(trials(*rows)), "width").to_dict()
    ((line, _),) = marks(spec, "line")
    assert line["y"]["scale"]["domain"][0] == 1e-8 and line["y"]["scale"]["clamp"]
    assert "Points at the edge lie beyond it." in " ".join(spec["title"]["subtitle"])
    drawn = {(row["series"], row["width"]) for _, points in marks(spec, "point") for row in points}
    assert drawn == {(f"random, {method}", width) for method in ("learned", "compiled") for width in (8, 16)}


def test_one_width_makes_a_dot_plot_of_components(trials) -> None:
    switched = ["residual+layernorm", "attention"]
    rows = [
        {
            "cell": f"{kind}{parts}",
            "backbone": kind,
            "components": parts,
            "seed": seed,
            "residual": "residual" in parts,
            "layernorm": "layernorm" in parts,
            "test_accuracy": 0.9 + seed / 100,
        }
        for kind, parts, seed in itertools.product(["sparse", "trained"], switched, range(3))
    ]
    spec = figure(curves(trials(*rows)), "width").to_dict()
    assert not marks(spec, "line")
    ((points, drawn),) = marks(spec, "point")
    assert points["y"]["scale"]["domain"] == ["attention only", "residual + LayerNorm"]
    assert points["yOffset"]["field"] == "backbone"
    assert len(drawn) == 4 and {row["row"] for row in drawn} == set(points["y"]["scale"]["domain"])
    bars = [rows for encoding, rows in marks(spec, "rule") if "x2" in encoding]
    assert len(bars[0]) == 4


def test_cells_without_a_result_or_an_interval_are_said(trials) -> None:
    rows = [
        {"cell": "a", "width": 8, "test_accuracy": None, "val_accuracy": None, "stop_reason": "diverged"},
        {"cell": "b", "width": 16},
        {"cell": "c", "width": 32},
    ]
    spec = figure(curves(trials(*rows)), "width").to_dict()
    assert sum(len(rows) for _, rows in marks(spec, "point")) == 2
    caption = " ".join(spec["title"]["subtitle"])
    for said in ("n = 0 to 1", "No interval", "Trials diverged: 1.", "not drawn: 1."):
        assert said in caption
    assert "Student" not in caption


def test_the_caption_says_what_is_trained_where_it_is_not_the_program(trials) -> None:
    def caption(*trained: str) -> str:
        cells = [{"cell": f"c{index}", "width": 8 + index, "trainable": kind} for index, kind in enumerate(trained)]
        return " ".join(figure(curves(trials(*cells)), "width").to_dict()["title"]["subtitle"])

    assert "trained" not in caption("program", "program")
    assert "Only the embedding E is trained, not the unembedding U." in caption("embedding", "embedding")
    assert "E and unembedding U are trained, unless a label" in caption("program", "program", "embedding")


def test_an_unknown_study_is_refused(widths: pd.DataFrame) -> None:
    with pytest.raises(TableError, match="'wdth'"):
        figure(widths, "wdth")


def test_series_differ_in_colour_and_in_shape_and_kinds_keep_their_colour() -> None:
    names = ["trained", "random", "sparse", "random, tied", "control", "random, qk_gain 2"]
    series = Series.of(names)
    assert series.names == ["sparse", "random", "random, qk_gain 2", "random, tied", "control", "trained"]
    assert len(set(series.colours)) == len(set(series.shapes)) == len({tuple(dash) for dash in series.dashes}) == 6
    assert series.colours[0] == Series.of(["sparse"]).colours[0]


def test_axis_places_values_and_back() -> None:
    log, linear = Axis("", (1e-4, 1.0), True), Axis("", (0.4, 1.0), False)
    assert log.place(0.01) == pytest.approx(0.5) and log.value(0.5) == pytest.approx(0.01)
    assert linear.place(0.7) == pytest.approx(0.5) and linear.value(0.5) == pytest.approx(0.7)
    assert log.place(0.0) == 0.0 and linear.place(2.0) == 1.0


def test_labels_keep_their_order_and_distance() -> None:
    places = spread([10.0, 11.0, 12.0, 50.0], 12.0)
    assert places == [-1.0, 11.0, 23.0, 50.0]


def test_files_are_a_png_and_the_vega_lite_of_the_same_picture(widths: pd.DataFrame, tmp_path: Path) -> None:
    png, text = tmp_path / "figures" / "width.png", tmp_path / "vega" / "width.json"
    save(figure(widths, "width"), png, text)
    content = png.read_bytes()
    assert content.startswith(b"\x89PNG\r\n") and content.endswith(b"IEND\xaeB`\x82") and len(content) > 10_000
    assert int.from_bytes(content[16:20]) > 600  # px wide: two for each on the screen
    assert json.loads(text.read_text())["title"]["text"].startswith("width")
    assert set(tmp_path.glob("*/*")) == {png, text}  # nothing half-written
