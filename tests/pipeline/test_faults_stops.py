"""A sweep that is stopped in every way, run after run, until one goes to its end in a hostile place.

Each run may finish one trial; the next ones are held in the middle of their training until the run is stopped.
"""

import contextlib
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fut.backbones.files import path_of as backbone_path
from fut.datasets import path_of as dataset_path
from fut.trial import run_trial
from pipeline.backbones import build_backbones
from pipeline.datasets import build_datasets
from pipeline.interrupt import STILL_STOPPING, STOPPING
from tests.pipeline.lab import CPUS, Ended, Files, Lab, Run, files_of, steady

pytestmark = pytest.mark.slow
SEEDS = list(range(8))  # a trial each
AGAIN = "What is done is kept: run the same command again, and only these trials run."


class Stop(NamedTuple):
    """A sweep that was stopped when it had finished one trial and was in the middle of another."""

    before: Ended  # what there was when it was started
    ended: Ended
    left: list[str]  # processes
    problems: list[Any]  # that a check of the store finds


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Eight trials of one cost, of which one runs at a time; their datasets and backbones are there."""
    lab = Lab(tmp_path_factory.mktemp("stops"))
    lab.write([8], seeds=SEEDS, cpus=CPUS)
    build_datasets(lab.workspace)
    build_backbones(lab.workspace)
    yield lab
    lab.close()


def stop(lab: Lab, how: Callable[[Run], None], after: Callable[[], None] = lambda: None, **options: Any) -> Stop:
    """Sweep until the first missing trial has a record and another is being held, then stop it somehow.

    Args:
        lab: where.
        how: stops it.
        after: called when it has ended, before anybody looks.
        options: of the sweep.
    """
    before = lab.look(0, "", "")
    free, *later = (trial.id for trial in lab.trials() if trial.id not in before.records())
    lab.spoil(dict.fromkeys(later, "is held"))

    def meanwhile(run: Run) -> None:
        run.until(lambda: lab.store.has(free) and lab.held(), "a record, and a trial in the middle of its training")
        assert lab.processes(), "processes are not found by their mark"
        how(run)

    lab.sweep(meanwhile=meanwhile, **options)
    left = lab.left_over()
    after()
    return Stop(before, lab.ended(lab.runs[-1]), left, lab.store.check())


@pytest.fixture(scope="module")
def terminated(lab: Lab) -> Stop:
    return stop(lab, lambda run: run.send(signal.SIGTERM))


@pytest.fixture(scope="module")
def killed(lab: Lab, terminated: Stop) -> Stop:
    return stop(lab, lambda run: run.send(signal.SIGKILL))


@pytest.fixture(scope="module")
def hung_up(lab: Lab, killed: Stop) -> Stop:
    return stop(lab, Run.close_terminal, terminal=True)


@pytest.fixture(scope="module")
def interrupted(lab: Lab, hung_up: Stop) -> Stop:
    lab.write([8], seeds=SEEDS, cpus=max(1, CPUS // 2))  # two at a time

    def press_until_it_ends(run: Run) -> None:
        while run.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                run.send(signal.SIGINT, group=True)
            time.sleep(0.1)

    return stop(lab, press_until_it_ends)


@pytest.fixture(scope="module")
def vanished(lab: Lab, interrupted: Stop) -> tuple[Stop, Files]:
    """The store is moved away while a trial is trained, and back when the sweep has ended; what lay in its place."""
    store = lab.store.path
    away, instead = store.with_name("away"), store.with_name("instead")

    def move_away(run: Run) -> None:
        store.rename(away)
        lab.release()

    def move_back() -> None:
        if store.exists():
            store.rename(instead)
        away.rename(store)

    return stop(lab, move_away, move_back), files_of(instead)


def check_stop(lab: Lab, stopped: Stop, finished: int) -> None:
    """What every stop leaves: one whole record more than before, the earlier ones untouched, no process, no traces."""
    ended, before = stopped.ended, stopped.before
    assert ended.records() == {trial.id for trial in lab.trials()[:finished]}
    assert before.records() < ended.records() and before.kept().items() <= ended.kept().items()
    assert stopped.problems == []
    assert not [name for name in ended.files if name.endswith(".tmp") or name.startswith("failures/")]
    assert stopped.left == []


def check_said(lab: Lab, stopped: Stop) -> None:
    """What an interrupted sweep says where anybody listens, and writes in any case."""
    ended = stopped.ended
    assert ended.status == 130
    missing = {trial.id for trial in lab.trials()} - ended.records()
    assert ended.missing() == dict.fromkeys(missing, "not run: the sweep was interrupted")
    assert ended.completion["finished"] == len(ended.records())
    assert "Traceback" not in ended.output + ended.errors


def test_sigterm_ends_a_sweep_in_order(lab: Lab, terminated: Stop) -> None:
    check_stop(lab, terminated, 1)
    check_said(lab, terminated)
    assert terminated.ended.errors.count(STOPPING) == 1
    assert "first: incomplete, 7 of 8 trials are missing:" in terminated.ended.output
    assert AGAIN in terminated.ended.output


def test_a_killed_driver_costs_nothing_that_was_done(lab: Lab, terminated: Stop, killed: Stop) -> None:
    check_stop(lab, killed, 2)
    assert killed.ended.status == -signal.SIGKILL
    assert killed.ended.completion == terminated.ended.completion  # it says no more than was known


def test_a_closed_terminal_ends_a_sweep_in_order(lab: Lab, hung_up: Stop) -> None:
    check_stop(lab, hung_up, 3)
    check_said(lab, hung_up)


def test_no_further_ctrl_c_disturbs_the_ending(lab: Lab, interrupted: Stop) -> None:
    check_stop(lab, interrupted, 4)
    check_said(lab, interrupted)
    assert interrupted.ended.errors.count(STOPPING) == 1
    assert STILL_STOPPING in interrupted.ended.errors
    assert AGAIN in interrupted.ended.output


def test_a_store_that_vanishes_ends_the_sweep_and_is_whole_when_it_is_back(
    lab: Lab, vanished: tuple[Stop, Files]
) -> None:
    stopped, made = vanished
    check_stop(lab, stopped, 5)
    ended = stopped.ended
    assert ended.status == 1
    assert ended.output.count(f"the trial store {lab.store.path} is not there") == 1
    assert "has a disk been unmounted, or the folder moved? Check `store` in params.yaml" in ended.output
    later = {trial.id for trial in lab.trials()[5:]}
    assert {trial: ended.missing()[trial] for trial in later} == dict.fromkeys(later, "not run: the sweep had to stop")
    assert AGAIN in ended.output
    assert "Traceback" not in ended.output + ended.errors
    assert made == {}, "what is trained for a store that is not there lies in its way when it comes back"


# The last run, on one core, with an ignored SIGHUP, without its server of W&B, after dataset and a backbone have been
# damaged.  Of its three trials the second is held; then another sweep is started, the terminal closes, and the clock
# jumps back.


class Whole(NamedTuple):
    """The last run."""

    before: Ended
    ended: Ended
    other: Ended  # the sweep that was started beside it
    alone: set[str]  # the trials that had been started by then
    touched: bool  # whether the other sweep changed anything in the store
    process: int


@pytest.fixture(scope="module")
def damaged(lab: Lab, vanished: tuple[Stop, Files]) -> list[Path]:
    """Alters the dataset, and the backbone of the last trial."""
    last = lab.trials()[-1]
    paths = [dataset_path(last.task, lab.workspace.datasets), backbone_path(last.recipe, lab.workspace.backbones)]
    for path in paths:
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    return paths


@pytest.fixture(scope="module")
def whole(lab: Lab, damaged: list[Path]) -> Whole:
    before = lab.look(0, "", "")
    free, held, _ = (trial.id for trial in lab.trials() if trial.id not in before.records())
    lab.write([8], seeds=SEEDS, cpus=1)
    lab.spoil({held: "is held"})
    started = lab.starts()
    beside: dict[str, Any] = {}
    cores = os.sched_getaffinity(0)

    def meanwhile(run: Run) -> None:
        os.sched_setaffinity(0, cores)  # it has inherited its one
        run.until(lambda: lab.store.has(free) and lab.held(), "a record, and a trial in the middle of its training")
        files = files_of(lab.store.path)
        beside["other"] = lab.sweep()
        beside["touched"] = files != files_of(lab.store.path)
        beside["alone"] = set(lab.starts() - started)
        beside["process"] = run.process.pid
        run.send(signal.SIGHUP, group=True)
        (lab.sabotage / "clock").touch()
        lab.release()

    with socket.socket() as unused:  # a port that nobody listens to
        unused.bind(("127.0.0.1", 0))
        online = {
            "WANDB_MODE": "online",
            "WANDB_API_KEY": "f" * 40,
            "WANDB_BASE_URL": f"http://127.0.0.1:{unused.getsockname()[1]}",
        }
        os.sched_setaffinity(0, {min(cores)})
        try:
            ended = lab.sweep(meanwhile=meanwhile, before=("nohup",), **online)
        finally:
            os.sched_setaffinity(0, cores)
    return Whole(before, ended, **beside)


def test_after_all_stops_only_what_is_missing_runs_and_nothing_is_run_twice(lab: Lab, whole: Whole) -> None:
    ended, before = whole.ended, whole.before
    assert ended.status == 0, ended.output + ended.errors
    assert "first: 1 cells, 8 trials, 5 in the store, 3 to run" in ended.output
    assert ended.records() == {trial.id for trial in lab.trials()}
    assert before.kept().items() <= ended.kept().items()
    assert ended.store.check() == []
    assert (ended.completion["expected"], ended.completion["finished"], ended.missing()) == (8, 8, {})
    assert lab.left_over() == []


def test_one_core_is_enough(lab: Lab, whole: Whole) -> None:
    assert whole.alone == {trial.id for trial in lab.trials()[5:7]}  # the third waits for the second
    assert whole.ended.status == 0


def test_a_sweep_that_ignores_hangups_outlives_its_terminal(whole: Whole) -> None:
    assert whole.ended.status == 0
    assert STOPPING not in whole.ended.errors


def test_a_second_sweep_in_a_store_is_refused_and_touches_nothing(lab: Lab, whole: Whole) -> None:
    other = whole.other
    assert other.status == 1
    said = other.output + other.errors
    assert f"first: the trial store {lab.store.path} is in use: " in said
    assert re.search(rf" sweeps study first since \S+, as process {whole.process} on \S+\. Wait for its end, or ", said)
    assert f"end it there with `kill {whole.process}`, then run the same command again" in said
    assert "Traceback" not in said
    assert not whole.touched
    assert other.completion == whole.before.completion


def test_a_clock_that_jumps_back_disturbs_nothing(lab: Lab, whole: Whole) -> None:
    held, last = (whole.ended.store.read(trial.id) for trial in lab.trials()[6:])
    times = [datetime.fromisoformat(record["environment"]["started"]) for record in (held, last)]
    assert times[1] < times[0] - timedelta(hours=23), "the clock has not jumped"
    for record in (held, last):
        seconds = [epoch["seconds"] for epoch in record["epochs"]]
        assert 0 < seconds[0] < seconds[-1] < record["result"]["train_seconds"]
    assert whole.ended.status == 0


def test_altered_files_are_named_once_set_aside_and_made_again(
    lab: Lab, damaged: list[Path], whole: Whole, tmp_path: Path
) -> None:
    for path in damaged:
        lines = [line for line in whole.ended.output.splitlines() if f"{path}: its digest is" in line]
        assert len(lines) == 1
        assert f"{path.name}.set_aside" in lines[0]
        assert path.with_name(f"{path.name}.set_aside").exists()
    last = lab.trials()[-1]
    program = tmp_path / "program.safetensors"
    right = run_trial(last, tmp_path / "data", tmp_path / "backbones", program, 1)
    assert steady(whole.ended.store.read(last.id)) == steady(right)


def test_an_unreachable_wandb_is_said_once_and_costs_no_record(lab: Lab, whole: Whole) -> None:
    assert whole.ended.status == 0
    assert (whole.ended.output + whole.ended.errors).count("W&B") == 1
    assert len(whole.ended.records()) == len(SEEDS)
