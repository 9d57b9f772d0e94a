"""What a study has shown, in sentences: computed from its curves, nothing taken for granted."""

import json
import statistics
from typing import Any

import pandas as pd

from analysis.labels import describe, kind_order
from analysis.schema import to_rows

_SHOWN = 6  # cells that are named one by one
_BY_UNEMBEDDING = {"embedding": ("sufficient_width", "N"), "program": ("sufficient_width_compiled", "N_EU")}


def best(curves: pd.DataFrame) -> pd.DataFrame:
    """The best mean of one study over its widths: a row per task, components and variant, a column per backbone kind.

    Returns:
        Text: the mean, and the width that it was found at where there are several; "–" where nothing was run.
    """
    cells = _placed(curves)
    cells["row"] = [
        f"{place}, {variant}" if variant else place
        for place, variant in zip(cells["place"], cells["variant"], strict=True)
    ]
    cells["widths"] = cells.groupby(["row", "backbone"])["width"].transform("nunique")
    cells["badness"] = cells["mean"].where(cells["criterion_metric"] == "nmse", -cells["mean"])
    top = cells.sort_values("badness", na_position="last").drop_duplicates(["row", "backbone"])
    top["text"] = [_number(row) + (f" (m = {row['width']})" if row["widths"] > 1 else "") for row in to_rows(top)]
    table = top.pivot(index="row", columns="backbone", values="text").fillna("–")
    kinds: list[str] = sorted(curves["backbone"].unique().tolist(), key=kind_order)
    return table[kinds]


def sentences(curves: pd.DataFrame) -> list[str]:
    """What one study has shown: widths that are enough, how often the criterion is met, what beats no simple rule."""
    cells = _placed(curves)
    found = _met(cells)
    groups = cells.groupby(["place", "series"])
    if (groups["width"].nunique() > 1).any():
        found += _multiples(cells) if cells["sufficient_width"].notna().all() else _smallest_widths(cells)
    return found + _beaten(cells)


def _met(cells: pd.DataFrame) -> list[str]:
    """How many cells of each kind of backbone, and way to find the program, meet the criterion."""
    parts = []
    for kind in sorted(cells["backbone"].unique(), key=kind_order):
        for origin, flags in cells[cells["backbone"] == kind].groupby("origin")["meets_criterion"]:
            name = kind if origin == "learned" else f"{kind} ({origin})"
            parts.append(f"{name} {flags.sum()} of {len(flags)}")
    return [f"Cells that meet the criterion ({_criterion(cells)}): {', '.join(parts)}."]


def _smallest_widths(cells: pd.DataFrame) -> list[str]:
    """For each curve, the smallest width whose mean meets the criterion."""
    found = []
    for (place, series), curve in cells.sort_values("width").groupby(["place", "series"]):
        if curve["width"].nunique() == 1:
            continue
        met = curve[curve["meets_criterion"]]
        if met.empty:
            found.append(f"{place}, {series}: no width up to {curve['width'].max()} meets the criterion.")
            continue
        first = int(met["width"].iloc[0])
        later = curve[(curve["width"] > first) & ~curve["meets_criterion"]]["width"].tolist()
        but = f" (though not at {', '.join(map(str, later))})" if later else ""
        found.append(f"{place}, {series}: {first} is the smallest width tried that meets the criterion{but}.")
    return found


def _multiples(cells: pd.DataFrame) -> list[str]:
    """For each series of simulate, the smallest width that meets the criterion in units of the sufficient width."""
    found = []
    for (series, trainable), group in cells.groupby(["series", "trainable"]):
        if trainable not in _BY_UNEMBEDDING:
            continue
        column, symbol = _BY_UNEMBEDDING[str(trainable)]
        ratios, without = [], []
        for place, curve in group.groupby("place"):
            met = curve[curve["meets_criterion"]]
            if met.empty:
                without.append(f"{place} (up to {(curve['width'] / curve[column]).max():.2g} {symbol})")
            else:
                ratios.append(float((met["width"] / met[column]).min()))
        text = f"{series}: smallest width tried that meets the criterion, as a multiple of {symbol}: "
        if ratios:
            text += (
                f"median {statistics.median(ratios):.2f}, from {min(ratios):.2f} to {max(ratios):.2f}, "
                f"in {len(ratios)} of {len(ratios) + len(without)} shapes"
            )
        else:
            text += "none"
        found.append(text + (f"; never in {'; '.join(without)}." if without else "."))
    return found


def _beaten(cells: pd.DataFrame) -> list[str]:
    """Cells whose mean accuracy is not above the best of the task's simple rules."""
    names = []
    for row in to_rows(cells.sort_values(["place", "series", "width"])):
        rules = [value for value in json.loads(row["references"]).values() if value is not None]
        level = max(rules, default=-1.0)
        if row["criterion_metric"] == "test_accuracy" and row["mean"] is not None and row["mean"] <= level:
            names.append(
                f"{row['place']}, {row['series']} (m = {row['width']}, {_number(row)} against {100 * level:.1f} %)"
            )
    if not names:
        return []
    more = f"; and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return [f"No better than the best reference rule: {'; '.join(names[:_SHOWN])}{more}."]


def _placed(curves: pd.DataFrame) -> pd.DataFrame:
    """Described cells with a column `place`: task, shape where it varies, and components."""
    cells = describe(curves)
    parts = zip(cells["task_label"], cells["shape_label"], cells["components_label"], strict=True)
    cells["place"] = [", ".join(part for part in labels if part) for labels in parts]
    return cells


def _criterion(cells: pd.DataFrame) -> str:
    pairs = cells[["criterion_metric", "criterion_value"]].drop_duplicates().itertuples(index=False)
    return ", ".join(
        f"mean NMSE at most {value:g}" if metric == "nmse" else f"mean accuracy at least {100 * value:g} %"
        for metric, value in pairs
    )


def _number(row: dict[str, Any]) -> str:
    """A cell's mean in words."""
    if row["mean"] is None:
        return "no result"
    return f"{row['mean']:.2g}" if row["criterion_metric"] == "nmse" else f"{100 * row['mean']:.1f} %"
