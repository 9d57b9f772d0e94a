"""Measure, print, write down, compare: `python -m benchmarks`, or with the names of some subjects."""

import importlib
import time
import traceback
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from benchmarks import page
from benchmarks.figures import Change, Report, changes, number
from benchmarks.machine import BUSY, kind, load, machine, versions
from benchmarks.process import ROOT
from benchmarks.terminal import CONSOLE, STATUS, show

LATEST = ROOT / "results" / "benchmarks.json"


class Subject(StrEnum):
    """What can be measured, in this order: each is a module of this folder."""

    GENERATORS = "generators"
    STEP = "step"
    LIGHTNING = "lightning"
    EVALUATION = "evaluation"
    COMPILER = "compiler"
    SWEEP = "sweep"
    AGGREGATION = "aggregation"
    DVC = "dvc"


def main(
    subjects: Annotated[list[Subject] | None, typer.Argument(help="what to measure; default: all")] = None,
    record: Annotated[
        bool,
        typer.Option("--record", help="make these the recorded figures of this kind of machine, and the docs' too"),
    ] = False,
    out: Annotated[Path, typer.Option(help="the file that receives the figures")] = LATEST,
) -> None:
    """Measure how fast things are, and compare with the recorded figures of this kind of machine, or the last run."""
    chosen = list(dict.fromkeys(subjects or Subject))
    if record and len(chosen) < len(Subject):
        raise typer.BadParameter("only a whole run can be recorded; name no subjects")
    report, failed = measure(chosen)
    recorded = page.RECORDED / f"{report.kind}.json"
    compare(report, [recorded, out])
    report.write(out)
    CONSOLE.print(f"written to {out}")
    if failed:
        raise SystemExit(f"failed, see above: {', '.join(failed)}")
    if record:
        report.write(recorded)
        page.write()
        CONSOLE.print(f"recorded as {recorded}, and written into {page.PAGE}")


def measure(chosen: list[Subject]) -> tuple[Report, list[Subject]]:
    """Measure some subjects and print each one's table; returns the report, and the subjects that failed."""
    here, began, before, clock = machine(), datetime.now(UTC), load(), time.perf_counter()
    CONSOLE.print(", ".join(f"{name} {value}" for name, value in (here | versions()).items()))
    if before > BUSY:
        CONSOLE.print(f"The machine is busy (load {before}): the figures may be too slow.", style="bold")
    found, failed = {}, []
    for subject in chosen:
        module = importlib.import_module(f"benchmarks.{subject}")
        try:
            with STATUS:
                found[subject.value] = module.measure()
        except Exception:  # what the other subjects took minutes to measure is not lost with it
            CONSOLE.print(f"{subject} failed: {traceback.format_exc()}")
            failed.append(subject)
        else:
            show(f"{subject}: {module.ABOUT}", found[subject.value])
    report = Report(
        kind=kind(here),
        machine=here,
        versions=versions(),
        began=began.isoformat(timespec="seconds"),
        seconds=time.perf_counter() - clock,
        load=(before, load()),
        subjects=found,
    )
    return report, failed


def compare(new: Report, files: list[Path]) -> None:
    """Say what differs beyond noise from the first of the files that is of the same kind of machine."""
    for path in files:
        old = _read(path)
        if old and old.kind == new.kind:
            break
    else:
        CONSOLE.print("There are no figures of this kind of machine to compare with; the next run has these.")
        return
    CONSOLE.print(f"Compared with {path} of {old.began}:")
    for name in sorted(new.versions | old.versions):
        before, now = old.versions.get(name, "none"), new.versions.get(name, "none")
        if before != now:
            CONSOLE.print(f"  {name} was {before} and is {now}")
    differing = changes(new, old)
    for entry in differing:
        CONSOLE.print(f"  {_line(entry)}", style="bold red" if entry.factor > 1 else "green")
    if all(entry.factor < 1 for entry in differing):
        CONSOLE.print("  nothing got slower beyond noise")


def _read(path: Path) -> Report | None:
    """The figures of a file; None where there is no file, or a damaged one."""
    try:
        return Report.read(path)
    except FileNotFoundError:
        return None
    except ValueError as error:
        CONSOLE.print(f"{path} cannot be read, so nothing is compared with it: {error}")
        return None


def _line(entry: Change) -> str:
    old, new = entry.old, entry.new
    verdict = f"worse by {entry.factor - 1:.0%}" if entry.factor > 1 else f"better by {1 / entry.factor - 1:.0%}"
    figures = f"{number(new.median)} {new.unit}, was {number(old.median)}"
    return f"{entry.subject}: {new.row}, {new.column}: {figures}: {verdict}"


if __name__ == "__main__":
    typer.run(main)
