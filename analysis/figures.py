"""A first picture of a study: its test metric against width, one line per backbone.

Where no curve has more than one width, a dot plot takes its place: one row per combination of components or variant.
Every mark is told apart by colour, by shape and by dashes, so that the picture can be read in grey.
"""

import json
import math
import os
import textwrap
from pathlib import Path
from typing import NamedTuple

import altair as alt
import pandas as pd
import vl_convert

from analysis import labels
from analysis.curves import INTERVAL
from analysis.marks import Axis, Layers, Series, dot_panel, line_panel
from analysis.schema import TableError, to_rows

_COLUMNS = 4  # most panels side by side
_WIDEST = 1_100.0  # px, about the width of so many
_DEEPEST = 10.0  # a band on a logarithmic axis ends where the mean is this many times as large
_CHARACTER = 6.0  # px a character of the subtitle takes
_METRICS = {"test_accuracy": "test accuracy", "nmse": "NMSE on test"}
_MEANINGS = {
    "test_accuracy": "Accuracy: share of correct answers.",
    "nmse": "NMSE: mean squared error over the variance of the target's outputs.",
}
_REFERENCES = {
    "reference_majority": "majority",
    "reference_counting": "counting rule",
    "reference_one_token": "1-token rule",
    "reference_two_tokens": "2-token rule",
    "reference_three_tokens": "3-token rule",
}


def figure(curves: pd.DataFrame, study: str, about: str = "") -> alt.TopLevelMixin:
    """The picture of one study.

    Points are means over seeds of the test metric at the learning rate chosen on validation; bands and bars are the
    intervals that the table names, over seeds and not over data.  Dashed rules are reference accuracies and the
    criterion; for simulate, upright rules mark the sufficient widths N_EU and N.

    Args:
        curves: the table of curves, as `analysis.load` returns it; other studies' rows are left aside.
        study: the study to draw.
        about: a line on the study, for the title.

    Raises:
        TableError: the table holds no cell of the study.
    """
    cells = curves[curves["study"] == study]
    if cells.empty:
        raise TableError(f"no cell of study {study!r} in the table of curves: run `dvc repro tables`")
    cells = labels.describe(cells.reset_index(drop=True))
    together = cells.groupby(["task_label", "shape_label", "components_label", "series"])
    lines = bool((together["width"].nunique() > 1).any())
    cells["row"] = _row_labels(cells)
    cells["bottom"] = _bottoms(cells)
    panels = _panels(cells, lines)
    series = Series.of(cells["series" if lines else "backbone"])
    axes = {str(metric): _axis(str(metric), group) for metric, group in cells.groupby("criterion_metric")}
    rows = _grid(panels, series, axes, lines)
    against = "against width m" if lines else "by backbone"
    metrics = " and ".join(_METRICS[name] for name in axes)
    width = _extent(panels, lines)
    subtitle = [
        line
        for text in _caption(cells, about, lines, axes)
        for line in textwrap.wrap(text, max(60, int(width / _CHARACTER)))
    ]
    return page(f"{study}: {metrics} {against}", subtitle, rows, series, width)


def page(
    title: str, subtitle: list[str], rows: list[list[Layers]], series: Series, width: float = _WIDEST
) -> alt.VConcatChart:
    """Rows of panels under one title, with one legend; `width` is about how wide they are, in px."""
    return alt.vconcat(
        *(alt.hconcat(*row, spacing=26) for row in rows),
        spacing=26,
        title=alt.TitleParams(
            title,
            subtitle=subtitle,
            anchor="start",
            fontSize=16,
            subtitleFontSize=11,
            subtitleColor="#444",
            offset=16,
            subtitleLineHeight=15,
            limit=0,
        ),
        padding=16,
        resolve=alt.Resolve(scale=alt.ScaleResolveMap(color="shared", shape="shared", strokeDash="shared")),
        config=_looks(series, width),
    )


def _looks(series: Series, width: float) -> alt.Config:
    """The looks of all panels, which are about `width` px wide together; no label is ever cut."""
    longest = 40 + 7 * max(len(name) for name in series.names)  # px of an entry of the legend
    columns = max(1, min(len(series.names), int(width // longest)))
    return alt.Config(
        view=alt.ViewConfig(stroke="#bbb", continuousWidth=200, continuousHeight=190),
        axis=alt.AxisConfig(labelLimit=0, titleLimit=0, gridColor="#eee", titleFontWeight="normal"),
        legend=alt.LegendConfig(
            labelLimit=0,
            titleLimit=0,
            orient="bottom",
            symbolSize=90,
            symbolStrokeWidth=0,
            labelFontSize=12,
            columns=columns,
        ),
        title=alt.TitleConfig(limit=0),
    )


def save(chart: alt.TopLevelMixin, picture: Path, source: Path) -> None:
    """Write a picture as PNG, at twice its size on the screen, and its source as Vega-Lite JSON, data included.

    Nothing is loaded over the network.  Each file appears only when whole.
    """
    text = chart.to_json(indent=1)
    png = vl_convert.vegalite_to_png(text, scale=2)
    for path, content in [(picture, png), (source, f"{text}\n".encode())]:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.part")
        part.write_bytes(content)
        os.replace(part, path)


class Panel(NamedTuple):
    """The cells that are drawn together."""

    group: tuple[str, ...]  # panels of one group stand side by side
    title: tuple[list[str], list[str]]  # lines, and smaller lines
    cells: pd.DataFrame


def _panels(cells: pd.DataFrame, lines: bool) -> list[Panel]:
    """The panels in reading order."""
    keys = ["criterion_metric", "task_label", "shape_label", *(["components_label"] if lines else [])]
    order = cells.assign(d=cells["target_dim"].fillna(0), count=_component_count(cells))
    order = order.sort_values(["task", "task_label", "d", "count", "components_label", "heads", "layers"])
    varying = [name for name in keys[1:] if cells[name].nunique() > 1]
    panels = []
    for key, group in order.groupby(keys, sort=False, dropna=False):
        named = dict(zip(keys, map(str, key), strict=True))
        if named["shape_label"]:
            place = (*(text for name, text in named.items() if name != "shape_label"), str(group["d"].iloc[0]))
        else:
            place = (named["criterion_metric"],)
        smaller = [] if named["shape_label"] else _shapes(group, lines)
        panels.append(Panel(place, ([named[name] for name in varying], smaller), cells.loc[group.index]))
    return panels


def _shapes(cells: pd.DataFrame, lines: bool) -> list[str]:
    """The shape of a panel's cells, a line for each that differs; the width too in a dot plot."""
    found: dict[str, list[str]] = {}
    order = cells.assign(kind=cells["backbone"].map(labels.kind_order)).sort_values(["kind", "width"])
    for row in to_rows(order):
        text = labels.shape_label(row) + ("" if lines else f", m = {row['width']}")
        kinds = found.setdefault(text, [])
        if row["backbone"] not in kinds:
            kinds.append(row["backbone"])
    if len(found) == 1:
        return list(found)
    return [f"{', '.join(kinds)}: {text}" for text, kinds in found.items()]


def _grid(panels: list[Panel], series: Series, axes: dict[str, Axis], lines: bool) -> list[list[Layers]]:
    """The panels in rows of at most four; a group begins a row of its own."""
    rows: list[list[Layers]] = []
    group: tuple[str, ...] | None = None
    dots = [] if lines else _rows(pd.concat([panel.cells for panel in panels]))
    labelled = max(len(_rules(panel.cells)) for panel in panels)
    for panel in panels:
        if panel.group != group or len(rows[-1]) == _COLUMNS:
            rows.append([])
        first, group = not rows[-1], panel.group
        axis = axes[panel.cells["criterion_metric"].iloc[0]]
        rules = _rules(panel.cells)
        if lines:
            upright = _sufficient(panel.cells)
            rows[-1].append(line_panel(panel.cells, panel.title, series, axis, rules, upright, first))
        else:
            rows[-1].append(dot_panel(panel.cells, panel.title, series, axis, rules, dots, labelled, first))
    return rows


def _rows(cells: pd.DataFrame) -> list[str]:
    """The rows of a dot plot, top to bottom: fewer components before more."""
    order = cells.assign(count=_component_count(cells), kind=cells["backbone"].map(labels.kind_order))
    return list(dict.fromkeys(order.sort_values(["count", "components_label", "kind", "variant"])["row"]))


def _row_labels(cells: pd.DataFrame) -> list[str]:
    """The row of a dot plot that each cell stands in: its components, where they vary, and its variant."""
    several = cells["components"].nunique() > 1
    if (cells["variant"] != "").any():
        names = cells["series"]
    else:
        names = pd.Series("", index=cells.index)
    labelled = [
        [label] * several + [name] * bool(name) for label, name in zip(cells["components_label"], names, strict=True)
    ]
    return [", ".join(parts) or label for parts, label in zip(labelled, cells["components_label"], strict=True)]


def _bottoms(cells: pd.DataFrame) -> pd.Series:
    """Where the band of each cell begins: at the interval's end, but on a logarithmic axis not far below the mean.

    Intervals of an NMSE often reach 0, which is infinitely far down there: their bands would fill the panel.
    """
    near = (cells["mean"] / _DEEPEST).where(cells["lower"].notna())
    return cells["lower"].where((cells["criterion_metric"] != "nmse") | (cells["lower"] > near), near)


def _component_count(cells: pd.DataFrame) -> pd.Series:
    return cells[["residual", "layernorm", "mlp"]].sum(axis="columns")


def _rules(cells: pd.DataFrame) -> list[tuple[float, str, bool]]:
    """The rules of a panel: value, label, and whether it is the criterion."""
    accuracy = cells["criterion_metric"].iloc[0] == "test_accuracy"
    rules = []
    for value in sorted(cells["criterion_value"].unique()):
        rules.append((float(value), f"criterion {100 * value:.3g} %" if accuracy else f"criterion {value:.3g}", True))
    found: dict[str, float] = {}
    for text in cells["references"].unique():
        found.update(json.loads(text))
    for name, value in found.items():
        if accuracy and value is not None and math.isfinite(value):
            label = _REFERENCES.get(name, name.removeprefix("reference_").replace("_", " "))
            rules.append((float(value), f"{label} {100 * value:.1f} %", False))
    return rules


def _sufficient(cells: pd.DataFrame) -> dict[str, int]:
    """The sufficient widths of a panel, where the theory gives them and its cells agree on them."""
    marks = {"N_EU": "sufficient_width_compiled", "N": "sufficient_width"}
    found = {label: cells[name].dropna().unique() for label, name in marks.items()}
    return {label: int(values[0]) for label, values in found.items() if len(values) == 1}


def _axis(metric: str, cells: pd.DataFrame) -> Axis:
    """The axis of a metric, wide enough for every mean, interval and rule of the study."""
    values = pd.concat([cells["mean"], cells["criterion_value"]]).dropna()
    if metric == "nmse":
        positive = [value for value in [*values, *cells["upper"].dropna()] if value > 0]
        low = max(math.floor(math.log10(min(positive))), -8)
        high = min(math.ceil(math.log10(max(positive))), low + 12)
        return Axis(_METRICS[metric], (10.0**low, 10.0 ** max(high, low + 1)), log=True)
    marks = [value for _, group in cells.groupby("task_label") for value, *_ in _rules(group)]
    low = min([*values, *cells["lower"].dropna(), *marks])
    return Axis(_METRICS[metric], (max(0.0, math.floor(10 * low - 0.2) / 10), 1.0), log=False)


def _caption(cells: pd.DataFrame, about: str, lines: bool, axes: dict[str, Axis]) -> list[str]:
    """What a reader must know: the study, what a point and a band are, how many seeds, what is not shown."""
    constant = ["task_label", *(["components_label"] if lines else [])]
    fixed = ", ".join(cells[name].iloc[0] for name in constant if cells[name].nunique() == 1)
    counts = sorted(cells["n"].unique().tolist())
    seeds = f"n = {counts[0]}" if len(counts) == 1 else f"n = {counts[0]} to {counts[-1]}"
    text = [_MEANINGS[name] for name in axes]
    text.append(f"Points: mean over {seeds} seeds, at the learning rate chosen on validation.")
    band = "Bands" if lines else "Bars"
    if (cells["interval"] == INTERVAL).any():
        text.append(f"{band}: {INTERVAL} interval over seeds (backbone draw and descent, not data).")
    if (cells["bottom"] > cells["lower"]).any():
        text.append(f"{band} are cut at a tenth of the mean: below it, intervals go on, most to 0.")
    if any(axis.log and (cells["mean"] < axis.domain[0]).any() for axis in axes.values()):
        text.append("Points at the edge lie beyond it.")
    if counts[0] < 3:
        text.append("No interval where n is below 3.")
    text += _trained(cells["trainable"])
    if lines and cells["sufficient_width"].notna().any():
        text.append(
            "Upright rules: widths sufficient for every target, though not necessary: "
            "N with U fixed, N_EU with U compiled too."
        )
    absent = {"diverged": int(cells["n_diverged"].sum()), "missing": int(cells["n_missing"].sum())}
    text += [f"Trials {word}: {count}." for word, count in absent.items() if count]
    if empty := int(cells["mean"].isna().sum()):
        text.append(f"Cells without a result, not drawn: {empty}.")
    return [line for line in (about, fixed, " ".join(text)) if line]


def _trained(trainable: pd.Series) -> list[str]:
    """What of the program is trained, where it is not the whole of it everywhere; labels name what is not usual."""
    counts = trainable[trainable != "all"].value_counts()
    if counts.empty or counts.index.tolist() == ["program"] or 2 * counts.iloc[0] <= counts.sum():
        return []
    usual = {
        "program": "Embedding E and unembedding U are trained",
        "embedding": "Only the embedding E is trained, not the unembedding U",
        "unembedding": "Only the unembedding U is trained, not the embedding E",
    }[str(counts.index[0])]
    return [f"{usual}{', unless a label says otherwise' if len(counts) > 1 else ''}."]


def _extent(panels: list[Panel], lines: bool) -> float:
    """About how wide the picture is, in px."""
    widest = min(_COLUMNS, max(sum(other.group == panel.group for other in panels) for panel in panels))
    return 60 + widest * (300 if lines else 260) + (0 if lines else 100)
