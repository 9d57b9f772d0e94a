"""The page of the figures: what stands between the markers of docs/benchmarks.md is written from the recorded ones."""

import re
from pathlib import Path

from benchmarks.figures import Report, grid, number
from benchmarks.process import ROOT
from benchmarks.shapes import SHAPES

RECORDED = Path(__file__).parent / "recorded"
PAGE = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- figures: written by `python -m benchmarks --record` -->", "<!-- end of the figures -->"


def text(before: str, reports: list[Report]) -> str:
    """A page with the figures of some reports between its markers.

    Raises:
        ValueError: the page has no such markers.
    """
    marked = re.compile(re.escape(BEGIN) + ".*" + re.escape(END), flags=re.DOTALL)
    if not marked.search(before):
        raise ValueError(f"the page has no place for the figures: put the lines {BEGIN} and {END} where they belong")
    figures = "\n".join(section(report) for report in reports)
    return marked.sub(lambda match: f"{BEGIN}\n\n{figures}\n{END}", before)


def recorded() -> list[Report]:
    """The recorded figures of every kind of machine."""
    return [Report.read(path) for path in sorted(RECORDED.glob("*.json"))]


def write() -> None:
    """Write the recorded figures into the page."""
    PAGE.write_text(text(PAGE.read_text(encoding="utf-8"), recorded()), encoding="utf-8")


def section(report: Report) -> str:
    """The figures of one kind of machine, as Markdown."""
    here = report.machine
    packages = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    before, after = report.load
    parts = [
        f"## {here['processor']}, {here['cores']} cores\n",
        f"{here['system']}, {here['memory_gb']} GB of memory; {packages}. Measured {report.began[:10]} in "
        f"{report.seconds / 60:.1f} minutes, at a load of {before} before and {after} after.\n",
        *_in_words(report),
    ]
    for subject, figures in report.subjects.items():
        headings, *lines = grid(figures)
        parts.append(f"### {subject}\n")
        parts.append(f"| {' | '.join(headings)} |")
        parts.append(f"| --- |{' ---: |' * (len(headings) - 1)}")
        parts += [f"| {' | '.join(line)} |" for line in lines]
        parts.append("")
    return "\n".join(parts)


def _in_words(report: Report) -> list[str]:
    """How long a sweep takes, from the figures of its parts."""
    cores = int(report.machine["cores"])
    fixed = report.figure("sweep", "a sweep, besides its trials", "time").median
    each = report.figure("sweep", "a trial, besides its training", "time").median
    name, config = SHAPES[1]
    step = report.figure("step", name, "step").median / 1e3
    share = report.figure("evaluation", name, "share of a trial").median / 100
    trial = config.training.steps * step / (1 - share) + each
    trials = 100
    lasts = fixed + trials / cores * trial
    return [
        f"A sweep of T trials on these {cores} cores, a core a trial, takes about\n",
        f"    {number(fixed)} s + T / {cores} × (steps × step + evaluations + {number(each)} s)\n",
        f"For example, {trials} trials of {config.training.steps:,} steps of the shape {name} take "
        f"{number(fixed)} s + {trials // cores} × {number(trial)} s, or {number(lasts / 60)} minutes.\n",
    ]


if __name__ == "__main__":
    write()
    print(f"wrote {PAGE}")
