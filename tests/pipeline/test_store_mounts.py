"""A store on real disks that are full, read-only or gone, and behind real permissions."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fut.config import TrialConfig
from fut.record import Record
from pipeline.params import load_params
from pipeline.store import Store, StoreError

Finish = Callable[..., Record]


@pytest.fixture
def trials(tiny: Path) -> list[TrialConfig]:
    return [trial for cell in load_params(tiny).cells("tiny") for trial in cell.trials]


def contents(store: Store) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in store.path.rglob("*") if path.is_file()}


def damage(store: Store, trial: TrialConfig) -> None:
    path = store.record_path(trial.id)
    path.write_bytes(path.read_bytes()[:-40])


# Permissions.

PERMISSIONS = """
import json, sys
from pathlib import Path
from pipeline.store import Store, StoreError

store, closed, folder = Store(Path(sys.argv[1])), Path(sys.argv[2]), Path(sys.argv[3])

def attempt(action):
    try:
        return [str(problem) for problem in action()]
    except StoreError as error:
        return str(error)

said = {}
folder.chmod(0)
said["folder that cannot be read"] = attempt(store.check)
folder.chmod(0o700)
store.path.chmod(0o500)
said["store that cannot be written"] = attempt(store.create)
closed.chmod(0)
said["file that cannot be moved"] = attempt(store.check)
store.path.chmod(0o700)
said["file that cannot be read"] = attempt(store.check)
print(json.dumps(said))
"""


def test_permissions_are_told_from_damage(store: Store, trials: list[TrialConfig], finish: Finish) -> None:
    command = [sys.executable, "-c", PERMISSIONS]
    if os.geteuid() == 0:  # root may do everything, until it gives that right up
        if not shutil.which("setpriv"):
            pytest.skip("root may read everything, and there is no setpriv to give that up")
        command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *command]
    for trial in trials[:2]:
        finish(store, trial)
    closed, folder = (store.record_path(trial.id) for trial in trials[:2])
    run = subprocess.run(
        [*command, str(store.path), str(closed), str(folder.parent)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    said = json.loads(run.stdout)
    assert f"cannot be read (Permission denied: {folder.parent}" in said["folder that cannot be read"]
    assert "correct its permissions" in said["folder that cannot be read"]
    assert "cannot be written (Permission denied" in said["store that cannot be written"]
    assert f"cannot be written (Permission denied: {store.path / 'set_aside'}" in said["file that cannot be moved"]
    (problem,) = said["file that cannot be read"]
    assert problem.startswith(f"{closed}: it cannot be opened (Permission denied); set aside as ")
    assert store.ids() == {trials[1].id} and store.check() == []


# Disks.


class Disk:
    """A disk of 256 KB that only a helping process has mounted; its files are reached through that process."""

    def __init__(self, place: Path) -> None:
        place.mkdir()
        self.place = place
        ids = () if os.geteuid() == 0 else ("--map-root-user",)
        script = 'mount -t tmpfs -o size=256k tmpfs "$0" && echo mounted && while read line; do $line; echo "$?"; done'
        self.shell = subprocess.Popen(
            ["unshare", "--mount", *ids, "sh", "-c", script, str(place)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.said = self._line()
        self.path = Path(f"/proc/{self.shell.pid}/root{place}")

    def run(self, command: str) -> None:
        """Run a command where the disk is mounted."""
        assert self.shell.stdin
        print(command, file=self.shell.stdin, flush=True)
        assert self._line() == "0"

    def _line(self) -> str:
        assert self.shell.stdout
        return self.shell.stdout.readline().strip()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    if not shutil.which("unshare"):
        pytest.skip("no unshare on this system")
    disk = Disk(tmp_path / "disk")
    try:
        if disk.said != "mounted":
            pytest.skip(f"nothing can be mounted here: {disk.said}")
        yield disk
    finally:
        disk.shell.communicate()  # the end of its input ends it, and the disk with it


def fill(folder: Path) -> Path:
    """Leave no room at all; returns what takes it."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    return ballast


def test_a_real_disk_that_is_full_takes_nothing_and_loses_nothing(
    disk: Disk, trials: list[TrialConfig], finish: Finish
) -> None:
    store = Store(disk.path / "store")
    store.create()
    records = [finish(store, trial) for trial in trials[:2]]
    store.record_path(trials[1].id).unlink()
    ballast = fill(disk.path)
    before = contents(store)
    for action in (
        lambda: store.write(records[1]),
        lambda: store.write_failure(trials[1].id, "tiny", {}, ValueError("no luck"), "trace" * 100),
        store.create,
        Store(disk.path / "another").create,
    ):
        with pytest.raises(StoreError, match=r"cannot be written \(No space left on device: .*make room there"):
            action()
    assert contents(store) == before and store.check() == []
    damage(store, trials[0])
    (problem,) = store.check()  # to move takes no room
    assert problem.trial == trials[0].id and store.ids() == set()
    ballast.unlink()
    store.write(records[1])
    finish(store, trials[0])
    assert store.check() == [] and [store.read(trial.id) for trial in trials[:2]] == records


def test_a_real_disk_that_turns_read_only_can_still_be_checked(
    disk: Disk, trials: list[TrialConfig], finish: Finish
) -> None:
    store = Store(disk.path / "store")
    store.create()
    record = finish(store, trials[0])
    stray = store.record_path(trials[0].id).with_name(f".{trials[0].id}.json.{'0' * 32}.tmp")
    stray.write_text("{")
    store.write_failure(trials[0].id, "tiny", {}, ValueError(), "")
    disk.run(f"mount -o remount,ro {disk.place}")
    for action in (lambda: store.write(record), lambda: store.clear_failure(trials[0].id), store.create):
        with pytest.raises(StoreError, match="make its disk writable"):
            action()
    assert store.check() == [] and store.read(trials[0].id) == record and stray.exists()
    disk.run(f"mount -o remount,rw {disk.place}")
    assert store.check() == [] and not stray.exists()


def test_a_real_disk_that_is_unmounted_gets_nothing_in_its_place(
    disk: Disk, trials: list[TrialConfig], finish: Finish
) -> None:
    store = Store(disk.path)  # so that its folder stays, empty
    store.create()
    record = finish(store, trials[0])
    disk.run(f"umount --lazy {disk.place}")
    for action in (
        lambda: store.write(record),
        lambda: store.program_path(trials[0].id),
        lambda: store.write_failure(trials[0].id, "tiny", {}, ValueError(), ""),
        lambda: store.clear_failure(trials[0].id),
        lambda: store.read(trials[0].id),
        store.failures,
        store.check,
    ):
        with pytest.raises(StoreError, match=r"is not there .* has a disk been unmounted"):
            action()
    assert list(disk.path.iterdir()) == []
