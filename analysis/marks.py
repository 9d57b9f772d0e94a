"""The panels that pictures are made of: lines against width, and dots against a metric."""

import math
from collections.abc import Iterable
from typing import NamedTuple, Self

import altair as alt
import pandas as pd

from analysis import labels

# Okabe and Ito's colours, told apart by colour-blind readers.  Kinds of backbone keep theirs in every picture.
_COLOURS = {
    "sparse": "#0072B2",
    "random": "#D55E00",
    "pretrained": "#009E73",
    "control": "#CC79A7",
    "trained": "#333333",
}
_MORE_COLOURS = ("#009E73", "#E69F00", "#56B4E9", "#882255", "#999933", "#AA4499")
_SHAPES = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "triangle-right", "triangle-left")
_DASHES = ([1, 0], [7, 3], [2, 2], [9, 3, 2, 3], [4, 2], [12, 3], [1, 3], [6, 2, 1, 2, 1, 2])
_RULE, _CRITERION = "#777777", "#117733"
_SMALL = 10  # px, the size of labels at rules
_GAP = 12  # px between two such labels


Layers = alt.LayerChart | alt.FacetChart  # what altair.layer says it returns


class Axis(NamedTuple):
    """The axis of a metric, shared by all panels that show it."""

    title: str
    domain: tuple[float, float]
    log: bool

    def scale(self) -> alt.Scale:
        """The axis as a scale; what lies beyond it is drawn at its edge."""
        if self.log:
            return alt.Scale(type="log", domain=list(self.domain), clamp=True, nice=False)
        return alt.Scale(domain=list(self.domain), clamp=True, nice=False)

    def axis(self, show: bool = True) -> alt.Axis:
        """The ticks: powers of ten, or percent."""
        title = self.title if show else None
        if self.log:
            low, high = (round(math.log10(value)) for value in self.domain)
            ticks = [10.0**power for power in range(low, high + 1)]
            return alt.Axis(values=ticks, tickCount=len(ticks), format="~g", labels=show, title=title)
        step = 10 if self.domain[0] >= 0.5 else 20
        ticks = [tick / 100 for tick in range(0, 101, step) if tick / 100 >= self.domain[0]]
        # Vega leaves every other value out where there are more of them than tickCount.
        percent = "format(100 * datum.value, '~r') + ' %'"
        return alt.Axis(values=ticks, tickCount=len(ticks), labels=show, title=title, labelExpr=percent)

    def place(self, value: float) -> float:
        """Where a value lies between the ends of the axis, from 0 to 1."""
        low, high = self.domain
        if self.log:
            low, high, value = math.log10(low), math.log10(high), math.log10(max(value, low))
        return min(1.0, max(0.0, (value - low) / (high - low)))

    def value(self, place: float) -> float:
        """The value at a place: the inverse of `place`, within the axis and beyond."""
        low, high = self.domain
        if self.log:
            return 10 ** (math.log10(low) + place * (math.log10(high) - math.log10(low)))
        return low + place * (high - low)


class Series(NamedTuple):
    """The series of a picture, in the legend's order, with how each is drawn."""

    names: list[str]
    colours: list[str]
    shapes: list[str]
    dashes: list[list[int]]

    @classmethod
    def of(cls, names: Iterable[str]) -> Self:
        """The series of some names; a name is a kind of backbone, or one followed by a comma and a variant."""
        ordered = sorted(set(names), key=lambda name: (labels.kind_order(name.split(",")[0]), name))
        colours: list[str] = []
        for name in ordered:
            usual = _COLOURS.get(name.split(",")[0])
            spare = [colour for colour in _MORE_COLOURS if colour not in colours] or list(_MORE_COLOURS)
            colours.append(usual if usual and usual not in colours else spare[0])
        repeat = range(len(ordered))
        return cls(
            ordered, colours, [_SHAPES[i % len(_SHAPES)] for i in repeat], [_DASHES[i % len(_DASHES)] for i in repeat]
        )

    def encodings(self, field: str) -> dict[str, alt.Color | alt.Shape | alt.StrokeDash]:
        """Colour, shape and dash by a column, as one legend."""
        legend = alt.Legend(title=None, symbolOpacity=1)
        return {
            "color": alt.Color(
                field, type="nominal", legend=legend, scale=alt.Scale(domain=self.names, range=self.colours)
            ),
            "shape": alt.Shape(
                field, type="nominal", legend=legend, scale=alt.Scale(domain=self.names, range=self.shapes)
            ),
            "strokeDash": alt.StrokeDash(
                field, type="nominal", legend=None, scale=alt.Scale(domain=self.names, range=self.dashes)
            ),
        }


def line_panel(
    cells: pd.DataFrame,
    title: tuple[list[str], list[str]],
    series: Series,
    axis: Axis,
    rules: list[tuple[float, str, bool]],
    upright: dict[str, int],
    first: bool,
) -> Layers:
    """The metric against width, on a base-2 logarithmic axis.

    Args:
        cells: described cells of one panel.
        title: its lines, and its smaller lines.
        series: how the series are drawn.
        axis: the axis of the metric.
        rules: level rules: value, label, and whether it is the criterion.
        upright: upright rules by label: widths.
        first: whether the panel is the first of its row, and so carries the axis of the metric.
    """
    width, height = 200, 190
    shown = ["width", "mean", "lower", "bottom", "upper", "series", "seeds", "learning_rate"]
    data = cells[shown].dropna(subset=["mean"])
    widths = sorted({int(value) for value in cells["width"]})
    ends = [*widths, *upright.values()]
    x = alt.X(
        "width:Q",
        scale=alt.Scale(type="log", base=2, domain=[0.92 * min(ends), 1.08 * max(ends)], nice=False),
        axis=alt.Axis(values=widths, format="d", labelOverlap="greedy", title="width m (dimensions)", grid=False),
    )
    y = alt.Y("mean:Q", scale=axis.scale(), axis=axis.axis(first))
    lower = alt.Y("bottom:Q", scale=axis.scale(), axis=axis.axis(first))
    marks = series.encodings("series")
    base, sure = alt.Chart(data), data.dropna(subset=["lower"])
    alone = sure[~sure["series"].duplicated(keep=False)]
    layers = [*_level_rules(rules, axis, width, height), *_upright_rules(upright)]
    interval = {"x": x, "y": lower, "y2": "upper:Q", "color": marks["color"]}
    layers.append(alt.Chart(sure).mark_area(opacity=0.16).encode(**interval))
    if len(alone):  # one width makes no band
        layers.append(alt.Chart(alone).mark_rule(strokeWidth=1.5).encode(**interval))
    layers.append(
        base.mark_line(strokeWidth=1.8).encode(x=x, y=y, color=marks["color"], strokeDash=marks["strokeDash"])
    )
    layers.append(
        base.mark_point(filled=True, size=46, opacity=1).encode(
            x=x,
            y=y,
            color=marks["color"],
            shape=marks["shape"],
            tooltip=["series", "width", "mean", "lower", "upper", "seeds", "learning_rate"],
        )
    )
    return alt.layer(*layers, width=width, height=height, title=_heading(title))


def _heading(title: tuple[list[str], list[str]], offset: int = 8) -> alt.TitleParams:
    """The title of a panel, and its smaller lines."""
    return alt.TitleParams(
        title[0] or "",
        subtitle=title[1],
        fontSize=12,
        anchor="start",
        frame="group",
        offset=offset,
        subtitleFontSize=10.5,
        subtitleColor="#444",
    )


def _level_rules(rules: list[tuple[float, str, bool]], axis: Axis, width: int, height: int) -> list[alt.Chart]:
    """Level rules, with labels to the right of the panel that keep clear of each other."""
    ordered = sorted(rules, reverse=True)
    pixels = spread([height * (1 - axis.place(value)) for value, *_ in ordered], _GAP)
    data = pd.DataFrame(ordered, columns=["value", "label", "criterion"])
    data["colour"] = [_CRITERION if criterion else _RULE for criterion in data.pop("criterion")]
    data["at"] = [axis.value(1 - pixel / height) for pixel in pixels]
    base = alt.Chart(data).encode(color=alt.Color("colour:N", scale=None))
    return [
        base.mark_rule(strokeDash=[5, 3]).encode(y=alt.Y("value:Q", scale=axis.scale())),
        base.mark_text(align="left", fontSize=_SMALL, baseline="middle").encode(
            x=alt.value(width + 4), y=alt.Y("at:Q", scale=axis.scale()), text="label:N"
        ),
    ]


def _upright_rules(upright: dict[str, int]) -> list[alt.Chart]:
    """Upright rules at widths; the label of the smaller ends at its rule, that of the larger begins there."""
    ordered = sorted(upright.items(), key=lambda item: item[1])
    layers = []
    for place, (label, value) in enumerate(ordered):
        before = place == 0 and len(ordered) > 1
        base = alt.Chart(pd.DataFrame({"value": [value], "label": [f"{label} = {value}"]})).encode(x="value:Q")
        layers.append(base.mark_rule(color=_RULE, strokeDash=[1, 0] if label == "N_EU" else [3, 3]))
        layers.append(
            base.mark_text(
                align="right" if before else "left", dx=3 if before else -3, color=_RULE, fontSize=_SMALL
            ).encode(y=alt.value(-8), text="label:N")
        )
    return layers


def dot_panel(
    cells: pd.DataFrame,
    title: tuple[list[str], list[str]],
    series: Series,
    axis: Axis,
    rules: list[tuple[float, str, bool]],
    rows: list[str],
    labelled: int,
    first: bool,
) -> Layers:
    """Means with their intervals, one row for each combination of components and variant, one dot per backbone.

    Args: as for `line_panel`; `rows` names the rows from top to bottom, `cells` has a column `row`, and `labelled` is
    the number of rules in the panel that has most, so that titles stand at one height.
    """
    kinds = 1 if len(rows) == len(cells) else len(series.names)
    width, height = 230, max(90, (20 if kinds == 1 else 18 * kinds) * len(rows))
    shown = ["row", "mean", "lower", "bottom", "upper", "backbone", "seeds", "learning_rate"]
    data = cells[shown].dropna(subset=["mean"])
    y = alt.Y(
        "row:N",
        sort=rows,
        scale=alt.Scale(domain=rows, padding=0.25),
        title=None,
        axis=alt.Axis(labels=first, ticks=False, labelFontSize=11, grid=True, bandPosition=0),
    )
    place: dict[str, alt.Y | alt.YOffset] = {"y": y}
    if kinds > 1:
        place["yOffset"] = alt.YOffset("backbone:N", sort=series.names, scale=alt.Scale(domain=series.names))
    marks = series.encodings("backbone")
    bars = (
        alt.Chart(data.dropna(subset=["lower"]))
        .mark_rule(strokeWidth=2)
        .encode(x=alt.X("bottom:Q", scale=axis.scale(), axis=axis.axis()), x2="upper:Q", color=marks["color"], **place)
    )
    points = (
        alt.Chart(data)
        .mark_point(filled=True, size=70, opacity=1)
        .encode(
            x=alt.X("mean:Q", scale=axis.scale(), axis=axis.axis()),
            color=marks["color"],
            shape=marks["shape"],
            tooltip=["row", "backbone", "mean", "lower", "upper", "seeds", "learning_rate"],
            **place,
        )
    )
    return alt.layer(
        *_labelled_above(rules, axis),
        bars,
        points,
        width=width,
        height=height,
        title=_heading(title, 8 + _GAP * (labelled - len(rules))),
    )


def _labelled_above(rules: list[tuple[float, str, bool]], axis: Axis) -> list[alt.Chart]:
    """Upright rules at values of the metric, each with its label on a line of its own above the panel."""
    layers = []
    for line, (value, label, criterion) in enumerate(sorted(rules, reverse=True)):
        colour, late = _CRITERION if criterion else _RULE, axis.place(value) > 0.6
        base = alt.Chart(pd.DataFrame({"value": [value], "label": [label]})).encode(
            x=alt.X("value:Q", scale=axis.scale(), axis=axis.axis())
        )
        layers.append(base.mark_rule(color=colour, strokeDash=[5, 3]))
        layers.append(
            base.mark_text(
                color=colour, fontSize=_SMALL, align="right" if late else "left", dx=3 if late else -3
            ).encode(y=alt.value(-8 - _GAP * line), text="label:N")
        )
    return layers


def spread(places: list[float], gap: float) -> list[float]:
    """Ascending places moved to lie at least `gap` apart; those that touch are centred on where they belong.

    >>> spread([0.0, 100.0, 104.0], 12.0)
    [0.0, 96.0, 108.0]
    """
    groups: list[tuple[float, int]] = []  # centre and number of labels that touch each other
    for place in places:
        centre, size = place, 1
        while groups and centre - gap * (size - 1) / 2 < groups[-1][0] + gap * (groups[-1][1] - 1) / 2 + gap:
            above, count = groups.pop()
            centre, size = (above * count + centre * size) / (count + size), size + count
        groups.append((centre, size))
    return [centre + gap * (i - (size - 1) / 2) for centre, size in groups for i in range(size)]
