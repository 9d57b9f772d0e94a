"""A study as params.yaml states it, before its grid is expanded."""

import math
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from fut.backbones import BACKBONES
from fut.tasks.base import Task
from pipeline.faults import show, unknown

FROZEN_RATE, TRAINED_RATE = 1e-2, 1e-3


def _seeds(value: Any) -> list[int]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"expected a list of at least one seed, got {show(value)}; write [0, 1, 2]")
    if wrong := [seed for seed in value if type(seed) is not int or seed < 0]:
        raise ValueError(f"a seed is a whole number from 0 on, got {show(wrong[0])}")
    if twice := sorted({seed for seed in value if value.count(seed) > 1}):
        raise ValueError(f"seed {twice[0]} is given twice; keep one")
    return value


def _rates(value: Any) -> dict[str, list[float]]:
    """A number, a list of numbers, or either by backbone kind → the list of every kind stated."""
    if not isinstance(value, dict):
        return dict.fromkeys(BACKBONES, _rate_list(value))
    if wrong := [kind for kind in value if kind not in BACKBONES]:
        raise ValueError(unknown("backbone kind", wrong[0], BACKBONES))
    if not value:
        raise ValueError("an empty mapping; write a number, or one for each backbone kind")
    return {kind: _rate_list(rates) for kind, rates in value.items()}


def _rate_list(value: Any) -> list[float]:
    rates = value if isinstance(value, list) else [value]
    if not rates:
        raise ValueError("an empty list; write at least one number")
    for rate in rates:
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not math.isfinite(rate) or rate <= 0:
            raise ValueError(f"a learning rate is a number above 0, got {show(rate)}")
    rates = [float(rate) for rate in rates]
    if len(set(rates)) < len(rates):
        raise ValueError("a learning rate is given twice; keep one")
    return rates


def _blocks(value: Any) -> list[dict[str, Any]] | dict[str, Any]:
    for index, block in enumerate(value if isinstance(value, list) else [value]):
        if not isinstance(block, dict):
            place = f"entry {index} is {show(block)}" if isinstance(value, list) else f"got {show(value)}"
            raise ValueError(f"expected a mapping of fields to values, or a list of such; {place}")
    return value


class Study(BaseModel):
    """A named grid of trials.

    Its cells are the grid's blocks, each laid over `base`; with `changes`, also `base` itself and `base` with each
    change.  Every cell is run with every seed, and with every learning rate of its kind of backbone.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    about: str = Field("", description="one line on what the study shows")
    seeds: Annotated[list[int], BeforeValidator(_seeds)] = Field(description="for example [0, 1, 2]")
    learning_rate: Annotated[dict[str, list[float]], BeforeValidator(_rates)] = Field(
        default_factory=lambda: {kind: [TRAINED_RATE if kind == "trained" else FROZEN_RATE] for kind in BACKBONES}
    )
    criterion: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="the test metric at which a cell counts as solved; None: the task's",
    )
    base: dict[str, Any] = Field(default_factory=dict, description="fields shared by all cells")
    grid: Annotated[Any, BeforeValidator(_blocks)] = Field(default_factory=list)
    changes: Annotated[Any, BeforeValidator(_blocks)] = Field(default_factory=list)

    def blocks(self) -> list[tuple[tuple[str | int, ...], dict[str, Any]]]:
        """Every block laid over `base`, with its place in the study."""
        found: list[tuple[tuple[str | int, ...], dict[str, Any]]] = []
        for field, value in (("grid", self.grid), ("changes", self.changes)):
            if field == "changes" and (value or not found):
                found.append((("base",), {}))
            if isinstance(value, dict):
                found.append(((field,), value))
            else:
                found += [((field, index), block) for index, block in enumerate(value)]
        return found

    def criterion_for(self, task: Task) -> float:
        """The value that the task's test metric has to reach for a cell to count as solved."""
        return task.criterion_value if self.criterion is None else self.criterion
