"""What ends a sweep early, and what does not."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

import pipeline.interrupt
from pipeline.interrupt import SIGNALS, STILL_STOPPING, STOPPING, interruptible


def wait() -> None:
    """For a signal, which ends it."""
    time.sleep(30)
    pytest.fail("no signal came")


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_interrupts_and_says_so(number: signal.Signals, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), interruptible():
        os.kill(os.getpid(), number)
        wait()
    assert capfd.readouterr().err == f"\n{STOPPING}\n"


def test_later_signals_do_not_disturb_the_ending(capfd: pytest.CaptureFixture[str]) -> None:
    ended = False
    with interruptible():
        try:
            os.kill(os.getpid(), signal.SIGINT)
            wait()
        except KeyboardInterrupt:
            for number in (signal.SIGINT, signal.SIGTERM):
                os.kill(os.getpid(), number)
            time.sleep(0.01)
            ended = True
    assert ended
    for number in SIGNALS:  # while the interpreter ends
        os.kill(os.getpid(), number)
    assert capfd.readouterr().err == f"\n{STOPPING}\n\n{STILL_STOPPING}\n\n{STILL_STOPPING}\n"


def test_what_was_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with interruptible():
        os.kill(os.getpid(), signal.SIGHUP)
        time.sleep(0.01)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_a_block_that_no_signal_ended_leaves_the_signals_as_they_were() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with interruptible():
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_signals_that_a_library_took_can_be_taken_back() -> None:
    with pytest.raises(KeyboardInterrupt), interruptible() as listen:
        signal.signal(signal.SIGTERM, lambda number, frame: pytest.fail("the library has the signal"))
        listen()
        os.kill(os.getpid(), signal.SIGTERM)
        wait()


@pytest.mark.parametrize("look", [pipeline.interrupt._runs, pipeline.interrupt._is_shell])
def test_a_process_that_ends_while_it_is_looked_at_is_none(look: Callable[[psutil.Process], bool]) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        looked_at = psutil.Process(process.pid)
        process.kill()
    assert not look(looked_at)


# A stage of DVC.  The chain of processes is: a stand-in for dvc, the shell that dvc puts in between, the stage.

STAGE = """
import sys, time
from pipeline.interrupt import interruptible
try:
    with interruptible():
        print("runs", flush=True)
        time.sleep(60)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
RUNNER = """
import os, subprocess, sys
environment = {**os.environ, "DVC_STAGE": "sweep@width"} if sys.argv[2] == "dvc" else dict(os.environ)
subprocess.run(sys.argv[3:], env=environment)
"""


@pytest.fixture
def start() -> Callable[..., "subprocess.Popen[str]"]:
    """Starts a stand-in for dvc, which starts the stage; waits until that runs."""
    started: list[subprocess.Popen[str]] = []

    def start(kind: str, *shell: str) -> "subprocess.Popen[str]":
        environment = {name: value for name, value in os.environ.items() if name != "DVC_STAGE"}
        command = [sys.executable, "-c", STAGE]
        if shell:  # two commands, so that the shell cannot give its own process to the first
            command = [*shell, f"'{sys.executable}' -c '{STAGE}'; true"]
        process = subprocess.Popen(
            [sys.executable, "-c", RUNNER, "", kind, *command],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
        )  # fmt: skip
        started.append(process)
        assert process.stdout is not None and process.stdout.readline() == "runs\n"
        return process

    yield start
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize("shell", [(), ("bash", "--noprofile", "--norc", "-c"), ("sh", "-c")])
def test_a_stage_ends_when_dvc_has_been_killed(
    shell: tuple[str, ...], start: Callable[..., "subprocess.Popen[str]"]
) -> None:
    process = start("dvc", *shell)
    os.kill(process.pid, signal.SIGKILL)
    assert process.stdout is not None and process.stdout.readline() == "interrupted\n"


def test_a_command_of_a_person_outlives_the_process_above_it(start: Callable[..., "subprocess.Popen[str]"]) -> None:
    process = start("person")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    time.sleep(3 * pipeline.interrupt.LOOK_EVERY)
    os.killpg(process.pid, signal.SIGTERM)
    assert process.stdout is not None and process.stdout.readline() == "interrupted\n"


def test_a_stage_goes_on_while_dvc_waits(start: Callable[..., "subprocess.Popen[str]"]) -> None:
    process = start("dvc")
    time.sleep(3 * pipeline.interrupt.LOOK_EVERY)
    assert process.poll() is None
