"""How large the numbers of params.yaml may be: beyond all that can be trained, within all that can be counted.

Without limits a zero too many would hang the check itself (a tree of 10⁹ layers is a sum of 10⁹ terms), or go unnoticed
until the tables are written, whose whole numbers have 64 bits.
"""

import math
from typing import Any, get_args

from pydantic import BaseModel

from fut.backbones import BACKBONES
from fut.config import Source, TrialConfig
from fut.tasks import TASKS
from fut.training_plan import Training
from pipeline.faults import REFUSED, Fault, Steps, show
from pipeline.sources import Sourced

WITH_PARTS = ("task", "backbone", "training", "source")  # the fields of a cell that hold fields of their own
MOST_TRIALS = 100_000  # of a study
MOST_CONDITIONS = 20_000  # that a cell is compiled for unasked: 16 GB of memory at the sufficient width
LARGEST_INT64 = 2**63 - 1
LARGEST = 1_000_000_000  # of a whole number for which nothing else is said
LARGEST_OF = {
    "heads": 1_000,
    "layers": 1_000,
    "width": 1_000_000,
    "length": 100_000,
    "min_length": 100_000,
    "max_length": 100_000,
    "seed": LARGEST_INT64,
    "seeds": LARGEST_INT64,
    "data_seed": LARGEST_INT64,
}


def _fields(kind: type) -> set[str]:
    """The fields of a cell, and of its parts, that hold a number of a kind."""
    models: list[type[BaseModel]] = [TrialConfig, Source, Training, *TASKS.values(), *BACKBONES.values()]
    return {
        name
        for model in models
        for name, field in model.model_fields.items()
        if kind in (field.annotation, *get_args(field.annotation))
    }


WHOLE, REAL = _fields(int), _fields(float)


def largest(name: str) -> int:
    """The largest whole number that a field of a cell may hold."""
    return LARGEST_OF.get(name, LARGEST)


def excess(point: Sourced) -> list[Fault]:
    """The faults of the numbers of a cell that are too large, or not finite; they are marked as refused."""
    return _excess(point, point.values, ())


def too_large(model: BaseModel) -> list[tuple[Steps, str]]:
    """The numbers of a model, and of the models in it, that are too large, or not finite, each with its place."""
    found: list[tuple[Steps, str]] = []
    for name in type(model).model_fields:
        value = getattr(model, name)
        parts = [(name, index) for index in range(len(value))] if isinstance(value, list) else [(name,)]
        for place, part in zip(parts, value if isinstance(value, list) else [value], strict=True):
            if isinstance(part, BaseModel):
                found += [((*place, *steps), text) for steps, text in too_large(part)]
            elif type(part) is int and part > largest(name):
                found.append((place, f"must be at most {largest(name):,}, got {show(part)}"))
            elif isinstance(part, float) and not math.isfinite(part):
                found.append((place, f"must be a finite number, got {show(part)}"))
    return found


def _excess(point: Sourced, values: dict[str, Any], steps: tuple[str, ...]) -> list[Fault]:
    faults: list[Fault] = []
    for name, value in values.items():
        if isinstance(value, dict):
            faults += _excess(point, value, (*steps, name))
            continue
        if name in WHOLE and type(value) is int and value > largest(name):
            text = f"must be at most {largest(name):,}, got {show(value)}"
        elif name in REAL and isinstance(value, float) and not math.isfinite(value):
            text = f"must be a finite number, got {show(value)}"
        else:
            continue
        faults.append(Fault(point.where((*steps, name)), text))
        values[name] = REFUSED
    return faults
