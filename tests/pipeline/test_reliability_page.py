"""The page of promises names tests that are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_test_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"`(test_\w+)(?:\.py)?`", (ROOT / "docs" / "reliability.md").read_text()))
    files = list((ROOT / "tests" / "pipeline").glob("test_*.py"))
    there = {file.stem for file in files} | {
        name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)
    }
    assert len(named) > 25 and named <= there, named - there
