"""Measured figures: median and spread, what counts as slower beyond noise, and how they are laid out in tables."""

import math
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field

from fut.files import write_atomically

SEVERAL = 5  # samples that make quartiles worth looking at
TOLERANCE = {"several": 0.10, "few": 0.25}  # by which a median has to be worse before it counts


class Figure(BaseModel):
    """One quantity, measured once or several times: a cell of its subject's table."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    row: str
    column: str
    unit: str
    samples: list[float] = Field(min_length=1)
    better: Literal["lower", "higher"] | None = None  # None: not compared
    at_most: float | None = None  # what the project asks of it

    @property
    def median(self) -> float:
        """The median of the samples."""
        return statistics.median(self.samples)

    @property
    def quartiles(self) -> tuple[float, float]:
        """The first and the third quartile of the samples; both are the sample where there is one only."""
        if len(self.samples) == 1:
            return self.samples[0], self.samples[0]
        first, _, third = statistics.quantiles(self.samples, n=4, method="inclusive")
        return first, third

    def text(self) -> str:
        """The median, half the distance of the quartiles in percent, and what is asked.

        >>> Figure(row="r", column="c", unit="ms", samples=[9, 10, 10, 10, 11], at_most=20).text()
        '10 ±0% (≤ 20)'
        """
        first, third = self.quartiles
        parts = [number(self.median)]
        if len(self.samples) >= SEVERAL and self.median:
            parts.append(f"±{(third - first) / 2 / abs(self.median):.0%}")
        if self.at_most is not None:
            parts.append(f"({'≤' if self.median <= self.at_most else 'NOT ≤'} {number(self.at_most)})")
        return " ".join(parts)


def number(value: float) -> str:
    """A number at three digits or, from 100 on, whole.

    >>> [number(value) for value in (0.012345, 7.126, 1234.5)]
    ['0.0123', '7.13', '1,234']
    """
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


class Report(BaseModel):
    """The figures of one run, by subject, with the machine and the versions."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str
    machine: dict[str, str | int]
    versions: dict[str, str]
    began: str
    seconds: float
    load: tuple[float, float]  # mean number of processes that wanted a core, before and after the run
    subjects: dict[str, list[Figure]]

    @classmethod
    def read(cls, path: Path) -> Self:
        """A report from its file."""
        return cls.model_validate_json(path.read_bytes())

    def write(self, path: Path) -> None:
        """Write the report, whole or not at all."""
        write_atomically(path, (self.model_dump_json(indent=1) + "\n").encode())

    def figure(self, subject: str, row: str, column: str) -> Figure:
        """One figure.

        Raises:
            KeyError: there is none.
        """
        for figure in self.subjects.get(subject, []):
            if (figure.row, figure.column) == (row, column):
                return figure
        raise KeyError(f"no figure {row!r}, {column!r} of {subject!r}")


class Change(NamedTuple):
    """A figure that differs from the recorded one beyond noise; `factor` > 1 is worse by that factor."""

    subject: str
    old: Figure
    new: Figure
    factor: float


def change(new: Figure, old: Figure) -> float | None:
    """By which factor a figure is worse (above 1) or better (below 1) than an older one; None: within noise.

    Beyond noise are medians that differ by more than 10 % and whose quartile ranges do not overlap; where either was
    measured fewer than five times, medians that differ by more than 25 %.
    """
    if new.better is None or min(new.median, old.median) <= 0:
        return None
    factor = new.median / old.median if new.better == "lower" else old.median / new.median
    several = min(len(new.samples), len(old.samples)) >= SEVERAL
    if abs(math.log(factor)) <= math.log1p(TOLERANCE["several" if several else "few"]):
        return None
    if several and new.quartiles[0] <= old.quartiles[1] and old.quartiles[0] <= new.quartiles[1]:
        return None
    return factor


def changes(new: Report, old: Report) -> list[Change]:
    """The figures that differ beyond noise, the worst first; figures that only one report has are left out."""
    known = {(subject, old.row, old.column): old for subject, found in old.subjects.items() for old in found}
    both = [
        (subject, known[subject, figure.row, figure.column], figure)
        for subject, found in new.subjects.items()
        for figure in found
        if (subject, figure.row, figure.column) in known
    ]
    found = [(subject, old, new, change(new, old)) for subject, old, new in both]
    return sorted(
        (Change(subject, old, new, factor) for subject, old, new, factor in found if factor is not None),
        key=lambda entry: -entry.factor,
    )


def grid(figures: Iterable[Figure]) -> list[list[str]]:
    """Figures as the lines of a table, the headings first; an empty text where a row has no such figure."""
    figures = list(figures)
    headings: Mapping[str, str] = {figure.column: figure.unit for figure in figures}
    cells = {(figure.row, figure.column): figure.text() for figure in figures}
    lines = [["", *(f"{column} [{unit}]" if unit else column for column, unit in headings.items())]]
    for row in dict.fromkeys(figure.row for figure in figures):
        lines.append([row, *(cells.get((row, column), "") for column in headings)])
    return lines
