"""Other processes: their time, their memory and their failures."""

import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.process import run

MB = 2**20


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_the_memory_of_a_process_is_its_own_and_not_that_of_the_one_that_starts_it(tmp_path: Path) -> None:
    here = np.ones(600 * MB, np.uint8)
    small, large = (run(python(f"x = b'x' * ({size} << 20)"), tmp_path).peak_bytes / MB for size in (1, 300))
    assert here.all() and small < 100 and 300 < large < 400


def test_a_process_that_fails_says_what_it_printed_last(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"ended with status 3:\nthe reason"):
        run(python("import sys; print('the reason'); sys.exit(3)"), tmp_path)


def test_a_process_sees_its_folder_and_environment_and_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "a key")
    code = "import os; print(os.getcwd(), os.environ['OWN'], 'WANDB_API_KEY' in os.environ, file=open('seen', 'w'))"
    assert run(python(code), tmp_path, {"OWN": "value"}).seconds > 0
    assert (tmp_path / "seen").read_text().split() == [str(tmp_path), "value", "False"]
