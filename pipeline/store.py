"""The trial store: one record and one program for every finished trial, kept for good.

A record is a JSON file named by its trial.  It becomes visible only when whole, and carries a checksum of itself.  The
store lies outside the outputs of DVC: no stage deletes it, and what is damaged is set aside, never removed.

    store.json                       says that this folder is a trial store
    trials/ID[:2]/ID.json            the records
    programs/ID[:2]/ID.safetensors   what was trained, and its card
    failures/ID.json                 why a trial gave no record, the last time that it was tried
    set_aside/…                      damaged files
"""

import json
import os
import re
import time
import uuid
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from fut.digest import digest
from fut.files import SUFFIX, CorruptFile, card_path, load_arrays, write_atomically
from fut.record import SCHEMA_VERSION, Record

ID = re.compile(r"[0-9a-f]{64}")
STRAY_AFTER = 3_600.0  # seconds; a temporary file this old belongs to nobody any more
RESULT_FIELDS = ("config", "recipe", "result", "references", "epochs", "digests", "environment")


class StoreError(Exception):
    """A store that cannot be used, or does not hold what is asked for."""


class CorruptRecord(StoreError):
    """A record that cannot be trusted; `path` is its file and `reason` what is wrong with it."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason

    def __reduce__(self) -> tuple[type["CorruptRecord"], tuple[Path, str]]:
        return type(self), (self.path, self.reason)  # crosses process borders whole


class Problem(NamedTuple):
    """A damaged trial: what was wrong, and where its files are now."""

    trial: str
    path: Path
    reason: str
    moved_to: Path

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}; set aside as {self.moved_to}"


class Store:
    """A trial store in a local folder.  Only `create` makes the folder, so that one that vanishes is noticed."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    def create(self) -> None:
        """Make the store where there is none, and see that it can be written.

        Raises:
            StoreError: it cannot.
        """
        if not self._marker.is_file():
            self._write(self._marker, {"format": "fut trial store", "schema_version": SCHEMA_VERSION})
        probe = self.path / f".probe.{uuid.uuid4().hex}.tmp"
        try:
            probe.write_text("")
            probe.unlink()
        except OSError as error:
            raise self._unusable(error) from error

    def has(self, trial: str) -> bool:
        """Whether there is a record of a trial."""
        return self.record_path(trial).is_file()

    def ids(self) -> set[str]:
        """The trials that have a record; none where there is no store yet."""
        return {path.stem for path in self._record_files() if ID.fullmatch(path.stem)}

    def read(self, trial: str) -> Record:
        """The record of a trial.

        Raises:
            CorruptRecord: it cannot be read, or is not what was written.
            StoreError: there is none.
        """
        return self._read(self.record_path(trial))

    def write(self, record: Record) -> None:
        """Make a finished trial's record visible, whole; the trial's program has to be there already.

        Raises:
            StoreError: the program is missing, or the store has vanished or cannot be written.
        """
        trial = record["trial"]
        if not self.program_path(trial).is_file():
            raise StoreError(f"{self.program_path(trial)}: no such program; save it before its record")
        plain = json.loads(json.dumps(record, allow_nan=False))  # as it will be read back
        self._write(self.record_path(trial), {**plain, "checksum": digest(plain)})

    def record_path(self, trial: str) -> Path:
        """Where the record of a trial lies."""
        return self.path / "trials" / trial[:2] / f"{trial}.json"

    def program_path(self, trial: str) -> Path:
        """Where the program of a trial lies, or is to be put.

        Raises:
            StoreError: there is no store, so that nothing is trained for one that has vanished.
        """
        self._require()
        return self._program(trial)

    def write_failure(self, trial: str, study: str, config: dict[str, Any], error: BaseException, trace: str) -> None:
        """Note why a trial gave no record; a later failure replaces an earlier one.

        Raises:
            StoreError: the store has vanished or cannot be written.
        """
        self._require()
        self._write(
            self._failure(trial),
            {
                "trial": trial,
                "study": study,
                "config": config,
                "error": type(error).__name__,
                "message": str(error),
                "traceback": trace,
                "time": datetime.now(UTC).isoformat(timespec="seconds"),
            },
        )

    def clear_failure(self, trial: str) -> None:
        """Forget a trial's failure, where there is one."""
        self._failure(trial).unlink(missing_ok=True)

    def failures(self) -> dict[str, dict[str, Any]]:
        """What `write_failure` noted, by trial."""
        found = {}
        for path in sorted((self.path / "failures").glob("*.json")):
            try:
                found[path.stem] = json.loads(path.read_bytes())
            except (OSError, ValueError):
                found[path.stem] = {"trial": path.stem, "error": "unreadable", "message": f"{path} cannot be read"}
        return found

    def check(self, trials: Iterable[str] | None = None) -> list[Problem]:
        """Set damaged records aside, so that their trials run again, and clear stray temporary files away.

        A record is damaged when it cannot be read or is not what was written, or when its program is missing or not
        the one that it names; record and program move together.

        Args:
            trials: check these only, as far as they are there; None: all.

        Returns:
            What was set aside.
        """
        wanted = None if trials is None else set(trials)
        problems = []
        for path in self._record_files():
            if wanted is not None and path.stem not in wanted:
                continue
            try:
                self._check_program(self._read(path))
            except CorruptRecord as error:
                problems.append(Problem(path.stem, error.path, error.reason, self._set_aside(path)))
            except StoreError:
                continue  # gone meanwhile: another process has set it aside
        self._clear_strays()
        return problems

    def _require(self) -> None:
        if not self._marker.is_file():
            raise StoreError(
                f"the trial store {self.path} is not there (no {self._marker.name}); has a disk been "
                "unmounted, or the folder moved? Check `store` in params.yaml"
            )

    @property
    def _marker(self) -> Path:
        return self.path / "store.json"

    def _program(self, trial: str) -> Path:
        return self.path / "programs" / trial[:2] / f"{trial}{SUFFIX}"

    def _failure(self, trial: str) -> Path:
        return self.path / "failures" / f"{trial}.json"

    def _record_files(self) -> Iterator[Path]:
        return (path for path in sorted((self.path / "trials").glob("*/*.json")) if not path.name.startswith("."))

    def _read(self, path: Path) -> Record:
        try:
            record = json.loads(path.read_bytes())
        except FileNotFoundError as error:
            raise StoreError(f"{path}: no such record") from error
        except (OSError, ValueError) as error:
            raise CorruptRecord(path, f"not readable JSON ({error})") from error
        if not isinstance(record, dict):
            raise CorruptRecord(path, "not a record")
        if record.get("schema_version") != SCHEMA_VERSION:
            raise CorruptRecord(path, f"schema_version is {record.get('schema_version')!r}, not {SCHEMA_VERSION}")
        if record.get("trial") != path.stem or path != self.record_path(path.stem) or not ID.fullmatch(path.stem):
            raise CorruptRecord(path, f"the file is not named by its trial, {record.get('trial')!r}")
        if missing := [field for field in RESULT_FIELDS if field not in record]:
            raise CorruptRecord(path, f"it has no {', '.join(missing)}")
        checksum = record.pop("checksum", None)
        if checksum != digest(record):
            raise CorruptRecord(path, "its checksum does not match its contents")
        return record

    def _check_program(self, record: Record) -> None:
        path = self._program(record["trial"])
        try:
            card = load_arrays(path)[1]
        except FileNotFoundError as error:
            raise CorruptRecord(path, "the program is missing") from error
        except CorruptFile as error:
            raise CorruptRecord(path, error.reason) from error
        if card["digest"] != record["digests"].get("program"):
            raise CorruptRecord(path, "the program is not the one that its record names")

    def _set_aside(self, path: Path) -> Path:
        """Move a record and its program, under names of their own; returns the record's new path."""
        folder = self.path / "set_aside"
        mark = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"
        moved = folder / f"{path.stem}.{mark}.json"
        program = self._program(path.stem)
        moves = [
            (program, folder / f"{path.stem}.{mark}{SUFFIX}"),
            (card_path(program), folder / f"{path.stem}.{mark}.program.json"),
            (path, moved),
        ]
        try:
            folder.mkdir(exist_ok=True)
            for old, new in moves:
                if old.exists():
                    old.rename(new)
        except OSError as error:
            raise self._unusable(error) from error
        return moved

    def _clear_strays(self) -> None:
        for path in self.path.rglob(".*.tmp"):
            try:
                if time.time() - path.stat().st_mtime > STRAY_AFTER:
                    path.unlink()
            except FileNotFoundError:
                continue

    def _write(self, path: Path, value: dict[str, Any]) -> None:
        try:
            write_atomically(path, (json.dumps(value, indent=1, allow_nan=False) + "\n").encode())
            _sync_folder(path.parent)
        except OSError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: OSError) -> StoreError:
        return StoreError(
            f"the trial store {self.path} cannot be written ({error.strerror}: {error.filename}); make "
            "room or correct its permissions, or name another folder as `store` in params.yaml"
        )


def _sync_folder(folder: Path) -> None:
    """Make a rename durable: the entry is the folder's, which has to reach the disk too."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


app = typer.Typer(add_completion=False, help="The trial store.")


@app.callback()
def _commands() -> None:
    """Look after the trial store."""


@app.command()
def check(
    params: Annotated[Path, typer.Option(help="the configuration that names the store")] = Path("params.yaml"),
    workspace: Annotated[Path | None, typer.Option(help="folder of the results; default: that of params")] = None,
) -> None:
    """Set damaged records aside, so that their trials run again.  Exit status 1 if there were any."""
    from pipeline.workspace import Workspace  # it knows the store, which knows no workspace

    store = Workspace.open(params, workspace).store
    try:
        problems = store.check()
    except StoreError as error:
        raise SystemExit(str(error)) from error
    for problem in problems:
        print(problem)
    print(
        f"{store.path}: {len(store.ids())} records are good, {len(problems)} set aside, "
        f"{len(store.failures())} failures noted"
    )
    raise SystemExit(1 if problems else 0)


if __name__ == "__main__":
    app()
