"""One sweep at a time in a trial store, and a word on who has it."""

import getpass
import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from fut.files import write_atomically
from pipeline.store import StoreError


class StoreBusy(StoreError):
    """Another sweep has the store."""


@contextmanager
def only_sweep(store: Path, study: str) -> Iterator[None]:
    """Hold the lock of a trial store; the system frees it when this process ends, however that happens.

    Args:
        store: the store's folder, which is there.
        study: what is swept, for the message that others get.

    Raises:
        StoreBusy: another sweep holds it; the message says which, and what to do.
    """
    lock, note = FileLock(store / "sweep.lock"), store / "sweep.json"
    try:
        lock.acquire(blocking=False)
    except Timeout as error:
        raise StoreBusy(f"the trial store {store} is in use: {_who(note)}") from error
    try:
        holder = {
            "study": study,
            "process": os.getpid(),
            "user": _user(),
            "host": platform.node(),
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        write_atomically(note, json.dumps(holder).encode())
        yield
    finally:
        note.unlink(missing_ok=True)
        lock.release()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run under a number that has no name
        return str(os.getuid())


def _who(note: Path) -> str:
    """Who holds the lock, by the holder's own note."""
    then = "then run the same command again"
    try:
        holder = json.loads(note.read_bytes())
        return (
            f"{holder['user']} sweeps study {holder['study']} since {holder['since']}, as process {holder['process']} "
            f"on {holder['host']}. Wait for its end, or end it there with `kill {holder['process']}`, {then}"
        )
    except (OSError, ValueError, KeyError, TypeError):  # it has just begun, or just ended
        return f"another sweep has it. Wait for its end, {then}"
