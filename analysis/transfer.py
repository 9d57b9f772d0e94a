"""The picture of the table `transfer`: how often machines agree with their targets, against width in multiples of N."""

import textwrap

import altair as alt
import pandas as pd

from analysis import labels
from analysis.figures import page
from analysis.marks import Axis, Layers, Series

NAME = "transfer"  # of the picture
_WIDTH, _HEIGHT = 300, 230  # px, of a panel
_ABREAST = 2  # panels side by side
_RULE, _SMALL = "#777777", 10


def transfer_figure(rows: pd.DataFrame) -> alt.TopLevelMixin:
    """Agreement against m / N: a panel for each task, a line for each kind of backbone.

    Lines are means over the seeds of the backbones, small marks the seeds.  The upright rule is the sufficient width,
    the level one the agreement of a machine that always gives the target's most frequent answer.

    Args:
        rows: the table `transfer`, with a row at least.
    """
    cells = rows.assign(
        task_label=labels.task_labels(rows),
        times=rows["width"] / rows["sufficient_width"],
        series=rows["backbone"].mask(rows["backbone"] == "control", "control, " + rows["control"]),
    )
    series = Series.of(cells["series"])
    axis = Axis("answers that are the target's", (0.0, 1.04), log=False)
    panels = [_panel(group, str(label), series, axis) for label, group in cells.groupby("task_label", sort=False)]
    grid = [panels[start : start + _ABREAST] for start in range(0, len(panels), _ABREAST)]
    subtitle = textwrap.wrap(_caption(cells), 140 if len(panels) > 1 else 70)
    return page("transfer: agreement of machine and target against width", subtitle, grid, series)


def _panel(cells: pd.DataFrame, label: str, series: Series, axis: Axis) -> Layers:
    """One task."""
    one = cells.iloc[0]
    ends = [*cells["times"], 1.0]
    low, high = min(ends), max(ends)
    margin = 0.05 * (high - low) or 0.1
    x = alt.X(
        "times:Q",
        scale=alt.Scale(domain=[low - margin, high + margin], nice=False),
        axis=alt.Axis(title="width m / sufficient width N", grid=False, tickCount=6),
    )
    marks = series.encodings("series")
    mean = cells.groupby(["series", "width", "times"], as_index=False).agg(
        agreement=("agreement", "mean"), seeds=("seed", lambda seeds: " ".join(str(seed) for seed in seeds.dropna()))
    )
    place = {"x": x, "y": alt.Y("agreement:Q", scale=axis.scale(), axis=axis.axis())}
    seeds = cells.loc[cells["seed"].notna(), ["series", "width", "times", "agreement", "seed"]]
    return alt.layer(
        *_rules(one["constant_agreement"], x, axis),
        alt.Chart(mean)
        .mark_line(strokeWidth=1.8)
        .encode(**place, color=marks["color"], strokeDash=marks["strokeDash"]),
        alt.Chart(seeds)
        .mark_point(filled=True, size=14, opacity=0.55)
        .encode(**place, color=marks["color"], shape=marks["shape"], tooltip=["series", "width", "seed", "agreement"]),
        alt.Chart(mean)
        .mark_point(filled=True, size=60, opacity=1)
        .encode(**place, color=marks["color"], shape=marks["shape"], tooltip=["series", "width", "agreement", "seeds"]),
        width=_WIDTH,
        height=_HEIGHT,
        title=alt.TitleParams(
            label,
            subtitle=f"N = {one['sufficient_width']}, target right at {100 * one['target_accuracy']:.1f} % of test",
            fontSize=12,
            anchor="start",
            frame="group",
            offset=18,
            subtitleFontSize=10.5,
            subtitleColor="#444",
        ),
    )


def _rules(constant: float, x: alt.X, axis: Axis) -> list[alt.Chart]:
    """The sufficient width, and the agreement of a constant answer, each with its label beside the panel."""
    upright = alt.Chart(pd.DataFrame({"times": [1.0], "label": ["m = N"]})).encode(x=x)
    label = f"constant|answer|{100 * constant:.1f} %"
    level = alt.Chart(pd.DataFrame({"agreement": [constant], "label": [label]}))
    level = level.encode(y=alt.Y("agreement:Q", scale=axis.scale(), axis=axis.axis()))
    return [
        upright.mark_rule(color=_RULE, strokeDash=[3, 3]),
        upright.mark_text(color=_RULE, fontSize=_SMALL).encode(y=alt.value(-8), text="label:N"),
        level.mark_rule(color=_RULE, strokeDash=[5, 3]),
        level.mark_text(
            color=_RULE, fontSize=_SMALL, align="left", baseline="middle", lineBreak="|", lineHeight=12, dy=-12
        ).encode(x=alt.value(_WIDTH + 5), text="label:N"),
    ]


def _caption(cells: pd.DataFrame) -> str:
    """What a reader must know."""
    one = cells.iloc[0]
    seeds = cells["seed"].nunique()
    return (
        f"A target of H = {one['heads']}, L = {one['layers']}, d = {one['target_dim']} with residual connections is "
        "trained for each task, and compiled into frozen backbones, whose unembedding is their own. "
        f"Lines: means over n = {seeds} seeds of the backbone; small marks: these seeds. Sparse backbones draw nothing "
        "and have none. Level rule: a machine that always gives the target's most frequent answer."
    )
