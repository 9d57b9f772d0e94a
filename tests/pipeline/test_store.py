"""The trial store: nothing half, nothing lost, nothing believed without a check."""

import copy
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fut.config import TrialConfig
from fut.files import card_path
from fut.record import Record
from pipeline.params import load_params
from pipeline.store import CorruptRecord, Problem, Store, StoreError

Finish = Callable[..., Record]


@pytest.fixture
def trials(tiny: Path) -> list[TrialConfig]:
    return [trial for cell in load_params(tiny).cells("tiny") for trial in cell.trials]


def test_a_record_is_read_back_as_it_was_written(store: Store, trials: list[TrialConfig], finish: Finish) -> None:
    record = finish(store, trials[0])
    assert store.read(trials[0].id) == record
    assert store.has(trials[0].id) and not store.has(trials[1].id)
    assert store.ids() == {trials[0].id}
    assert store.check() == []
    assert store.record_path(trials[0].id) == store.path / "trials" / trials[0].id[:2] / f"{trials[0].id}.json"


def test_there_is_no_record_without_its_program(store: Store, trials: list[TrialConfig], finish: Finish) -> None:
    record = finish(store, trials[0])
    store.record_path(trials[0].id).unlink()
    store.program_path(trials[0].id).unlink()
    with pytest.raises(StoreError, match="no such program; save it before its record"):
        store.write(record)
    assert store.ids() == set()


def test_what_is_not_there_is_no_damage(store: Store, trials: list[TrialConfig]) -> None:
    with pytest.raises(StoreError, match="no such record") as error:
        store.read(trials[0].id)
    assert not isinstance(error.value, CorruptRecord)


def edit(**fields: Any) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        record = json.loads(path.read_text())
        path.write_text(json.dumps({**record, **fields}))

    return damage


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def rename(path: Path) -> None:
    path.rename(path.with_stem("0" * 64))


def another_folder(path: Path) -> None:
    folder = path.parent.with_name("zz")
    folder.mkdir()
    path.rename(folder / path.name)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (truncate, "not readable JSON"),
        (lambda path: path.write_bytes(b""), "not readable JSON"),
        (lambda path: path.write_bytes(b"\xff\xfe"), "not readable JSON"),
        (lambda path: path.write_text("[]"), "not a record"),
        (edit(schema_version=0), "schema_version is 0, not 1"),
        (edit(trial="f" * 64), "the file is not named by its trial"),
        (rename, "the file is not named by its trial"),
        (another_folder, "the file is not named by its trial"),
        (edit(result={"test_accuracy": 1.0}), "its checksum does not match"),
        (edit(checksum=None), "its checksum does not match"),
    ],
)
def test_a_damaged_record_is_named_and_set_aside(
    store: Store, trials: list[TrialConfig], finish: Finish, damage: Callable[[Path], None], reason: str
) -> None:
    finish(store, trials[0])
    finish(store, trials[1])
    damage(store.record_path(trials[0].id))
    before = {path: path.read_bytes() for path in store.path.rglob("*.json") if path.parent.parent.name == "trials"}
    (problem,) = store.check()
    assert reason in problem.reason
    assert problem.path in before and not problem.path.exists()
    assert problem.moved_to.read_bytes() == before[problem.path]  # never deleted
    assert store.ids() == {trials[1].id}
    assert store.check() == []


@pytest.mark.parametrize("move", [rename, another_folder])
def test_a_record_in_a_wrong_place_is_none(
    store: Store, trials: list[TrialConfig], finish: Finish, move: Callable[[Path], None]
) -> None:
    finish(store, trials[0])
    move(store.record_path(trials[0].id))
    assert store.ids() == set() and not store.has(trials[0].id)


def test_reading_refuses_what_checking_would_set_aside(store: Store, trials: list[TrialConfig], finish: Finish) -> None:
    finish(store, trials[0])
    edit(result={"test_accuracy": 1.0})(store.record_path(trials[0].id))
    with pytest.raises(CorruptRecord, match=r"\.json: its checksum does not match") as error:
        store.read(trials[0].id)
    again = copy.copy(error.value)  # errors come back from workers
    assert (again.path, again.reason) == (error.value.path, error.value.reason)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda path: path.unlink(), "the program is missing"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "not a readable safetensors file"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\x7f"), "its digest is"),
        (lambda path: card_path(path).unlink(), "the card is missing"),
    ],
)
def test_a_record_without_a_sound_program_is_set_aside_with_it(
    store: Store, trials: list[TrialConfig], finish: Finish, damage: Callable[[Path], None], reason: str
) -> None:
    finish(store, trials[0])
    program = store.program_path(trials[0].id)
    damage(program)
    (problem,) = store.check()
    assert (problem.trial, problem.path) == (trials[0].id, program)
    assert reason in problem.reason
    assert store.ids() == set() and not program.exists() and not card_path(program).exists()
    finish(store, trials[0])  # so that the trial can run again
    assert store.check() == []


def test_a_record_with_another_trials_program_is_set_aside(
    store: Store, trials: list[TrialConfig], finish: Finish
) -> None:
    for trial in trials[:2]:  # of two seeds
        finish(store, trial)
    for path in (store.program_path, lambda trial: card_path(store.program_path(trial))):
        path(trials[0].id).write_bytes(path(trials[1].id).read_bytes())
    assert [problem.reason for problem in store.check()] == ["the program is not the one that its record names"]


def test_the_same_record_can_be_damaged_twice(store: Store, trials: list[TrialConfig], finish: Finish) -> None:
    moved = []
    for _ in range(2):
        finish(store, trials[0])
        truncate(store.record_path(trials[0].id))
        moved += [problem.moved_to for problem in store.check()]
    assert len(set(moved)) == 2 and all(path.exists() for path in moved)


def test_a_check_can_be_of_some_trials_only(store: Store, trials: list[TrialConfig], finish: Finish) -> None:
    for trial in trials[:2]:
        finish(store, trial)
        truncate(store.record_path(trial.id))
    assert [problem.trial for problem in store.check([trials[1].id, trials[2].id])] == [trials[1].id]


def test_a_record_appears_whole_or_not_at_all(
    store: Store, trials: list[TrialConfig], finish: Finish, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = finish(store, trials[0])
    path = store.record_path(trials[0].id)
    whole = path.read_bytes()

    def stopped(*args: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", stopped)
        with pytest.raises(KeyboardInterrupt):
            store.write({**record, "result": {"test_accuracy": 1.0}})
    assert path.read_bytes() == whole
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_values_that_json_cannot_hold_are_refused(store: Store, trials: list[TrialConfig], finish: Finish) -> None:
    record = finish(store, trials[0])
    with pytest.raises(ValueError, match="not JSON compliant"):
        store.write({**record, "result": {"nmse": float("nan")}})
    assert store.read(trials[0].id) == record


def test_a_store_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"the trial store .*/file/store cannot be written \(Not a directory"):
        Store(tmp_path / "file" / "store").create()


def test_a_store_that_vanishes_is_not_made_anew_in_its_place(
    store: Store, trials: list[TrialConfig], finish: Finish
) -> None:
    record = finish(store, trials[0])
    gone = store.path.rename(store.path.with_name("gone"))
    for action in (
        lambda: store.program_path(trials[0].id),
        lambda: store.write(record),
        lambda: store.write_failure(trials[0].id, "s", {}, ValueError(), ""),
        lambda: store.clear_failure(trials[0].id),
        lambda: store.read(trials[0].id),
        store.check,
        store.failures,
    ):
        with pytest.raises(StoreError, match="is not there"):
            action()
    assert not store.path.exists()
    assert store.ids() == set() and not store.has(trials[0].id)
    gone.rename(store.path)
    store.create()  # leaves what is there
    assert store.read(trials[0].id) == record


def test_a_store_that_vanishes_while_it_is_checked_is_missed(
    store: Store, trials: list[TrialConfig], finish: Finish, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(store, trials[0])
    record, read = store.record_path(trials[0].id), Path.read_bytes

    def last(path: Path) -> bytes:
        if path == record:
            store.path.rename(store.path.with_name("gone"))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", last)
    with pytest.raises(StoreError, match="is not there"):
        store.check()
    assert not store.path.exists()


MARKERS = {
    "empty": ("", "store.json: not readable JSON"),
    "cut": ('{"format": "fut tr', "store.json: not readable JSON"),
    "a list": ("[]", "is not that of a trial store; move it away, or name another folder as `store` in params.yaml"),
    "of another tool": ('{"format": "a shop", "schema_version": 1}', "is not that of a trial store"),
    "of a later version": ('{"format": "fut trial store", "schema_version": 2}', "holds records of schema version 2"),
    "of no version": ('{"format": "fut trial store"}', "holds records of schema version None, and this code knows"),
}


@pytest.mark.parametrize(("marker", "says"), MARKERS.values(), ids=MARKERS)
def test_a_folder_that_is_no_store_of_this_code_is_refused_and_left_as_it_is(
    store: Store, trials: list[TrialConfig], finish: Finish, marker: str, says: str
) -> None:
    record = finish(store, trials[0])
    (store.path / "store.json").write_text(marker)
    before = {path: path.read_bytes() for path in store.path.rglob("*") if path.is_file()}
    for action in (
        store.create,
        store.check,
        store.failures,
        lambda: store.program_path(trials[0].id),
        lambda: store.write(record),
        lambda: store.write_failure(trials[0].id, "s", {}, ValueError(), ""),
        lambda: store.clear_failure(trials[0].id),
    ):
        with pytest.raises(StoreError) as error:
            action()
        assert says in str(error.value) and "or name another folder as `store` in params.yaml" in str(error.value)
    assert {path: path.read_bytes() for path in store.path.rglob("*") if path.is_file()} == before


def test_a_damaged_marker_can_be_restored_as_its_message_says(
    store: Store, trials: list[TrialConfig], finish: Finish
) -> None:
    record, marker = finish(store, trials[0]), store.path / "store.json"
    marker.write_text("")
    with pytest.raises(StoreError) as error:
        store.create()
    (told,) = re.findall(r"write (\{.*\}) into that file", str(error.value))
    marker.write_text(told)
    store.create()
    assert store.read(trials[0].id) == record and store.check() == []


def test_failures_are_noted_and_forgotten(store: Store, trials: list[TrialConfig]) -> None:
    trial = trials[0]
    store.write_failure(trial.id, "tiny", trial.canonical(), ValueError("no luck"), "Traceback …")
    noted = store.failures()
    assert list(noted) == [trial.id]
    assert {key: noted[trial.id][key] for key in ("trial", "study", "error", "message", "traceback")} == {
        "trial": trial.id,
        "study": "tiny",
        "error": "ValueError",
        "message": "no luck",
        "traceback": "Traceback …",
    }
    store.clear_failure(trial.id)
    store.clear_failure(trial.id)
    assert store.failures() == {}


def test_a_note_of_a_failure_that_cannot_be_read_says_so(store: Store, trials: list[TrialConfig]) -> None:
    store.write_failure(trials[0].id, "tiny", {}, ValueError("no luck"), "")
    (good,) = (folder := store.path / "failures").iterdir()
    note = json.loads(good.read_text())
    texts = {"cut": "{", "list": "[]", "deep": "[" * 100_000, "empty": "{}", "type": json.dumps({**note, "message": 1})}
    for name, text in texts.items():
        (folder / f"{name}.json").write_text(text)
    (folder / "folder.json").mkdir()
    os.mkfifo(folder / "pipe.json")
    noted = store.failures()
    assert noted.pop(trials[0].id) == note
    assert noted.keys() == {*texts, "folder", "pipe"}
    for name, told in noted.items():
        assert (told["trial"], told["error"]) == (name, "unreadable")
        assert told["message"].startswith(f"{folder / name}.json: ") and told["message"].endswith("; delete this file")


def test_a_problem_reads_as_one_line() -> None:
    assert str(Problem("t", Path("a"), "bad", Path("b"))) == "a: bad; set aside as b"


def test_a_failure_that_is_forgotten_while_it_is_read_is_none(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write_failure("a" * 64, "tiny", {}, ValueError("no"), "")
    read = store._disk.load_json

    def forget_and_read(path: Path) -> Any:
        if path.parent.name == "failures":
            store.clear_failure(path.stem)
        return read(path)

    monkeypatch.setattr(store._disk, "load_json", forget_and_read)
    assert store.failures() == {}
