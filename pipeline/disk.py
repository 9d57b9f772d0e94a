"""The files of a trial store, and three things that look alike in them and must be kept apart.

What is not there (FileNotFoundError: its trial runs), what is damaged (CorruptRecord: it is set aside, and its trial
runs again), and what the disk does not do (StoreError: the file may be good, so nothing is moved and nothing runs).
"""

import contextlib
import errno
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fut.files import write_atomically

REMEDIES = {  # what the disk says → what to do
    errno.ENOSPC: "make room there",
    errno.EDQUOT: "make room there",
    errno.EROFS: "make its disk writable",
    errno.EACCES: "correct its permissions",
    errno.EPERM: "correct its permissions",
    errno.EIO: "see that its disk is sound and connected",
    errno.ESTALE: "see that its disk is sound and connected",
}
NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # of a path that leads to nothing
CLOSED = (errno.EACCES, errno.ELOOP)  # of a file that cannot be opened as it is, on a disk that works


class StoreError(Exception):
    """A store that cannot be used, or does not hold what is asked for."""


class CorruptRecord(StoreError):
    """A record that cannot be trusted; `path` is its file and `reason` what is wrong with it."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason

    def __reduce__(self) -> tuple[type["CorruptRecord"], tuple[Path, str]]:
        return type(self), (self.path, self.reason)  # crosses process borders whole


class Disk:
    """The files below the folder of a trial store, which its messages name."""

    def __init__(self, store: Path) -> None:
        self.store = store

    def mode(self, path: Path) -> int:
        """What a path leads to, in the terms of `stat`; 0 for nothing."""
        try:
            return path.stat().st_mode
        except OSError as error:
            if error.errno in NOWHERE:
                return 0
            raise self._unusable("read", error, path) from error

    def is_file(self, path: Path) -> bool:
        """Whether a path leads to a file, and not to a folder, a pipe or nothing."""
        return stat.S_ISREG(self.mode(path))

    def entries(self, folder: Path) -> list[Path]:
        """What lies in a folder, in order; nothing where there is no folder."""
        try:
            return sorted(folder.iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unusable("read", error, folder) from error

    @contextlib.contextmanager
    def reading(self, *paths: Path) -> Iterator[None]:
        """Tell damage from a disk that fails, while files are read; trouble is named by the first one.

        Raises:
            FileNotFoundError: there is no such file.
            CorruptRecord: there is something that is no file, or cannot be opened.
            StoreError: the disk does not give it.
        """
        for path in paths:
            if (found := self.mode(path)) and not stat.S_ISREG(found):
                raise CorruptRecord(path, "not a file")  # a pipe would make its reader wait for ever
        try:
            yield
        except FileNotFoundError as error:
            if paths[0].is_symlink():
                raise CorruptRecord(paths[0], "a link that leads nowhere") from error
            raise
        except OSError as error:
            if error.errno in CLOSED:
                raise CorruptRecord(paths[0], f"it cannot be opened ({error.strerror})") from error
            raise self._unusable("read", error, paths[0]) from error

    @contextlib.contextmanager
    def writing(self, path: Path) -> Iterator[None]:
        """Say what helps where the disk does not take what is written.

        Raises:
            StoreError: it does not.
        """
        try:
            yield
        except OSError as error:
            raise self._unusable("written", error, path) from error

    def load_json(self, path: Path) -> Any:
        """The JSON value of a file, in the one form that a store writes: UTF-8, and no key twice.

        Raises:
            FileNotFoundError: there is no such file.
            CorruptRecord: it holds something else.
            StoreError: the disk does not give it.
        """
        with self.reading(path):
            content = path.read_bytes()
        try:
            return json.loads(content.decode(), object_pairs_hook=_without_doubles)
        except (ValueError, RecursionError) as error:
            raise CorruptRecord(path, f"not readable JSON ({error})") from error

    def write_json(self, path: Path, value: dict[str, Any]) -> None:
        """Write a file that is seen whole or not at all, and that a loss of power leaves there.

        Raises:
            StoreError: the disk does not take it; what was there before still is.
        """
        content = (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()
        with self.writing(path):
            write_atomically(path, content)
            _sync_folder(path.parent)

    def _unusable(self, done: str, error: OSError, path: Path) -> StoreError:
        remedy = REMEDIES.get(error.errno or 0, "see what stands there, and that its disk is sound and connected")
        return StoreError(
            f"the trial store {self.store} cannot be {done} ({error.strerror}: {error.filename or path}); {remedy}, or "
            "name another folder as `store` in params.yaml"
        )


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; where a key stands twice, one reader takes the first value and another the last."""
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a key stands there twice")
    return value


def _sync_folder(folder: Path) -> None:
    """Make a rename durable: the entry is the folder's, which has to reach the disk too."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
