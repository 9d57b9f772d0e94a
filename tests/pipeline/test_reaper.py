"""What is left of a process that has been killed."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

import pipeline.reaper
from pipeline.reaper import reaper

DRIVER = """
import subprocess, sys, time
import pipeline.reaper
pipeline.reaper.GRACE = 0.1
with pipeline.reaper.reaper() as name:
    first = subprocess.Popen(["sleep", "60"], start_new_session=True)
    name()
    second = subprocess.Popen(["sleep", "60"], start_new_session=True)
    print(first.pid, second.pid, flush=True)
    time.sleep(60)
"""


def gone(process: psutil.Process, within: float) -> bool:
    with contextlib.suppress(psutil.TimeoutExpired):
        process.wait(within)
        return True
    return False


@pytest.fixture
def killed() -> Iterator[list[psutil.Process]]:
    """Two processes that were started by one that has been killed; the first was named, the second was not."""
    with subprocess.Popen([sys.executable, "-c", DRIVER], stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        processes = [psutil.Process(int(pid)) for pid in driver.stdout.readline().split()]
        os.kill(driver.pid, signal.SIGKILL)
    yield processes
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def test_what_was_named_ends_with_a_killed_process_and_nothing_else(killed: list[psutil.Process]) -> None:
    assert gone(killed[0], within=pipeline.reaper.GRACE + 20)
    assert killed[1].is_running()


def test_leaving_the_block_ends_it_too_and_leaves_no_watcher(monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(psutil.Process().children(recursive=True))
    with reaper() as name:
        (watcher,) = set(psutil.Process().children(recursive=True)) - before
        own = subprocess.Popen(["true"])
        name()
        own.wait()
    assert not watcher.is_running()


def test_a_number_that_another_process_has_now_is_left_alone() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        lines = f"{process.pid} {psutil.Process(process.pid).create_time() - 1}\n"
        subprocess.run([sys.executable, "-m", "pipeline.reaper"], input=lines, text=True, check=True)
        assert process.poll() is None
        process.kill()
