"""A store of 10,000 records, some of them damaged, each in a way of its own.

`DAMAGES` is a table: what happened, how to do it, what the check has to say.  Everything else must stay as it is.
"""

import hashlib
import json
import os
import shutil
import signal
import stat
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from safetensors import numpy as safetensors

from fut.digest import array_digest, digest
from pipeline.store import Store

RECORDS = 10_000
MEMORY = Path("/dev/shm")


class Files(NamedTuple):
    """Where the parts of a trial lie, and those of a sound neighbour."""

    record: Path
    program: Path
    card: Path
    other: "Files | None" = None


Damage = Callable[[Files], Path | None]  # returns the file to be set aside, where it is not the record's own


def content(change: Callable[[bytes], bytes], part: str = "record") -> Damage:
    """Other bytes in a file."""

    def damage(files: Files) -> None:
        path = getattr(files, part)
        before = path.read_bytes()
        path.write_bytes(change(before))
        assert path.read_bytes() != before, "this is no damage"

    return damage


def cut(keep: float, part: str = "record") -> Damage:
    return content(lambda text: text[: int(len(text) * keep)], part)


def put(old: bytes, new: bytes, part: str = "record") -> Damage:
    return content(lambda text: text.replace(old, new, 1), part)


def flip(after: bytes, bit: int = 0, part: str = "record") -> Damage:
    """One bit of the byte that follows some text."""

    def change(text: bytes) -> bytes:
        place = text.index(after) + len(after)
        return text[:place] + bytes([text[place] ^ 1 << bit]) + text[place + 1 :]

    return content(change, part)


def recoded(encoding: str) -> Damage:
    return content(lambda text: json.dumps(json.loads(text), ensure_ascii=False).encode(encoding))


def signed(**fields: Any) -> Damage:
    """Another record, whose checksum is right: a fault of the program that wrote it, not of the disk."""

    def change(text: bytes) -> bytes:
        record = {name: value for name, value in {**json.loads(text), **fields}.items() if value is not ...}
        record.pop("checksum")
        return json.dumps({**record, "checksum": digest(record)}).encode()

    return content(change)


def digests(**named: str) -> Damage:
    """Another record, whose checksum is right, and which names other contents."""
    return lambda files: signed(digests={**json.loads(files.record.read_bytes())["digests"], **named})(files)


def card(**fields: Any) -> Damage:
    return content(lambda text: json.dumps({**json.loads(text), **fields}).encode(), "card")


def instead(make: Callable[[Path], Any], part: str = "record") -> Damage:
    """Something else than a file."""

    def damage(files: Files) -> None:
        path = getattr(files, part)
        path.unlink()
        make(path)

    return damage


def full_folder(path: Path) -> None:
    path.mkdir()
    (path / "file").write_text("")


def link(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


def to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def socket(path: Path) -> None:
    os.mknod(path, stat.S_IFSOCK | 0o600)


def named(name: Callable[[Path], Path]) -> Damage:
    """The record under another name."""

    def damage(files: Files) -> Path:
        new = name(files.record)
        new.parent.mkdir(exist_ok=True)
        return files.record.rename(new)

    return damage


def copied(files: Files) -> Path:
    (folder := files.record.parent.with_name("zz")).mkdir(exist_ok=True)
    return Path(shutil.copy2(files.record, folder))


def of_another(*parts: str) -> Damage:
    def damage(files: Files) -> None:
        for part in parts:
            shutil.copyfile(getattr(files.other, part), getattr(files, part))

    return damage


def gone(*parts: str) -> Damage:
    def damage(files: Files) -> None:
        for part in parts:
            getattr(files, part).unlink()

    return damage


DEEP, LONG = b"[" * 100_000, b"9" * 5_000
UNREADABLE, MISNAMED, CHECKSUM = (
    "not readable JSON",
    "the file is not named by its trial",
    "its checksum does not match",
)
ARRAYS, NOT_ITS_OWN = "not a readable safetensors file", "the program is not the one that its record names"
DAMAGES: list[tuple[str, Damage, str]] = [
    # The record: cut, overwritten, flipped.
    ("empty", cut(0), UNREADABLE),
    ("cut after one byte", content(lambda text: text[:1]), UNREADABLE),
    ("cut in the middle", cut(0.5), UNREADABLE),
    ("cut before its last brace", content(lambda text: text.rstrip()[:-1]), UNREADABLE),
    ("zeros all over", content(lambda text: bytes(len(text))), UNREADABLE),
    ("zeros at its end", content(lambda text: text[:-64] + bytes(64)), UNREADABLE),
    ("zeros after its end", content(lambda text: text + bytes(512)), UNREADABLE),
    ("written twice", content(lambda text: text + text), UNREADABLE),
    ("a page of a proxy", content(lambda text: b"<!DOCTYPE html><html>Please log in"), UNREADABLE),
    ("a bit in a digit", flip(b'"train_seconds": '), CHECKSUM),
    ("a bit in a key", flip(b'"test_accurac'), CHECKSUM),
    ("a bit in the name of a field", flip(b'"epoch'), "it has no epochs"),
    ("a bit in its checksum", flip(b'"checksum": "'), CHECKSUM),
    ("a bit in a bracket", flip(b'"config": ', 2), UNREADABLE),
    ("a high bit", flip(b'"host": "', 7), UNREADABLE),
    # The record: text that JSON readers understand in different ways, or not at all.
    ("UTF-16", recoded("utf-16"), UNREADABLE),
    ("UTF-32", recoded("utf-32-le"), UNREADABLE),
    ("Latin-1", recoded("latin-1"), UNREADABLE),
    ("a byte order mark", recoded("utf-8-sig"), UNREADABLE),
    ("a lone surrogate", put(b'"host": "', b'"host": "\\ud800'), CHECKSUM),
    ("a lone surrogate in bytes", put(b'"host": "', b'"host": "\xed\xa0\x80'), UNREADABLE),
    ("not a number", put(b'"train_seconds": 2.5', b'"train_seconds": NaN'), CHECKSUM),
    ("infinity", put(b'"train_seconds": 2.5', b'"train_seconds": -Infinity'), CHECKSUM),
    ("a number too large", put(b'"train_seconds": 2.5', b'"train_seconds": 1e999'), CHECKSUM),
    ("a number too long", put(b'"train_seconds": 2.5', b'"train_seconds": ' + LONG), UNREADABLE),
    ("a key twice, the last one right", put(b'"steps": ', b'"steps": 7, "steps": '), "a key stands there twice"),
    ("a key twice, the first one right", put(b'"steps": 100', b'"steps": 100, "steps": 7'), "a key stands there twice"),
    ("a field twice", put(b'"result": ', b'"result": {}, "result": '), "a key stands there twice"),
    ("100,000 brackets", content(lambda text: DEEP), UNREADABLE),
    ("100,000 brackets in a field", put(b'"references": {}', b'"references": ' + DEEP), UNREADABLE),
    (
        "500 brackets in a field",
        put(b'"references": {}', b'"references": ' + b'{"a":' * 500 + b"1" + b"}" * 500),
        CHECKSUM,
    ),
    # The record: sound JSON, and no record of this trial.
    ("a list", content(lambda text: b"[" + text + b"]"), "not a record"),
    ("a number", content(lambda text: b"1"), "not a record"),
    ("null", content(lambda text: b"null"), "not a record"),
    ("no checksum", put(b'"checksum"', b'"check"'), CHECKSUM),
    ("a checksum of null", content(lambda text: json.dumps({**json.loads(text), "checksum": None}).encode()), CHECKSUM),
    ("no epochs", signed(epochs=...), "it has no epochs"),
    ("no config and no digests", signed(config=..., digests=...), "it has no config, digests"),
    ("a config of text", signed(config="{}"), "of a wrong type: config"),
    ("digests in a list", signed(digests=[]), "of a wrong type: digests"),
    ("null for epochs", signed(epochs=None), "of a wrong type: epochs"),
    ("a later version", signed(schema_version=2), "schema_version is 2, not 1"),
    ("no version", signed(schema_version=...), "schema_version is None, not 1"),
    (
        "a version deep in brackets",
        signed(schema_version=[[[[[[[[]]]]]]]]),
        "schema_version is [[[[[[[...]]]]]]], not 1",
    ),
    ("another trial's record", of_another("record"), MISNAMED),
    ("a trial that is a mapping", signed(trial={"id": 1}), MISNAMED),
    ("no trial", signed(trial=...), MISNAMED),
    # The record: in the wrong place.
    ("in another folder", named(lambda path: path.parent.with_name("yy") / path.name), MISNAMED),
    ("in another folder too", copied, MISNAMED),
    ("in upper case", named(lambda path: path.with_stem(path.stem.upper())), MISNAMED),
    ("with a short name", named(lambda path: path.with_stem(path.stem[:40])), MISNAMED),
    ("with a name that is too long to be made longer", named(lambda path: path.with_stem("n" * 250)), MISNAMED),
    ("with a name that is no text", named(lambda path: path.with_name(os.fsdecode(b"\xff.json"))), MISNAMED),
    # Something else in the place of the record.
    ("a folder", instead(Path.mkdir), "not a file"),
    ("a folder that is not empty", instead(full_folder), "not a file"),
    ("a pipe", instead(os.mkfifo), "not a file"),
    ("a socket", instead(socket), "not a file"),
    ("a link to a device without end", instead(link("/dev/zero")), "not a file"),
    ("a link to a folder", instead(link("..")), "not a file"),
    ("a link to nothing", instead(link("nothing")), "a link that leads nowhere"),
    ("a link to itself", instead(to_itself), "it cannot be opened"),
    # The program.
    ("no program", gone("program"), "the program is missing"),
    ("neither program nor card", gone("program", "card"), "the program is missing"),
    ("an empty program", cut(0, "program"), ARRAYS),
    ("a cut header", cut(0.3, "program"), ARRAYS),
    ("cut weights", content(lambda data: data[:-1], "program"), ARRAYS),
    ("more than weights", content(lambda data: data + bytes(8), "program"), ARRAYS),
    ("zeros for a program", content(lambda data: bytes(len(data)), "program"), ARRAYS),
    ("a header that is no JSON", put(b'{"emb', b"{{emb", "program"), ARRAYS),
    ("a header without end", content(lambda data: struct.pack("<Q", 2**62) + data[8:], "program"), ARRAYS),
    ("weights of an unknown type", put(b"F32", b"Q32", "program"), ARRAYS),
    ("weights of another type", put(b"F32", b"I32", "program"), "its digest is"),
    ("weights of another shape", put(b"[3,2]", b"[2,3]", "program"), "its digest is"),
    ("weights of another name", flip(b'"embeddin', 0, "program"), "its digest is"),
    (
        "a bit in a weight",
        content(lambda data: data[:-2] + bytes([data[-2] ^ 1]) + data[-1:], "program"),
        "its digest is",
    ),
    ("another trial's program", of_another("program"), "its digest is"),
    ("another trial's program and card", of_another("program", "card"), NOT_ITS_OWN),
    ("a folder for a program", instead(Path.mkdir, "program"), "not a file"),
    ("a pipe for a program", instead(os.mkfifo, "program"), "not a file"),
    ("a link to nothing for a program", instead(link("nothing"), "program"), "a link that leads nowhere"),
    ("a record that names another program", digests(program="0" * 64), NOT_ITS_OWN),
    ("a record that names none", signed(digests={}), NOT_ITS_OWN),
    # The card.
    ("no card", gone("card"), "the card is missing"),
    ("a card that is no JSON", cut(0.5, "card"), "the card is not readable JSON"),
    ("a card of a number too long", content(lambda text: LONG, "card"), "the card is not readable JSON"),
    ("a card of 100,000 brackets", content(lambda text: DEEP, "card"), "the card is not readable JSON"),
    ("a card in a list", content(lambda text: b"[]", "card"), "the card holds no digest"),
    ("a card without a digest", put(b'"digest"', b'"digets"', "card"), "the card holds no digest"),
    ("a card that is not a number", card(digest=float("nan")), "but its card"),
    ("a card of another trial", card(trial="0" * 64), "its card names another trial than its record"),
    ("a card of another backbone", card(backbone="0" * 64), "its card names another backbone than its record"),
    ("a pipe for a card", instead(os.mkfifo, "card"), "not a file"),
]


def template() -> dict[str, Any]:
    """A record with marks in the place of what differs between trials."""
    return {
        "schema_version": 1,
        "trial": "TRIAL",
        "config": {"task": {"name": "khop"}, "width": 8, "learning_rate": 0.01, "seed": 0},
        "recipe": {"kind": "random"},
        "result": {"test_accuracy": 0.1 + 0.2, "nmse": None, "train_seconds": 2.5, "steps": 100},
        "references": {},
        "epochs": [{"epoch": 1, "val_loss": 1e-300}, {"epoch": 2, "val_loss": 0.5}],
        "digests": {"program": "PROGRAM", "backbone": "b" * 64},
        "environment": {"host": "Zürich", "threads": 1},
    }


@pytest.fixture
def store() -> Iterator[Store]:
    """An empty store, in memory where there is room: a disk takes long to make and delete 30,000 files."""
    roomy = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 2**30
    with tempfile.TemporaryDirectory(dir=MEMORY if roomy else None) as folder:
        store = Store(Path(folder) / "store")
        store.create()
        yield store


@pytest.fixture
def trials(store: Store) -> list[str]:
    """10,000 trials in the store; its files are written at once, without waiting for the disk."""
    text = json.dumps({**template(), "checksum": "CHECKSUM"}, indent=1)
    ids = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(RECORDS)]
    for shard in {trial[:2] for trial in ids}:
        (store.path / "trials" / shard).mkdir(parents=True)
        (store.path / "programs" / shard).mkdir(parents=True)
    for number, trial in enumerate(ids):
        program = {"embedding": np.full((3, 2), number, np.float32)}
        made, record, files = array_digest(program), template(), files_of(store, trial)
        record["trial"], record["digests"]["program"] = trial, made
        replaced = text.replace("TRIAL", trial).replace("PROGRAM", made).replace("CHECKSUM", digest(record))
        files.record.write_text(replaced)
        files.program.write_bytes(safetensors.save(program))
        files.card.write_text(json.dumps({"backbone": "b" * 64, "trial": trial, "digest": made}))
    return ids


def files_of(store: Store, trial: str, other: Files | None = None) -> Files:
    program = store.path / "programs" / trial[:2] / f"{trial}.safetensors"
    return Files(store.record_path(trial), program, program.with_suffix(".json"), other)


def contents(folder: Path) -> dict[Path, tuple[int, int, bytes]]:
    """Every file below a folder, by its path: which one it is, when it was written, and what it holds."""
    found = {}
    for place, _, names in os.walk(folder):
        for path in (Path(place, name) for name in names):
            if stat.S_ISREG((status := path.lstat()).st_mode):
                found[path] = status.st_ino, status.st_mtime_ns, path.read_bytes()
    return found


@contextmanager
def no_longer_than(seconds: int) -> Iterator[None]:
    """A check that waits for a pipe would wait for ever."""

    def hung(number: int, frame: object) -> None:
        raise TimeoutError("the check hangs")

    before = signal.signal(signal.SIGALRM, hung)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_of_10_000_records_exactly_the_damaged_ones_are_set_aside(store: Store, trials: list[str]) -> None:
    assert len(DAMAGES) >= 50
    step = RECORDS // len(DAMAGES)
    damaged = {}  # the file to be set aside → what it is, its trial, what has to be said
    kept = set(trials)
    untouched = contents(store.path)
    for number, (name, damage, says) in enumerate(DAMAGES):
        trial = trials[number * step]
        files = files_of(store, trial, files_of(store, trials[number * step + 1]))
        path = damage(files) or files.record
        damaged[path] = (name, trial, says, path.lstat().st_ino)
        if path == files.record or not files.record.exists():
            kept.remove(trial)
            for part in files[:3]:
                del untouched[part]

    with no_longer_than(300):
        problems = store.check()
    moved = {
        path: next((problem for problem in problems if problem.moved_to.lstat().st_ino == inode), None)
        for path, (_, _, _, inode) in damaged.items()
    }
    for path, (name, trial, says, _) in damaged.items():
        problem = moved[path]
        assert problem is not None, f"{name}: not set aside"
        assert says in problem.reason, f"{name}: {problem.reason}"
        assert problem.trial == path.stem and not os.path.lexists(path), name
        line = str(problem)
        assert "\n" not in line and len(line) < 1_000, name
        if path == store.record_path(trial):
            assert not any(map(os.path.lexists, files_of(store, trial)[:3])), name
    assert len(problems) == len(DAMAGES)

    now = contents(store.path)
    assert {path: now.get(path) for path in untouched} == untouched
    assert store.ids() == kept and len(kept) == RECORDS - len(DAMAGES) + 1  # one was only copied
    assert [trial for trial in trials if store.has(trial)] == [trial for trial in trials if trial in kept]
    with no_longer_than(300):
        assert store.check() == []
