"""How a command of the pipeline ends where its user can put things right: a line with the remedy, no traceback."""

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, ParamSpec

import typer

from pipeline.disk import REMEDIES, StoreError

INTERRUPTED = 130  # what a shell says of a program that Ctrl-C ended
P = ParamSpec("P")


def run_command(main: Callable[..., None]) -> None:
    """Run a function as the command line of its module."""
    typer.run(guarded(main))


def guarded(main: Callable[P, None]) -> Callable[P, None]:
    """A command that ends with exit status 130 at Ctrl-C, and with 1 at a disk or a store that cannot be used."""

    @functools.wraps(main)
    def command(*arguments: P.args, **options: P.kwargs) -> None:
        try:
            main(*arguments, **options)
        except KeyboardInterrupt:
            _end("interrupted", INTERRUPTED)
        except StoreError as error:
            print(error, file=sys.stderr)
            raise SystemExit(1) from None
        except OSError as error:
            if error.errno not in REMEDIES:
                raise
            remedy = f"{REMEDIES[error.errno]}, or choose another folder"
            _end(f"{error.filename or 'a file'}: {error.strerror}; {remedy}", 1)

    return command


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Name the file or folder in errors that do not: a full disk is noticed where only the descriptor is known."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def _end(why: str, status: int) -> NoReturn:
    print(f"{why}. What is done is kept: run the same command again to go on.", file=sys.stderr)
    raise SystemExit(status)
