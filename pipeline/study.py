"""A study as params.yaml states it, before its grid is expanded."""

import math
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from fut.backbones import BACKBONES
from fut.config import TrialConfig
from fut.tasks.base import Task
from pipeline.faults import Problems, Steps, as_number, show, unknown
from pipeline.limits import largest

FROZEN_RATE, TRAINED_RATE = 1e-2, 1e-3


def _seeds(value: Any) -> list[int]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"expected a list of at least one seed, got {show(value)}; write [0, 1, 2]")
    problems: list[tuple[Steps, str]] = []
    seen: set[int] = set()
    for index, seed in enumerate(value):
        if type(seed) is not int or not 0 <= seed <= largest("seed"):
            remedy = as_number(seed, whole=True) if isinstance(seed, str) else ""
            text = f"a seed is a whole number from 0 to {largest('seed'):,}, got {show(seed)}{remedy}"
            problems.append(((index,), text))
        elif seed in seen:
            problems.append(((index,), f"seed {seed} is given twice; keep one"))
        else:
            seen.add(seed)
    if problems:
        raise Problems(problems)
    return value


def _rates(value: Any) -> dict[str, list[float]]:
    """A number, a list of numbers, or either by backbone kind → the list of every kind stated."""
    problems: list[tuple[Steps, str]] = []
    rates: dict[str, list[float]] = {}
    if not isinstance(value, dict):
        rates = dict.fromkeys(BACKBONES, _rate_list(value, (), problems))
    elif not value:
        problems = [((), "an empty mapping; write a number, or one for each backbone kind")]
    else:
        problems = [((kind,), unknown("backbone kind", kind, BACKBONES)) for kind in value if kind not in BACKBONES]
        rates = {kind: _rate_list(given, (kind,), problems) for kind, given in value.items()}
    if problems:
        raise Problems(problems)
    return rates


def _rate_list(value: Any, place: Steps, problems: list[tuple[Steps, str]]) -> list[float]:
    """One learning rate or a list of them → the list; what is wrong in it joins the problems."""
    rates: list[float] = []
    if value == []:
        problems.append((place, "an empty list; write at least one number"))
    for index, rate in enumerate(value if isinstance(value, list) else [value]):
        here = (*place, index) if isinstance(value, list) else place
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < math.inf:
            remedy = as_number(rate) if isinstance(rate, str) else ""
            problems.append((here, f"a learning rate is a number above 0, got {show(rate)}{remedy}"))
        elif float(rate) in rates:
            problems.append((here, f"learning rate {rate} is given twice; keep one"))
        else:
            rates.append(float(rate))
    return rates


def _blocks(value: Any) -> list[dict[str, Any]] | dict[str, Any]:
    expected = "expected a mapping of fields to values"
    if not isinstance(value, dict | list):
        raise ValueError(f"{expected}, or a list of such, got {show(value)}; write {{width: [16, 32]}}")
    blocks = value if isinstance(value, list) else [value]
    problems: list[tuple[Steps, str]] = [
        ((index,), f"{expected}, got {show(block)}")
        for index, block in enumerate(blocks)
        if not isinstance(block, dict)
    ]
    if problems:
        raise Problems(problems)
    return value


class Study(BaseModel):
    """A named grid of trials.

    Its cells are the grid's blocks, each laid over `base`; with `changes`, also `base` itself and `base` with each
    change.  Every cell is run with every seed, and with every learning rate of its kind of backbone.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    elsewhere: ClassVar = dict.fromkeys(TrialConfig.model_fields.keys() - {"seed"}, "to a cell, in `base` or `grid`")

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
