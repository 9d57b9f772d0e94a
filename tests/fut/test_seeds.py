"""Streams are independent of each other and the same everywhere."""

import subprocess
import sys

import pytest

from fut.seeds import generator


def test_seed_zero_is_a_seed_and_streams_differ() -> None:
    firsts = {
        generator(seed, stream).random() for seed in (0, 1) for stream in ("backbone", "program", "batches", "target")
    }
    assert len(firsts) == 8


def test_names_do_not_run_together() -> None:
    assert generator(1, "data", "1", "2").random() != generator(1, "data", "12").random()


@pytest.mark.parametrize("hash_seed", ["0", "123"])
def test_the_same_in_another_process(hash_seed: str) -> None:
    code = "from fut.seeds import generator; print(generator(5, 'program', 'x', 3).integers(2**62))"
    said = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": hash_seed, "PATH": ""},
    )
    assert int(said.stdout) == generator(5, "program", "x", 3).integers(2**62)
