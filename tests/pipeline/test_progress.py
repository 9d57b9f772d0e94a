"""What a sweep says while it runs."""

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

import pipeline.progress
from pipeline.params import load_params
from pipeline.progress import Progress, describe, duration
from pipeline.store import StoreError
from pipeline.worker import Told


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(pipeline.progress, "time", clock)
    return clock


class Followed:
    """A sweep of two cells of two seeds, without Tune: trial `number` of it starts, reports, ends or fails."""

    def __init__(
        self, tiny: Path, stored: int = 0, terminal: bool = False, costs: tuple[float, ...] = (1, 1, 1, 1)
    ) -> None:
        self.cells = load_params(tiny).cells("tiny")
        self.ids = [trial.id for cell in self.cells for trial in cell.trials]
        self.file = io.StringIO()
        console = Console(file=self.file, force_terminal=terminal, width=200, soft_wrap=True, _environ={})
        known = {trial: result(0.5) for trial in self.ids[:stored]}
        missing = dict(zip(self.ids[stored:], costs, strict=False))
        self.missing = list(missing)
        self.progress = Progress("tiny", self.cells, known, missing, console)

    def do(self, event: str, number: int, **values: Any) -> None:
        """Let something happen to the trial with a number among the missing ones."""
        trial = SimpleNamespace(
            trial_id=f"tune_{number}", config={"trial": number}, error_file=values.pop("error_file", None)
        )
        if event == "result":
            told = Told(self.missing[number], result(values["score"])) if "score" in values else values["told"]
            values = {"result": {"told": told._asdict()}}
        getattr(self.progress, f"on_trial_{event}")(iteration=0, trials=[], trial=trial, **values)

    @property
    def lines(self) -> list[str]:
        """What has been printed."""
        return self.file.getvalue().splitlines()


def result(score: float | None) -> dict[str, Any]:
    """What the lines show of a trial's result."""
    return {"test_accuracy": score, "nmse": None}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (59.4, "59s"),
        (59.6, "1m 00s"),
        (60, "1m 00s"),
        (3_599, "59m 59s"),
        (3_600, "1h 00m"),
        (90_061, "25h 01m"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_line_counts_done_running_and_failed_trials_and_tells_the_time(tiny: Path, clock: Clock) -> None:
    sweep = Followed(tiny, stored=1, costs=(3, 2, 1))
    assert sweep.progress.line() == "tiny: 1/4 trials done, 0 running, 0 failed, elapsed 0s"
    sweep.do("start", 0)
    sweep.do("start", 1)
    clock.now += 60
    assert sweep.progress.line() == "tiny: 1/4 trials done, 2 running, 0 failed, elapsed 1m 00s"
    sweep.do("result", 0, score=0.25)
    sweep.do("complete", 0)
    # 60 s for a cost of 3, and 3 are left
    assert sweep.progress.line() == "tiny: 2/4 trials done, 1 running, 0 failed, elapsed 1m 00s, about 1m 00s left"
    sweep.do("error", 1)
    sweep.do("start", 2)
    clock.now += 40
    # 100 s for a cost of 3, and 1 is left: what has failed, perhaps at once, counts on neither side
    assert sweep.progress.line() == "tiny: 2/4 trials done, 1 running, 1 failed, elapsed 1m 40s, about 33s left"
    sweep.do("result", 2, score=0.5)
    sweep.do("complete", 2)
    assert sweep.progress.line() == "tiny: 3/4 trials done, 0 running, 1 failed, elapsed 1m 40s, about 0s left"


def test_a_cell_has_its_line_once_when_its_last_trial_reports(tiny: Path, clock: Clock) -> None:
    sweep = Followed(tiny, stored=1)  # numbers 0: the first cell's second trial; 1 and 2: the second cell's
    sweep.do("result", 1, score=0.75)
    assert sweep.lines == []
    sweep.do("result", 2, score=0.5)
    second = "  khop k=1, random, attention, H1 L1 m12: accuracy 0.625 (2 seeds)"
    assert sweep.lines == [second]
    sweep.do("complete", 2)
    sweep.do("result", 0, score=0.125)
    # with the score of the store, 0.5
    assert sweep.lines == [second, "  khop k=1, random, attention, H1 L1 m8: accuracy 0.3125 (2 seeds)"]


def test_a_cell_with_a_failed_trial_has_no_line(tiny: Path, clock: Clock) -> None:
    sweep = Followed(tiny)
    sweep.do("result", 0, score=0.75)
    sweep.do("error", 1)
    assert not [line for line in sweep.lines if line.startswith("  ")]


def test_a_trial_that_raised_is_counted_and_the_same_traceback_is_shown_once(tiny: Path, clock: Clock) -> None:
    sweep = Followed(tiny)
    traceback = 'Traceback [bold]\n  File "a.py"\nValueError: no\n'
    for number in (0, 1):
        sweep.do("start", number)
        sweep.do("result", number, told=Told(sweep.missing[number], failure=traceback))
        sweep.do("complete", number)
    sweep.do("result", 2, told=Told(sweep.missing[2], failure="KeyError: 'x'\n"))
    assert sweep.lines == [
        f"tiny: trial {sweep.missing[0][:12]} failed:", "Traceback [bold]", '  File "a.py"', "ValueError: no",
        f"tiny: trial {sweep.missing[2][:12]} failed:", "KeyError: 'x'",
    ]  # fmt: skip
    assert "0/4 trials done, 0 running, 3 failed" in sweep.progress.line()


def test_what_many_trials_notice_is_said_once(tiny: Path, clock: Clock) -> None:
    sweep = Followed(tiny)
    for number in range(3):
        told = Told(sweep.missing[number], result(0.5), notices=("W&B is away", f"file {number} was damaged"))
        sweep.do("result", number, told=told)
    said = ["tiny: W&B is away", *(f"tiny: file {number} was damaged" for number in range(3))]
    assert [line for line in sweep.lines if not line.startswith("  ")] == said
    assert len(sweep.progress.results) == 3


def test_a_lost_worker_is_no_failure_until_its_successor_is_lost_too(tiny: Path, clock: Clock, tmp_path: Path) -> None:
    sweep = Followed(tiny)
    reason = tmp_path / "error.txt"
    reason.write_text("the node ran out of memory\n")
    sweep.do("start", 0)
    sweep.do("recover", 0)
    assert "0 running, 0 failed" in sweep.progress.line()
    sweep.do("start", 0)
    sweep.do("error", 0, error_file=str(reason))
    assert "0 running, 1 failed" in sweep.progress.line()
    short = sweep.missing[0][:12]
    assert sweep.lines == [
        f"tiny: trial {short} lost its worker (killed, or out of memory); it runs once more",
        f"tiny: trial {short} lost its worker again:",
        "the node ran out of memory",
    ]


def test_a_store_that_takes_no_records_ends_the_sweep(tiny: Path, clock: Clock) -> None:
    sweep = Followed(tiny)
    sweep.progress.on_step_end(iteration=0, trials=[])
    sweep.do("result", 0, told=Told(sweep.missing[0], unusable="the disk is full"))
    sweep.do("result", 1, told=Told(sweep.missing[1], result(0.5)))
    with pytest.raises(StoreError, match="the disk is full"):
        sweep.progress.on_step_end(iteration=0, trials=[])


def test_a_diverged_trial_without_a_score_is_named(tiny: Path, clock: Clock) -> None:
    sweep = Followed(tiny)
    sweep.do("result", 0, score=None)
    sweep.do("result", 1, score=0.75)
    sweep.do("result", 2, score=None)
    sweep.do("result", 3, score=None)
    assert sweep.lines == [
        "  khop k=1, random, attention, H1 L1 m8: accuracy 0.75 (1 seed, 1 diverged)",
        "  khop k=1, random, attention, H1 L1 m12: accuracy unknown (0 seeds, 2 diverged)",
    ]


def test_a_line_has_a_score_for_each_learning_rate(tiny: Path, clock: Clock) -> None:
    text = tiny.read_text().replace("  tiny:\n", "  tiny:\n    learning_rate: [0.01, 0.03]\n")
    tiny.write_text(text.replace("width: [8, 12]", "width: [8]"))
    sweep = Followed(tiny)
    for number, score in enumerate((0.5, 0.6, 0.25, 0.35)):
        sweep.do("result", number, score=score)
    assert sweep.lines == [
        "  khop k=1, random, attention, H1 L1 m8: accuracy 0.55 (2 seeds, learning rate 0.01); "
        "accuracy 0.3 (2 seeds, learning rate 0.03)"
    ]


def test_without_a_terminal_there_are_plain_lines_now_and_then_and_at_the_end(tiny: Path, clock: Clock) -> None:
    sweep = Followed(tiny)
    with sweep.progress as progress:
        sweep.do("start", 0)
        for _ in range(3):
            clock.now += 25
            progress.on_step_end(iteration=0, trials=[])
        clock.now += 60
        progress.on_step_end(iteration=0, trials=[])
        clock.now += 1
        progress.on_step_end(iteration=0, trials=[])
        clock.now += 1
    assert sweep.lines == [
        f"tiny: 0/4 trials done, 1 running, 0 failed, elapsed {elapsed}" for elapsed in ("1m 15s", "2m 16s", "2m 17s")
    ]
    assert "\x1b" not in sweep.file.getvalue()


def test_on_a_terminal_there_is_one_live_line(tiny: Path, clock: Clock) -> None:
    sweep = Followed(tiny, terminal=True)
    with sweep.progress as progress:
        assert progress.status is not None
        sweep.do("start", 0)
        assert progress.status.status == "tiny: 0/4 trials done, 1 running, 0 failed, elapsed 0s"
        clock.now += 5
        progress.on_step_end(iteration=0, trials=[])
        assert progress.status.status == "tiny: 0/4 trials done, 1 running, 0 failed, elapsed 5s"
    assert sweep.lines[-1].endswith("elapsed 5s")
    assert "\x1b[2K" in sweep.file.getvalue()  # the live line is wiped when something is written over it


def test_cells_in_words(tiny: Path) -> None:
    text = tiny.read_text()
    assert [describe(cell) for cell in load_params(tiny).cells("other")] == ["khop k=1, sparse, attention, H1 L1 m12"]
    tiny.write_text(text.replace("task: {name: khop, length: 8,", "trainable: embedding\n      task: {name: simulate,"))
    cell = load_params(tiny).cells("tiny")[0]
    assert describe(cell) == "simulate d=2, random, attention, H1 L1 m8, only the embedding trains"
