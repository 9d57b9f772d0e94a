"""What distinguishes the cells of a study, in words: the titles of panels and the names of series.

A picture names only what varies.  Cells of one task, metric and, where it varies, shape and components share a panel;
within a panel a series is a kind of backbone, and whatever else varies among the cells of that kind there.
"""

import json
from collections import Counter
from typing import Any

import pandas as pd

from analysis.schema import to_rows

KINDS = ("sparse", "random", "pretrained", "control", "trained")
_PLAIN = {"origin", "control", "distribution"}  # attributes whose values speak for themselves
_ATTRIBUTES = [
    "origin",
    "source_task",
    "control",
    "distribution",
    "layout",
    "values",
    "tied",
    "qk_gain",
    "value_gain",
    "mlp_gain",
    "trainable",
]
# Usually these follow from the width; they name a series only where one width has several of them.
_FOLLOWING = [
    "qk_dim",
    "leaf_dim",
    "training_steps",
    "batch_size",
    "steps_per_epoch",
    "warmup_steps",
    "weight_decay",
    "solved_at",
]
_TRAINABLE = {"program": "E and U", "embedding": "only E", "unembedding": "only U"}


def describe(curves: pd.DataFrame) -> pd.DataFrame:
    """The cells of one study with six columns of text more.

    `task_label`, `shape_label` ("" where a backbone kind has one shape a task), `components_label`; `origin`, where the
    programs come from; `variant`, what sets a cell apart from others of its kind ("" if nothing); `series`, the kind of
    backbone and the variant.
    """
    cells = curves.copy()
    cells["task_label"] = task_labels(cells)
    cells["components_label"] = [components_label(text) for text in cells["components"]]
    several = _several_shapes(cells)
    cells["shape_label"] = [shape_label(row) if several else "" for row in to_rows(cells)]
    cells["origin"] = [origin(row) for row in to_rows(cells)]
    cells["variant"] = _variants(cells)
    cells["series"] = [
        f"{kind}, {variant}" if variant else kind
        for kind, variant in zip(cells["backbone"], cells["variant"], strict=True)
    ]
    return cells


def components_label(components: str) -> str:
    """The name of the components as it stands in pictures.

    >>> components_label("residual+layernorm+mlp"), components_label("attention")
    ('residual + LayerNorm + MLP', 'attention only')
    """
    if components == "attention":
        return "attention only"
    names = {"layernorm": "LayerNorm", "mlp": "MLP"}
    return " + ".join(names.get(name, name) for name in components.split("+"))


def shape_label(row: dict[str, Any]) -> str:
    """The shape of a cell: heads, layers and, where there is a target, its dimension.

    >>> shape_label({"heads": 2, "layers": 3, "target_dim": None})
    'H = 2, L = 3'
    """
    label = f"H = {row['heads']}, L = {row['layers']}"
    return label if row["target_dim"] is None else f"{label}, d = {row['target_dim']}"


def origin(row: dict[str, Any]) -> str:
    """Where a cell's programs come from: the compiler, descent, or descent from what the compiler found.

    >>> origin({"method": "learned", "init": "compiled", "init_noise": 0.1})
    'learned from compiled, noise 0.1'
    """
    if row["init"] == "compiled":
        return f"learned from compiled, noise {row['init_noise']:g}"
    return str(row["method"])


def kind_order(kind: str) -> int:
    """The place of a backbone kind in legends."""
    return KINDS.index(kind) if kind in KINDS else len(KINDS)


def task_labels(cells: pd.DataFrame) -> list[str]:
    """The task, hops k of khop, and every other parameter that varies among its cells."""
    parsed = [json.loads(text) for text in cells["task_parameters"]]
    groups: dict[tuple[str, Any], list[dict[str, Any]]] = {}
    for parameters in parsed:
        groups.setdefault((parameters["name"], parameters.get("hops")), []).append(parameters)
    labels = []
    for parameters in parsed:
        group = groups[parameters["name"], parameters.get("hops")]
        parts = [parameters["name"]]
        if "hops" in parameters:
            parts.append(f"k = {parameters['hops']}")
        parts += [
            f"{name} {value}"
            for name, value in parameters.items()
            if name not in ("name", "hops", "target_dim") and _says_more(name, group)
        ]
        labels.append(", ".join(parts))
    return labels


def _says_more(name: str, group: list[dict[str, Any]]) -> bool:
    """Whether a task's parameter varies, and not just as the dimension of the target does."""
    values = {str(parameters.get(name)) for parameters in group}
    follows = all(parameters.get(name) == parameters.get("target_dim") for parameters in group)
    return len(values) > 1 and not follows


def _several_shapes(cells: pd.DataFrame) -> bool:
    """Whether some kind of backbone meets one task in more than one shape."""
    shapes = cells.assign(d=cells["target_dim"].fillna(0))
    shapes = shapes[["task_label", "backbone", "heads", "layers", "d"]].drop_duplicates()
    return bool(shapes.duplicated(["task_label", "backbone"]).any())


def _variants(cells: pd.DataFrame) -> list[str]:
    """What sets each cell apart from the others of its kind; the value that most of them have goes without saying."""
    labels: dict[Any, str] = {}
    panel = ["task_label", "shape_label", "components_label", "criterion_metric", "backbone"]
    for _, kind in cells.groupby("backbone"):
        parts: list[list[str]] = [[] for _ in range(len(kind))]
        for name in _ATTRIBUTES + _FOLLOWING:
            beside = panel if name in _ATTRIBUTES else [*panel, "origin", "width"]
            if name == "tied" and kind["layout"].notna().all():
                continue  # of a sparse backbone, the layout says it
            if not (kind.groupby(beside, dropna=False)[name].nunique(dropna=False) > 1).any():
                continue
            values = [None if pd.isna(value) else value for value in kind[name]]
            usual, count = Counter(values).most_common(1)[0]
            for part, value in zip(parts, values, strict=True):
                if name == "origin" or not (value == usual and 2 * count > len(values)):
                    part.append(_words(name, value))
        labels |= {index: ", ".join(part) for index, part in zip(kind.index, parts, strict=True)}
    variants = [labels[index] for index in cells.index]
    repeated = cells.assign(variant=variants).duplicated([*panel, "width", "variant"], keep=False)
    return [
        f"{label} cell {cell[:6]}".strip() if again else label
        for label, cell, again in zip(variants, cells["cell"], repeated, strict=True)
    ]


def _words(name: str, value: Any) -> str:
    """One attribute in words."""
    if name == "source_task":
        return f"from {value}"
    if name == "trainable":
        return _TRAINABLE.get(value, str(value))
    if name == "tied":
        return "tied" if value else "untied"
    if name == "values":
        return f"{value} values"
    if value is None:
        return f"no {name}"
    return str(value) if name in _PLAIN else f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
