"""How commands end where their user can put things right."""

import errno
from pathlib import Path
from typing import Any

import pytest

from pipeline.command import guarded, writing
from pipeline.store import StoreError


def ended(error: BaseException, capsys: pytest.CaptureFixture[str]) -> tuple[Any, str]:
    """The exit status and the words of a command that raises."""

    def main() -> None:
        raise error

    with pytest.raises(SystemExit) as exit_:
        guarded(main)()
    return exit_.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "/data/x"),
            "/data/x: No space left on device; make room there, or choose another folder",
        ),
        (
            OSError(errno.EROFS, "Read-only file system", "/data/x"),
            "/data/x: Read-only file system; make its disk writable, or choose another folder",
        ),
        (
            PermissionError(errno.EACCES, "Permission denied", "x"),
            "x: Permission denied; correct its permissions, or choose another folder",
        ),
        (OSError(errno.ESTALE, "Stale file handle", "x"), "x: Stale file handle; see that its disk is sound"),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "a file: No space left on device; make room there, or choose another folder",
        ),
    ],
)
def test_a_broken_disk_is_said_in_a_line_with_the_place_and_the_remedy(
    error: OSError, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, words = ended(error, capsys)
    assert status == 1 and words.startswith(said) and words.count("\n") == 1
    assert words.endswith("What is done is kept: run the same command again to go on.\n")


def test_a_store_that_cannot_be_used_says_so_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(StoreError("the store is on a disk that fails; mend it"), capsys) == (
        1,
        "the store is on a disk that fails; mend it\n",
    )


def test_ctrl_c_ends_with_130(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(KeyboardInterrupt(), capsys)[0] == 130


@pytest.mark.parametrize("error", [FileNotFoundError(errno.ENOENT, "No such file", "x"), ValueError("a fault of ours")])
def test_other_faults_keep_their_traceback(error: Exception) -> None:
    def main() -> None:
        raise error

    with pytest.raises(type(error)):
        guarded(main)()


def test_what_a_command_raises_on_purpose_passes() -> None:
    def main(code: int) -> None:
        raise SystemExit(code)

    with pytest.raises(SystemExit) as exit_:
        guarded(main)(2)
    assert exit_.value.code == 2


def test_an_error_without_a_name_gets_that_of_what_was_written() -> None:
    with pytest.raises(OSError) as unnamed, writing(Path("/results")):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OSError) as named, writing(Path("/results")):
        raise OSError(errno.ENOSPC, "No space left on device", "/results/trials.csv")
    assert (unnamed.value.filename, named.value.filename) == ("/results", "/results/trials.csv")
