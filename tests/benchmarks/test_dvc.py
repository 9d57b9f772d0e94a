"""The copy of the pipeline has all that its stages need."""

import sys
from pathlib import Path

import yaml

from benchmarks.dvc import copy_of_the_pipeline


def test_a_copy_has_the_code_the_interpreter_and_the_tiny_grid(tmp_path: Path) -> None:
    copy = copy_of_the_pipeline(tmp_path / "copy")
    stages = yaml.safe_load((copy / "dvc.yaml").read_text())["stages"].values()
    code = {name for stage in stages for name in stage["deps"] if "/" not in name}
    assert code and all((copy / name).is_dir() for name in code)
    assert (copy / ".venv" / "bin" / "python").resolve() == Path(sys.executable).resolve()
    assert yaml.safe_load((copy / "params.yaml").read_text())["run"] == ["tokens", "simulated", "reprogrammed"]
    assert (copy / ".git").is_dir() and not list(copy.glob("fut/**/__pycache__"))
