"""One sweep at a time: who comes second is told who was first, and a lock ends with its holder."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.lock import StoreBusy, only_sweep

HOLDER = """
import sys, time
from pathlib import Path
from pipeline.lock import only_sweep
with only_sweep(Path(sys.argv[1]), "width"):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path: Path) -> "subprocess.Popen[str]":
    """Another process that holds the lock of tmp_path."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


def test_the_second_sweep_is_told_who_has_the_store_and_what_to_do(
    holder: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    with pytest.raises(StoreBusy) as busy, only_sweep(tmp_path, "other"):
        pytest.fail("two sweeps have one store")
    words = (
        rf"the trial store {tmp_path} is in use: \S+ sweeps study width since \S+, as process {holder.pid} on \S+\. "
        rf"Wait for its end, or end it there with `kill {holder.pid}`, then run the same command again"
    )
    assert re.fullmatch(words, str(busy.value))


def test_a_killed_holder_holds_nothing(holder: "subprocess.Popen[str]", tmp_path: Path) -> None:
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    with only_sweep(tmp_path, "other"):
        assert (tmp_path / "sweep.json").is_file()
    assert not (tmp_path / "sweep.json").exists()


@pytest.mark.parametrize("note", ["", "[]", "{}", None])
def test_a_holder_without_a_note_is_another_sweep(
    note: str | None, holder: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    (tmp_path / "sweep.json").unlink()
    if note is not None:
        (tmp_path / "sweep.json").write_text(note)
    with (
        pytest.raises(StoreBusy, match=r"in use: another sweep has it\. Wait for its end"),
        only_sweep(tmp_path, "other"),
    ):
        pytest.fail("two sweeps have one store")


def test_a_sweep_that_raises_frees_the_store(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), only_sweep(tmp_path, "width"):
        raise ZeroDivisionError
    with only_sweep(tmp_path, "width"):
        pass


def test_a_user_without_a_name_is_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr("getpass.getuser", nameless)
    with only_sweep(tmp_path, "width"):
        assert f'"user": "{os.getuid()}"' in (tmp_path / "sweep.json").read_text()
