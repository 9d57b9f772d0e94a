"""The trial store: one record and one program for every finished trial, kept for good.

A record is a JSON file named by its trial.  It becomes visible only when whole, and carries a checksum of itself.  The
store lies outside the outputs of DVC: no stage deletes it, and what is damaged is set aside, never removed.

    store.json                       says that this folder is a trial store
    trials/ID[:2]/ID.json            the records
    programs/ID[:2]/ID.safetensors   what was trained, and its card
    failures/ID.json                 why a trial gave no record, the last time that it was tried
    set_aside/…                      damaged files
"""

import contextlib
import io
import json
import os
import re
import stat
import sys
import tempfile
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from reprlib import repr as brief
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from fut.digest import digest
from fut.files import SUFFIX, CorruptFile, card_path, load_arrays
from fut.record import SCHEMA_VERSION, Record
from pipeline.command import guarded
from pipeline.disk import CorruptRecord, Disk, StoreError

if TYPE_CHECKING:  # the workspace knows the store, which needs no workspace
    from pipeline.workspace import Workspace

ID = re.compile(r"[0-9a-f]{64}")
TEMPORARY = re.compile(rf"\.({ID.pattern})\..*\.tmp")  # what is written, until it is whole
MARKER = {"format": "fut trial store", "schema_version": SCHEMA_VERSION}
# The types of the fields of a record, and of the note of a failure.
MAPPINGS = ("config", "recipe", "result", "references", "digests", "environment")
FIELDS: dict[str, type] = {**dict.fromkeys(MAPPINGS, dict), "epochs": list}
NOTED: dict[str, type] = {**dict.fromkeys(("error", "message", "traceback", "time"), str), "config": dict}
PROBE_BYTES = 2**16  # about a record and a small program


class Problem(NamedTuple):
    """A damaged trial: what was wrong, and where its files are now."""

    trial: str
    path: Path
    reason: str
    moved_to: Path

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}; set aside as {self.moved_to}"


class Store:
    """A trial store in a local folder.  Only `create` makes the folder, so that one that vanishes is noticed.

    Where the disk fails, every method raises StoreError, which says what helps.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._disk = Disk(self.path)

    def create(self) -> None:
        """Make the store where there is none, and see that it can be written.

        Raises:
            StoreError: it cannot, or the folder holds something else.
        """
        if not self._disk.mode(self._marker):
            self._disk.write_json(self._marker, MARKER)
        self._require()
        with self._disk.writing(self.path), tempfile.TemporaryFile(dir=self.path) as probe:
            probe.write(bytes(PROBE_BYTES))  # an empty file would fit on a full disk
            probe.flush()
            os.fsync(probe.fileno())

    def has(self, trial: str) -> bool:
        """Whether there is a record of a trial."""
        return self._disk.is_file(self.record_path(trial))

    def ids(self) -> set[str]:
        """The trials that have a record; none where there is no store yet."""
        return {path.stem for path in self._record_files() if self._is_placed(path) and self._disk.is_file(path)}

    def read(self, trial: str) -> Record:
        """The record of a trial.

        Raises:
            CorruptRecord: it is not what was written.
            StoreError: there is none, or no store.
        """
        path = self.record_path(trial)
        try:
            return self._read(path)
        except FileNotFoundError as error:
            self._require()
            raise StoreError(f"{path}: no such record") from error

    def write(self, record: Record) -> None:
        """Make a finished trial's record visible, whole; the trial's program has to be there already.

        Raises:
            StoreError: the program is missing, or the store has vanished or cannot be written.
        """
        program = self.program_path(record["trial"])
        if not self._disk.is_file(program):
            raise StoreError(f"{program}: no such program; save it before its record")
        plain = json.loads(json.dumps(record, allow_nan=False))  # as it will be read back
        self._disk.write_json(self.record_path(record["trial"]), {**plain, "checksum": digest(plain)})

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
        self._disk.write_json(
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
        """Forget a trial's failure, where there is one.

        Raises:
            StoreError: the store has vanished or cannot be written.
        """
        self._require()
        with self._disk.writing(self._failure(trial)):
            self._failure(trial).unlink(missing_ok=True)

    def failures(self) -> dict[str, dict[str, Any]]:
        """What `write_failure` noted, by trial; of a note that cannot be read, that it cannot.

        Raises:
            StoreError: there is no store.
        """
        self._require()
        found = {}
        for path in self._json_files(self.path / "failures"):
            try:
                note = self._disk.load_json(path)
                if not isinstance(note, dict) or _misfits(note, NOTED):
                    raise CorruptRecord(path, "not a note of a failure")
            except FileNotFoundError:
                continue  # its trial has just been run
            except CorruptRecord as error:
                note = {"trial": path.stem, "error": "unreadable", "message": f"{error}; delete this file"}
            found[path.stem] = note
        return found

    def check(self, trials: Iterable[str] | None = None) -> list[Problem]:
        """Set damaged records aside, so that their trials run again, and clear stray temporary files away.

        A record is damaged when it is not what was written, or when its program is missing or not the one that it
        names; record and program move together.  Several processes may check at once, and beside a sweep.

        Args:
            trials: check these only, as far as they are there; None: all.

        Returns:
            What was set aside.

        Raises:
            StoreError: there is no store, or the disk fails: at reading, before anything was moved.
        """
        self._require()
        wanted = None if trials is None else set(trials)
        paths = [path for path in self._record_files() if wanted is None or path.stem in wanted]
        damaged = [path for path in paths if self._damage(path)]  # all are read before one is moved
        self._clear_strays()
        if damaged:
            with self._disk.writing(self._aside):
                self._aside.mkdir(exist_ok=True)
        return [problem for path in damaged if (problem := self._set_aside(path))]

    def _require(self) -> None:
        """See that the store is there, and is one that this code understands."""
        otherwise = "or name another folder as `store` in params.yaml"
        if not self._disk.mode(self._marker):
            raise StoreError(
                f"the trial store {self.path} is not there (no {self._marker.name}); has a disk been "
                "unmounted, or the folder moved? Check `store` in params.yaml"
            )
        try:
            marker = self._disk.load_json(self._marker)
        except CorruptRecord as error:
            raise StoreError(
                f"{error}; if this folder is your trial store, write {json.dumps(MARKER)} into that file, {otherwise}"
            ) from error
        if not isinstance(marker, dict) or marker.get("format") != MARKER["format"]:
            raise StoreError(f"{self._marker} is not that of a trial store; move it away, {otherwise}")
        if (version := marker.get("schema_version")) != SCHEMA_VERSION:
            raise StoreError(
                f"the trial store {self.path} holds records of schema version {brief(version)}, and this code knows "
                f"version {SCHEMA_VERSION} only; use the code that wrote them, {otherwise}"
            )

    @property
    def _marker(self) -> Path:
        return self.path / "store.json"

    @property
    def _aside(self) -> Path:
        return self.path / "set_aside"

    def _program(self, trial: str) -> Path:
        return self.path / "programs" / trial[:2] / f"{trial}{SUFFIX}"

    def _failure(self, trial: str) -> Path:
        return self.path / "failures" / f"{trial}.json"

    def _is_placed(self, path: Path) -> bool:
        """Whether a file lies where the record of the trial in its name belongs."""
        return bool(ID.fullmatch(path.stem)) and path == self.record_path(path.stem)

    def _record_files(self) -> list[Path]:
        """All that is named like a record, whatever it may be."""
        folders = [path for path in self._disk.entries(self.path / "trials") if stat.S_ISDIR(self._disk.mode(path))]
        return [path for folder in folders for path in self._json_files(folder)]

    def _json_files(self, folder: Path) -> list[Path]:
        found = self._disk.entries(folder)
        return [path for path in found if path.suffix == ".json" and not path.name.startswith(".")]

    def _read(self, path: Path) -> Record:
        record = self._disk.load_json(path)
        if not isinstance(record, dict):
            raise CorruptRecord(path, "not a record")
        if record.get("schema_version") != SCHEMA_VERSION:
            raise CorruptRecord(path, f"schema_version is {brief(record.get('schema_version'))}, not {SCHEMA_VERSION}")
        if record.get("trial") != path.stem or not self._is_placed(path):
            raise CorruptRecord(path, f"the file is not named by its trial, {brief(record.get('trial'))}")
        if missing := [field for field in FIELDS if field not in record]:
            raise CorruptRecord(path, f"it has no {', '.join(missing)}")
        if misfits := _misfits(record, FIELDS):
            raise CorruptRecord(path, f"of a wrong type: {', '.join(misfits)}")
        checksum = record.pop("checksum", None)
        if checksum != _digest(record):
            raise CorruptRecord(path, "its checksum does not match its contents")
        return record

    def _check_program(self, record: Record) -> None:
        path, named = self._program(record["trial"]), {**record["digests"], "trial": record["trial"]}
        try:
            with self._disk.reading(path, card_path(path)):
                card = load_arrays(path)[1]
        except FileNotFoundError as error:
            raise CorruptRecord(path, "the program is missing") from error
        except CorruptFile as error:
            raise CorruptRecord(path, error.reason) from error
        except (ValueError, RecursionError) as error:
            raise CorruptRecord(path, f"the card is not readable JSON ({error})") from error
        if card["digest"] != named.get("program"):
            raise CorruptRecord(path, "the program is not the one that its record names")
        if wrong := [field for field in ("trial", "backbone") if field in named and card.get(field) != named[field]]:
            raise CorruptRecord(path, f"its card names another {wrong[0]} than its record")

    def _damage(self, path: Path) -> CorruptRecord | None:
        """What is wrong with a record or its program; None also where another process has set it aside."""
        try:
            self._check_program(self._read(path))
        except CorruptRecord as error:
            return error
        except FileNotFoundError:
            self._require()
        return None

    def _set_aside(self, path: Path) -> Problem | None:
        """Move a damaged record and its program, under names of their own; None if another process was faster."""
        if not (damage := self._damage(path)):
            return None
        name = f"{path.stem[:64]}.{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"
        moved, program = self._aside / f"{name}.json", self._program(path.stem)
        with self._disk.writing(path):
            try:
                path.rename(moved)  # first: who moves the record moves its program
            except FileNotFoundError:
                self._require()
                return None
            if self._is_placed(path):  # else the program is that of another record
                for old, suffix in ((program, SUFFIX), (card_path(program), ".program.json")):
                    with contextlib.suppress(FileNotFoundError):
                        old.rename(self._aside / f"{name}{suffix}")
        return Problem(path.stem, damage.path, damage.reason, moved)

    def _clear_strays(self) -> None:
        """Remove the temporary files of trials that have a record: their writers are done, whatever a clock says."""
        for folder, _, names in os.walk(self.path):
            for found in filter(None, map(TEMPORARY.fullmatch, names)):
                if self.has(found[1]):
                    with contextlib.suppress(OSError):  # it is in nobody's way
                        os.unlink(os.path.join(folder, found[0]))


def _misfits(value: dict[str, Any], fields: dict[str, type]) -> list[str]:
    """The fields of a JSON object that are missing, or of another type."""
    return [field for field, kind in fields.items() if not isinstance(value.get(field), kind)]


def _digest(value: Any) -> str | None:
    """The digest of a JSON value; None if it holds numbers that are not finite, as nothing does that was written."""
    try:
        return digest(value)
    except (ValueError, RecursionError):
        return None


app = typer.Typer(add_completion=False, help="The trial store.")


@app.callback()
def _commands() -> None:
    """Look after the trial store."""


@app.command()
@guarded
def check(
    params: Annotated[Path, typer.Option(help="the configuration that names the store")] = Path("params.yaml"),
    workspace: Annotated[Path | None, typer.Option(help="folder of the results; default: that of params")] = None,
) -> None:
    """Set damaged records aside, so that their trials run again.  Exit status 1 if there were any."""
    from pipeline.workspace import Workspace

    opened = Workspace.open(params, workspace)
    store = opened.store
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a damaged name may be no text
    try:
        problems = store.check()
        for problem in problems:
            print(problem)
        good, noted = store.ids(), len(store.failures())
    except StoreError as error:
        raise SystemExit(str(error)) from error
    print(f"{store.path}: {len(good)} records are good, {len(problems)} set aside, {noted} failures noted")
    print(_remedy(opened, good, problems))
    raise SystemExit(1 if problems else 0)


def _remedy(workspace: "Workspace", good: set[str], problems: list[Problem]) -> str:
    """What to do where trials have no record: DVC does not look into the store, and has to be told.

    Of studies that have not been begun nothing is said: nothing of them is lost.
    """
    lost = {problem.trial for problem in problems} - good
    lacking, others = [], []
    for name in workspace.params.studies:
        runs = name in workspace.params.run
        if not runs and not lost:
            continue
        trials = {trial.id for cell in workspace.params.cells(name) for trial in cell.trials}
        if runs and trials - good and (trials & (good | lost) or workspace.sweep(name).is_file()):
            lacking.append(name)
        elif trials & lost:
            others.append(name)
    lines = []
    if lacking:
        finished = " ".join(f"sweep@{name}" for name in lacking if workspace.sweep(name).is_file())
        first = f"dvc repro --single-item --force {finished}, then " if finished else ""
        lines.append(f"Trials of {', '.join(lacking)} are missing. To run them: {first}dvc repro")
    lines += [f"Trials of {name} are missing. To run them: python -m pipeline.quick {name}" for name in others]
    return "\n".join(lines) or "No trial that was finished is missing."


if __name__ == "__main__":
    app()
