"""Widths given as multiples of the sufficient width of the target: `width: {times_sufficient: [0.5, 1, 2]}`."""

import math
from fractions import Fraction
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from fut.config import ATTENTION_ONLY
from fut.tasks import AnyTask
from fut.theory import Unembedding, sufficient_width
from pipeline.faults import Fault, entries, join, show, unknown

KEY = "times_sufficient"
UNEMBEDDING: dict[Any, Unembedding] = {"program": "compiled", "embedding": "fixed"}  # by `trainable`
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
                faults.append(Fault(where, f"expected a number above 0, got {show(factor)}"))
            else:
                choices.append(((Multiple(factor),), where))
    return choices, faults


def sufficient_multiple(values: dict[str, Any]) -> int:
    """The width of a cell whose `width` is a `Multiple`, rounded up to a whole number.

    Args:
        values: the cell's configuration, not yet checked.

    Raises:
        ValueError: the cell has no sufficient width.
    """
    trainable = values.get("trainable", "program")
    heads, layers = values.get("heads"), values.get("layers")
    backbone, components = values.get("backbone"), values.get("components", ATTENTION_ONLY)
    try:
        task = TASK.validate_python(values.get("task"))
    except ValidationError:
        return STAND_IN
    if not isinstance(backbone, dict) or not isinstance(components, str):
        return STAND_IN
    if not isinstance(heads, int) or not isinstance(layers, int) or min(heads, layers) < 1:
        return STAND_IN
    if getattr(task, "target_dim", None) is None:
        raise ValueError(f"{KEY} needs a target, and task {task.name} has none; give whole numbers, or task simulate")
    if trainable not in UNEMBEDDING:
        raise ValueError(
            f"{KEY} is known where `trainable` is {' or '.join(UNEMBEDDING)}, not {trainable}; give whole numbers"
        )
    qk_dim = backbone.get("qk_dim") or task.qk_dim
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
    return math.ceil(enough * Fraction(repr(values["width"].factor)))
