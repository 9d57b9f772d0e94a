"""A store on a disk that fails: what is there stays, nothing half is left, and the message says what helps."""

import builtins
import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fut.config import TrialConfig
from fut.files import card_path
from fut.record import Record
from pipeline.params import load_params
from pipeline.store import CorruptRecord, Store, StoreError

Finish = Callable[..., Record]
ROOM, MOUNT, RIGHTS = "make room there", "make its disk writable", "correct its permissions"
SOUND = "that its disk is sound and connected"
ELSEWHERE = "or name another folder as `store` in params.yaml"
FAULTS = {
    errno.ENOSPC: ROOM,
    errno.EDQUOT: ROOM,
    errno.EROFS: MOUNT,
    errno.EACCES: RIGHTS,
    errno.EIO: SOUND,
    errno.ESTALE: SOUND,
}
faults = pytest.mark.parametrize("number", FAULTS, ids=[errno.errorcode[number] for number in FAULTS])


@pytest.fixture
def trials(tiny: Path) -> list[TrialConfig]:
    return [trial for cell in load_params(tiny).cells("tiny") for trial in cell.trials]


@contextlib.contextmanager
def failing(owner: Any, name: str, number: int, meets: Callable[..., bool] = lambda *arguments: True) -> Iterator[None]:
    """Calls of a function that meet a condition fail with an error of the system."""
    works = getattr(owner, name)

    def fails(*arguments: Any, **options: Any) -> Any:
        if meets(*arguments):
            raise OSError(number, os.strerror(number))
        return works(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, fails)
        yield


def contents(store: Store) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in store.path.rglob("*") if path.is_file()}


def is_new(path: Any, mode: str = "", *arguments: Any) -> bool:
    return mode == "xb"


def damage(store: Store, trial: TrialConfig) -> None:
    path = store.record_path(trial.id)
    path.write_bytes(path.read_bytes()[:-40])


# Writing.


@faults
@pytest.mark.parametrize(
    ("owner", "name", "meets"),
    [
        (Path, "mkdir", lambda path, *rest: True),
        (builtins, "open", is_new),
        (os, "fsync", lambda handle: True),
        (os, "replace", lambda *paths: True),
    ],
    ids=["folder", "file", "content", "name"],
)
def test_what_cannot_be_written_leaves_nothing_and_can_be_written_later(
    store: Store,
    trials: list[TrialConfig],
    finish: Finish,
    owner: Any,
    name: str,
    meets: Callable[..., bool],
    number: int,
) -> None:
    record = finish(store, trials[0])
    record_path = store.record_path(trials[0].id)
    shutil.rmtree(record_path.parent)
    finish(store, trials[1])
    store.write_failure(trials[2].id, "tiny", {}, ValueError("first"), "")
    before = contents(store)
    for action in (
        lambda: store.write(record),
        lambda: store.write_failure(trials[2].id, "tiny", {}, ValueError("second"), ""),
        lambda: Store(store.path.with_name("another")).create(),
    ):
        with failing(owner, name, number, meets), pytest.raises(StoreError) as error:
            action()
        said = str(error.value)
        assert "cannot be written" in said and os.strerror(number) in said and str(store.path.parent) in said
        assert FAULTS[number] in said and ELSEWHERE in said
        assert contents(store) == before
        assert not list(store.path.parent.glob("another/*"))
    store.write(record)
    assert store.read(trials[0].id) == record and store.check() == []
    assert store.failures()[trials[2].id]["message"] == "first"


@faults
def test_a_store_that_cannot_be_written_is_noticed_before_anything_is_trained(store: Store, number: int) -> None:
    with failing(os, "fsync", number), pytest.raises(StoreError, match=FAULTS[number]):
        store.create()
    assert [path.name for path in store.path.iterdir()] == ["store.json"]


@faults
def test_a_failure_that_cannot_be_forgotten_is_said(store: Store, trials: list[TrialConfig], number: int) -> None:
    store.write_failure(trials[0].id, "tiny", {}, ValueError("no luck"), "")
    with failing(Path, "unlink", number), pytest.raises(StoreError, match=FAULTS[number]):
        store.clear_failure(trials[0].id)
    assert store.failures().keys() == {trials[0].id}


def test_a_record_that_may_not_outlive_a_loss_of_power_is_whole(
    store: Store, trials: list[TrialConfig], finish: Finish
) -> None:
    record = finish(store, trials[0])
    synced: list[int] = []
    with (
        failing(os, "fsync", errno.EIO, lambda handle: synced.append(handle) or len(synced) == 2),  # the folder's entry
        pytest.raises(StoreError, match=SOUND),
    ):
        store.write({**record, "references": {"majority": 0.5}})
    assert store.read(trials[0].id)["references"] == {"majority": 0.5}
    assert store.check() == []


def test_a_temporary_file_that_could_not_be_removed_goes_at_the_check_after_its_trial(
    store: Store, trials: list[TrialConfig], finish: Finish
) -> None:
    record = finish(store, trials[0])
    store.record_path(trials[0].id).unlink()
    with (
        failing(os, "fsync", errno.EIO),
        failing(Path, "unlink", errno.EIO),
        pytest.raises(StoreError, match=SOUND),
    ):
        store.write(record)
    (stray,) = store.record_path(trials[0].id).parent.iterdir()
    assert not store.has(trials[0].id) and store.ids() == set()
    assert store.check() == [] and stray.exists()  # its writer may be at work
    store.write(record)
    assert store.check() == [] and not stray.exists()
    assert store.read(trials[0].id) == record


# Setting aside.


@faults
@pytest.mark.parametrize(
    "moved", [-1, 0, 1, 2], ids=["no folder", "nothing moved", "the record moved", "and its program"]
)
def test_what_cannot_be_set_aside_is_not_lost(
    store: Store, trials: list[TrialConfig], finish: Finish, number: int, moved: int
) -> None:
    records = [finish(store, trial) for trial in trials[:2]]
    damage(store, trials[0])
    before = contents(store)
    calls: list[Path] = []
    if moved < 0:
        fault = failing(Path, "mkdir", number)
    else:
        fault = failing(Path, "rename", number, lambda old, new: calls.append(old) or len(calls) > moved)
    with fault, pytest.raises(StoreError) as error:
        store.check()
    assert FAULTS[number] in str(error.value) and os.strerror(number) in str(error.value)
    assert sorted(contents(store).values()) == sorted(before.values())  # perhaps elsewhere
    assert store.read(trials[1].id) == records[1]
    assert len(store.check()) == (moved < 1)
    assert store.ids() == {trials[1].id}
    finish(store, trials[0])
    assert store.read(trials[0].id) == records[0] and store.check() == []


# Reading.


def part(store: Store, trial: TrialConfig, name: str) -> Path:
    program = store.program_path(trial.id)
    return {
        "record": store.record_path(trial.id),
        "program": program,
        "card": card_path(program),
        "marker": store.path / "store.json",
        "trials": store.path / "trials",
        "shard": store.record_path(trial.id).parent,
        "failures": store.path / "failures",
        "note": store.path / "failures" / f"{trial.id}.json",
    }[name]


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EMFILE])
@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("record", "read_bytes"),
        ("record", "stat"),
        ("program", "read_bytes"),
        ("program", "stat"),
        ("card", "read_bytes"),
        ("marker", "read_bytes"),
        ("marker", "stat"),
        ("trials", "iterdir"),
        ("shard", "iterdir"),
        ("shard", "stat"),
    ],
)
def test_what_the_disk_does_not_give_is_not_damaged(
    store: Store, trials: list[TrialConfig], finish: Finish, name: str, way: str, number: int
) -> None:
    for trial in trials:
        finish(store, trial)
    first, second, third, _ = sorted(trials, key=lambda trial: trial.id)  # as a check meets them
    for trial in (first, third):
        damage(store, trial)
    before = contents(store)
    path = part(store, second, name)
    with failing(Path, way, number, lambda place, *rest: place == path), pytest.raises(StoreError) as error:
        store.check()
    assert not isinstance(error.value, CorruptRecord)
    named = path.with_suffix(".safetensors") if name == "card" else path  # the two belong together
    assert f"cannot be read ({os.strerror(number)}: {named})" in str(error.value)
    assert SOUND in str(error.value) and ELSEWHERE in str(error.value)
    assert contents(store) == before  # not even the damaged ones are moved
    assert len(store.check()) == 2


@pytest.mark.parametrize(
    ("name", "way", "action"),
    [
        ("record", "stat", lambda store, trial: store.has(trial.id)),
        ("record", "stat", lambda store, trial: store.ids()),
        ("trials", "iterdir", lambda store, trial: store.ids()),
        ("record", "read_bytes", lambda store, trial: store.read(trial.id)),
        ("failures", "iterdir", lambda store, trial: store.failures()),
        ("note", "read_bytes", lambda store, trial: store.failures()),
        ("marker", "stat", lambda store, trial: store.create()),
        ("marker", "read_bytes", lambda store, trial: store.create()),
        ("marker", "read_bytes", lambda store, trial: store.program_path(trial.id)),
    ],
)
def test_no_answer_is_not_the_answer_that_there_is_nothing(
    store: Store,
    trials: list[TrialConfig],
    finish: Finish,
    name: str,
    way: str,
    action: Callable[[Store, TrialConfig], Any],
) -> None:
    finish(store, trials[0])
    store.write_failure(trials[0].id, "tiny", {}, ValueError(), "")
    before, path = contents(store), part(store, trials[0], name)
    with (
        failing(Path, way, errno.ESTALE, lambda place, *rest: place == path),
        pytest.raises(StoreError, match=r"cannot be read \(Stale file handle"),
    ):
        action(store, trials[0])
    assert contents(store) == before
