"""What ends a sweep early: Ctrl-C, SIGTERM, a closed terminal, and the end of the `dvc` that runs it as a stage."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator

import psutil

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SHELLS = {"sh", "bash", "dash", "zsh", "ksh", "fish"}
LOOK_EVERY = 1.0  # seconds between two looks at the process above
STOPPING = "stopping: the workers are being ended, and what is done is kept"
STILL_STOPPING = "still stopping, this takes some seconds"


@contextlib.contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """Raise KeyboardInterrupt at the first signal that asks for an end; later ones do not disturb the ending.

    Nor do they after it: this process ends, and a signal that comes while the interpreter does would spoil the exit
    status.  A signal that was ignored before stays ignored: a sweep started with `nohup` outlives its terminal.

    Yields:
        A function that takes the signals back, for after a library has taken them for itself.
    """
    before = {number: signal.getsignal(number) for number in SIGNALS}
    heard = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    terminals = [descriptor for descriptor in (1, 2) if os.isatty(descriptor)]
    stopping = False

    def interrupt(number: int, frame: object) -> None:
        nonlocal stopping
        if number == signal.SIGHUP:
            _leave(terminals)
        _say(STILL_STOPPING if stopping else STOPPING)
        if not stopping:
            stopping = True
            raise KeyboardInterrupt

    def listen() -> None:
        for number in heard:
            signal.signal(number, interrupt)

    listen()
    try:
        with _end_with(_stage_runner()):
            yield listen
    finally:
        for number in heard:
            signal.signal(number, signal.SIG_IGN if stopping else before[number])


@contextlib.contextmanager
def _end_with(process: psutil.Process | None) -> Iterator[None]:
    """Send this process SIGTERM when another one has gone: a stage must not run on when nobody waits for it."""
    done = threading.Event()

    def watch(process: psutil.Process) -> None:
        while not done.wait(LOOK_EVERY):
            if not _runs(process):
                os.kill(os.getpid(), signal.SIGTERM)
                return

    watcher = threading.Thread(target=watch, args=(process,), daemon=True) if process else None
    if watcher:
        watcher.start()
    try:
        yield
    finally:
        done.set()
        if watcher:
            watcher.join()


def _stage_runner() -> psutil.Process | None:
    """The process that runs this one as a DVC stage: the nearest above that is not the shell in between."""
    if "DVC_STAGE" not in os.environ:
        return None
    return next((process for process in psutil.Process().parents() if not _is_shell(process)), None)


def _is_shell(process: psutil.Process) -> bool:
    try:
        return process.name() in SHELLS and "-c" in process.cmdline()
    except psutil.Error:
        return False


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _leave(terminals: Iterable[int]) -> None:
    """Write no more to a terminal that has closed: every print would fail."""
    with open(os.devnull, "w") as nothing:
        for descriptor in terminals:
            os.dup2(nothing.fileno(), descriptor)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # nobody may be there to read it
        os.write(2, f"\n{text}\n".encode())
