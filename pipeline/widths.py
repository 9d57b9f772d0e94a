"""Widths given as multiples of the sufficient width of the target: `width: {times_sufficient: [0.5, 1, 2]}`."""

import math
from fractions import Fraction
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from fut.config import ATTENTION_ONLY, TrialConfig
from fut.tasks import AnyTask
from fut.theory import Unembedding, sufficient_width
from pipeline.faults import Fault, as_number, entries, join, rounded, show, unknown
from pipeline.limits import LARGEST_INT64, largest

KEY = "times_sufficient"
UNEMBEDDING: dict[Any, Unembedding] = {"program": "compiled", "embedding": "fixed", "all": "compiled"}  # by `trainable`
STAND_IN = 1  # for a cell that is refused anyway, for what the sufficient width depends on
TASK: TypeAdapter[Any] = TypeAdapter(AnyTask)


class Multiple(NamedTuple):
    """A width that is a multiple of the sufficient width, which depends on the rest of the cell."""

    factor: float


def multiples(listed: list[tuple[Any, str]]) -> tuple[list[tuple[tuple[Any, ...], str]], list[Fault]]:
    """The choices of a width axis, each with its path: whole numbers as they are, multiples written out one by one."""
    choices: list[tuple[tuple[Any, ...], str]] = []
    faults: list[Fault] = []
    for item, path in listed:
        if not isinstance(item, dict):
            choices.append(((item,), path))
            continue
        faults += [Fault(join(path, key), unknown("key", key, [KEY])) for key in item if key != KEY]
        if KEY not in item:
            faults += [] if item else [Fault(path, f"is empty; write a whole number, or {{{KEY}: [0.5, 1, 2]}}")]
            continue
        if item[KEY] == []:
            faults.append(Fault(join(path, KEY), "an empty list makes no cells; write for example [0.5, 1, 2]"))
        for factor, where in entries(item[KEY], join(path, KEY)):
            if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor < math.inf:
                remedy = as_number(factor) if isinstance(factor, str) else ""
                faults.append(Fault(where, f"expected a number above 0, got {show(factor)}{remedy}"))
            else:
                choices.append(((Multiple(factor),), where))
    return choices, faults


def sufficient_multiple(values: dict[str, Any]) -> int:
    """The width of a cell whose `width` is a `Multiple`, rounded up to a whole number.

    Args:
        values: the cell's configuration, not yet checked.

    Raises:
        ValueError: the cell has no sufficient width, or the multiple is too wide.
    """
    trainable = values.get("trainable", "program")
    heads, layers = values.get("heads"), values.get("layers")
    backbone, components = values.get("backbone"), values.get("components", ATTENTION_ONLY)
    try:
        task = TASK.validate_python(values.get("task"))
    except ValidationError:
        return STAND_IN
    if not isinstance(backbone, dict) or not isinstance(components, str) or not isinstance(trainable, str):
        return STAND_IN
    if not isinstance(heads, int) or not isinstance(layers, int) or min(heads, layers) < 1:
        return STAND_IN
    if getattr(task, "target_dim", None) is None:
        raise ValueError(f"{KEY} needs a target, and task {task.name} has none; give whole numbers, or task simulate")
    if trainable == "unembedding":
        raise ValueError("where only the unembedding trains, no width is known to be sufficient; give whole numbers")
    if trainable not in UNEMBEDDING:
        return STAND_IN
    qk_dim = backbone.get("qk_dim") or backbone.get("block") or task.qk_dim
    if type(qk_dim) is not int or qk_dim < 1:
        return STAND_IN
    enough = sufficient_width(
        heads,
        layers,
        qk_dim,
        task.out_dim,
        residual="residual" in components.split("+"),
        tied=backbone.get("tied") is True or backbone.get("layout") == "tied",
        unembedding=UNEMBEDDING[trainable],
        target_dim=task.target_dim,
    )
    factor = values["width"].factor
    width = math.ceil(enough * Fraction(repr(factor)))
    if width > largest("width"):
        raise ValueError(
            f"{factor} times the sufficient width is {rounded(width)}, and at most {largest('width'):,} can be built; "
            "take fewer heads or layers, or a smaller multiple"
        )
    return width


def too_wide_for_tables(config: TrialConfig) -> str | None:
    """What is wrong with a cell whose sufficient widths, which the tables hold, do not fit into 64 bits; else None."""
    target_dim = getattr(config.task, "target_dim", None)
    if target_dim is None:
        return None
    recipe = config.recipe
    sizes = recipe.heads, recipe.layers, recipe.qk_dim, config.task.out_dim, config.has("residual"), recipe.tied
    enough = max(sufficient_width(*sizes), sufficient_width(*sizes, unembedding="compiled", target_dim=target_dim))
    if enough <= LARGEST_INT64:
        return None
    return (
        f"the sufficient width of a target with {config.heads} heads and {config.layers} layers is {rounded(enough)}, "
        "which the tables cannot hold; take fewer layers or heads"
    )
