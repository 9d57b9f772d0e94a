"""Ends what Ray leaves behind when a sweep is killed by a signal that no process hears (`kill -9`).

Ray's own processes notice it, but two of its agents then call their dead cluster for a minute.  So a small process
waits for the end of the sweep's, and ends those below it that are still there some seconds later.
"""

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator

import psutil

GRACE = 10.0  # seconds


@contextlib.contextmanager
def reaper() -> Iterator[Callable[[], None]]:
    """Watch over this process; when it has ended, or leaves the block, what was named ends too.

    Yields:
        A function that names all processes that are below this one now.
    """
    watcher = subprocess.Popen(
        [sys.executable, "-m", __name__], stdin=subprocess.PIPE, text=True, start_new_session=True
    )
    assert watcher.stdin is not None
    pipe = watcher.stdin

    def name() -> None:
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.pid != watcher.pid:
                    print(process.pid, process.create_time(), file=pipe, flush=True)

    try:
        yield name
    finally:
        pipe.close()  # as the system does when this process is killed
        watcher.wait()


def main() -> None:
    """Read process ids and their times of creation until nobody can write any more, then end these processes."""
    named = [line.split() for line in sys.stdin]
    processes = []
    for pid, created in named:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(int(pid))
            if process.create_time() == float(created):  # else the number has been given to another
                processes.append(process)
    for process in psutil.wait_procs(processes, timeout=GRACE)[1]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


if __name__ == "__main__":
    main()
