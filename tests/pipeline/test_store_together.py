"""Several processes at one store, and clocks that jump: nothing is moved twice, and no writer loses its file."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import pipeline.store
from fut.config import TrialConfig
from fut.record import Record
from pipeline.params import load_params
from pipeline.store import Problem, Store

Finish = Callable[..., Record]
LONG_AGO, FAR_AHEAD = datetime(1970, 1, 2, tzinfo=UTC), datetime(2099, 1, 1, tzinfo=UTC)


@pytest.fixture
def trials(tiny: Path) -> list[TrialConfig]:
    return [trial for cell in load_params(tiny).cells("tiny") for trial in cell.trials]


def damage(store: Store, trial: TrialConfig) -> None:
    path = store.record_path(trial.id)
    path.write_bytes(path.read_bytes()[:-40])


@contextmanager
def before_each(name: str, action: Callable[[Path], Any]) -> Iterator[None]:
    """Do something, once, just before a method of paths does its work."""
    works, done = getattr(Path, name), threading.Event()

    def wrapped(path: Path, *arguments: Any, **options: Any) -> Any:
        if not done.is_set():
            done.set()
            action(path)
        return works(path, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, name, wrapped)
        yield


# Checks at the same time.


def test_of_two_checks_one_moves_a_damaged_trial_and_the_other_goes_on(
    store: Store, trials: list[TrialConfig], finish: Finish
) -> None:
    for trial in trials[:3]:
        finish(store, trial)
    for trial in trials[:2]:
        damage(store, trial)
    others: list[Problem] = []
    with before_each("rename", lambda path: others.extend(Store(store.path).check())):
        assert store.check() == []  # the other one was faster, after this one had seen the damage
    assert {problem.trial for problem in others} == {trial.id for trial in trials[:2]}
    assert len(list((store.path / "set_aside").iterdir())) == 2 * 3
    assert store.ids() == {trials[2].id}


CHECK = """
import sys
from pathlib import Path
from pipeline.store import Store

print("ready", flush=True)
sys.stdin.readline()
print(*(problem.trial for problem in Store(Path(sys.argv[1])).check()))
"""


def test_checks_in_several_processes_move_every_damaged_trial_once(
    store: Store, trials: list[TrialConfig], finish: Finish
) -> None:
    damaged = []
    for number in range(80):
        trial = trials[0].model_copy(update={"seed": number})
        finish(store, trial)
        if number % 2:
            damage(store, trial)
            damaged.append(trial.id)
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", CHECK, str(store.path)],
            cwd=Path(pipeline.store.__file__).parent.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for run in runs:
        assert run.stdout and run.stdout.readline() == "ready\n"
    for run in runs:
        assert run.stdin
        print(file=run.stdin, flush=True)
    moved = [run.communicate()[0].split() for run in runs]
    assert [run.returncode for run in runs] == [0, 0, 0]
    assert sorted(trial for some in moved for trial in some) == sorted(damaged)
    assert len(list((store.path / "set_aside").iterdir())) == 3 * len(damaged)
    assert len(store.ids()) == 40 and store.check() == []


def test_a_trial_that_was_run_again_meanwhile_is_left_alone(
    store: Store, trials: list[TrialConfig], finish: Finish
) -> None:
    for trial in trials[:2]:
        finish(store, trial)
        damage(store, trial)
    again: list[Record] = []

    def sweep(folder: Path) -> None:  # a whole sweep, between a check's look and its first move
        Store(store.path).check()
        again.extend(finish(store, trial) for trial in trials[:2])

    with before_each("mkdir", sweep):
        store.check()
    assert [store.read(trial.id) for trial in trials[:2]] == again and store.check() == []


# Clocks, and writers at work.


@pytest.mark.parametrize("clock", [LONG_AGO, FAR_AHEAD], ids=["back", "ahead"])
def test_a_check_takes_nothing_from_a_writer_at_work_whatever_the_clocks_say(
    store: Store, trials: list[TrialConfig], finish: Finish, monkeypatch: pytest.MonkeyPatch, clock: datetime
) -> None:
    record = finish(store, trials[0])
    store.record_path(trials[0].id).unlink()
    reached, goes_on, sync = threading.Event(), threading.Event(), os.fsync

    def slow(handle: int) -> None:
        reached.set()
        assert goes_on.wait(60)
        sync(handle)

    monkeypatch.setattr(os, "fsync", slow)
    writer = threading.Thread(target=store.write, args=(record,))
    writer.start()
    assert reached.wait(60)
    (temporary,) = store.record_path(trials[0].id).parent.iterdir()
    os.utime(temporary, (clock.timestamp(),) * 2)
    assert Store(store.path).check() == [] and temporary.exists()
    assert store.ids() == set() and not store.has(trials[0].id)  # not half a record either
    goes_on.set()
    writer.join()
    assert store.read(trials[0].id) == record
    assert list(store.record_path(trials[0].id).parent.iterdir()) == [store.record_path(trials[0].id)]


@pytest.mark.parametrize("clock", [LONG_AGO, datetime.now(UTC), FAR_AHEAD], ids=["back", "right", "ahead"])
def test_what_killed_writers_left_goes_when_their_trial_has_a_record(
    store: Store, trials: list[TrialConfig], finish: Finish, clock: datetime
) -> None:
    strays = {}
    for trial in trials[:2]:
        finish(store, trial)
        store.write_failure(trial.id, "tiny", {}, ValueError(), "")
        program, failure = store.program_path(trial.id), store.path / "failures" / f"{trial.id}.json"
        strays[trial.id] = [
            path.with_name(f".{path.name}.{'0' * 32}.tmp")
            for path in (store.record_path(trial.id), program, program.with_suffix(".json"), failure)
        ]
        for path in strays[trial.id]:
            path.write_text("{")
            os.utime(path, (clock.timestamp(),) * 2)
    store.record_path(trials[1].id).unlink()  # its sweep may be running
    assert store.check() == []
    assert not any(path.exists() for path in strays[trials[0].id])
    assert all(path.exists() for path in strays[trials[1].id])


def test_a_clock_that_jumps_back_makes_no_name_twice(
    store: Store, trials: list[TrialConfig], finish: Finish, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stopped(datetime):
        @classmethod
        def now(cls, zone: Any = None) -> "Stopped":
            return cls(2026, 1, 1, tzinfo=zone)

    monkeypatch.setattr(pipeline.store, "datetime", Stopped)
    moved = []
    for _ in range(3):
        finish(store, trials[0])
        damage(store, trials[0])
        moved += [problem.moved_to for problem in store.check()]
    assert len(set(moved)) == 3 and all(path.exists() for path in moved)
