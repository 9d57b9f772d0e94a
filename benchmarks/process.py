"""Other processes: how long they take and how much memory they reach.

A process is started by a small one of its own (this file), since Linux counts the memory of the starting process to
the peak of the started one.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
QUIET = {  # nothing is sent anywhere
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
    "DVC_NO_ANALYTICS": "true",
    "RAY_USAGE_STATS_ENABLED": "0",
}


class Ran(NamedTuple):
    """A process that has ended well."""

    began: float  # seconds since 1970
    seconds: float
    peak_bytes: int  # of resident memory: that of the largest process, where it started others


def run(command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> Ran:
    """Run a command to its end.

    Args:
        command: program and arguments.
        folder: its working directory.
        environment: what it sees besides our own environment.

    Raises:
        RuntimeError: it failed; the message ends with the last lines that it printed.
    """
    seen = {**os.environ, **QUIET, "PYTHONPATH": str(ROOT), **(environment or {})}
    seen.pop("WANDB_API_KEY", None)
    with tempfile.TemporaryDirectory(prefix="fut-bench-") as scratch:
        note, printed = Path(scratch) / "ran.json", Path(scratch) / "printed"
        with printed.open("wb") as out:
            launcher = [sys.executable, "-P", __file__, str(note), *command]  # -P: this folder is no place for imports
            status = subprocess.run(launcher, cwd=folder, env=seen, stdout=out, stderr=out).returncode
        if status:
            last = "\n".join(printed.read_text(errors="replace").splitlines()[-20:])
            raise RuntimeError(f"{' '.join(command)} ended with status {status}:\n{last}")
        return Ran(**json.loads(note.read_text()))


def _launch(note: Path, command: list[str]) -> int:
    """Run a command, note what it took, and return its exit status."""
    began, clock = time.time(), time.perf_counter()
    status = subprocess.run(command).returncode
    seconds = time.perf_counter() - clock
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    note.write_text(json.dumps({"began": began, "seconds": seconds, "peak_bytes": peak}))
    return status


if __name__ == "__main__":
    sys.exit(_launch(Path(sys.argv[1]), sys.argv[2:]))
