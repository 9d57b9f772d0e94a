"""A store on a disk that fills up, and then cannot be written at all."""

import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.store import Store
from tests.pipeline.lab import Ended, Lab, Run, files_of

pytestmark = pytest.mark.slow
BALLAST = "ballast"


class Disk:
    """A disk of one megabyte, which only commands that enter it see in its place."""

    def __init__(self, place: Path) -> None:
        root = os.geteuid() == 0
        script = 'mount -t tmpfs -o size=1m tmpfs "$0" && echo mounted && exec cat'
        self.holder = subprocess.Popen(
            ["unshare", "--mount", *(() if root else ("--map-root-user",)), "sh", "-c", script, str(place)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.holder.stdout
        self.said = self.holder.stdout.readline().strip()
        user = () if root else ("--user", "--preserve-credentials")
        self.enter = ("nsenter", "--target", str(self.holder.pid), "--mount", *user)
        self.place = place
        self.from_here = Path(f"/proc/{self.holder.pid}/root{place}")

    def remount(self, option: str) -> None:
        """Mount it again, such as read-only."""
        subprocess.run([*self.enter, "mount", "-o", f"remount,{option}", str(self.place)], check=True)

    def fill(self) -> None:
        """Leave no room at all."""
        with (self.from_here / BALLAST).open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError as error:
                assert error.errno == errno.ENOSPC

    def close(self) -> None:
        """Give it up, with all that is on it."""
        with contextlib.suppress(BrokenPipeError):
            self.holder.communicate()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("disk"))
    lab.write([8], wandb="disabled")
    yield lab
    lab.close()


@pytest.fixture(scope="module")
def disk(lab: Lab) -> Iterator[Disk]:
    place = lab.store.path
    place.mkdir(parents=True)
    disk = Disk(place)
    try:
        if disk.said != "mounted":
            pytest.skip(f"no disk can be mounted for a test here: {disk.said}")
        lab.store_from_here = Store(disk.from_here)
        yield disk
    finally:
        disk.close()


@pytest.fixture(scope="module")
def full(lab: Lab, disk: Disk) -> Ended:
    """A sweep whose disk is full when the first of its three trials has a record, and the next one is trained."""
    first, *later = (trial.id for trial in lab.trials())
    lab.spoil(dict.fromkeys(later, "is held"))

    def meanwhile(run: Run) -> None:
        run.until(lambda: lab.store.has(first) and lab.held(), "a record, and a trial in the middle of its training")
        disk.fill()
        lab.release()

    return lab.sweep(meanwhile=meanwhile, before=disk.enter)


@pytest.fixture(scope="module")
def locked(lab: Lab, disk: Disk, full: Ended) -> Ended:
    """A sweep when there is room again, but nothing may be written."""
    (disk.from_here / BALLAST).unlink()
    lab.spoil({})
    disk.remount("ro")
    try:
        return lab.sweep(before=disk.enter)
    finally:
        disk.remount("rw")


@pytest.fixture(scope="module")
def whole(lab: Lab, disk: Disk, locked: Ended) -> Ended:
    return lab.sweep(before=disk.enter)


def test_a_full_disk_ends_the_sweep_and_leaves_whole_records_only(lab: Lab, disk: Disk, full: Ended) -> None:
    first, *later = (trial.id for trial in lab.trials())
    assert full.status == 1
    assert full.output.count("No space left on device") == 1
    assert f"first: the trial store {disk.place} cannot be written (No space left on device" in full.output
    assert "make room" in full.output and "None" not in full.output
    assert full.records() == {first}
    assert not [name for name in full.files if name.endswith(".tmp")]
    assert full.missing() == dict.fromkeys(later, "not run: the sweep had to stop")
    assert "What is done is kept: run the same command again, and only these trials run." in full.output
    assert "Traceback" not in full.output + full.errors


def test_a_store_that_cannot_be_written_is_refused_before_any_work(lab: Lab, disk: Disk, locked: Ended) -> None:
    assert locked.status == 1
    said = locked.output + locked.errors
    assert f"first: the trial store {disk.place} cannot be written (Read-only file system: {disk.place}" in said
    assert "make its disk writable, or name another folder as `store` in params.yaml" in said
    assert len(said.splitlines()) == 1


def test_when_there_is_room_again_the_same_command_goes_on(lab: Lab, full: Ended, locked: Ended, whole: Ended) -> None:
    assert whole.status == 0, whole.output + whole.errors
    assert "first: 1 cells, 3 trials, 1 in the store, 2 to run" in whole.output
    assert whole.records() == {trial.id for trial in lab.trials()}
    assert full.kept() == locked.kept() and full.kept().items() <= whole.kept().items()
    assert whole.store.check() == []
    assert not [name for name in whole.files if name.startswith("failures/")]
    assert lab.left_over() == []
    assert files_of(lab.elsewhere) == {}
