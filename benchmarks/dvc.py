"""Subject `dvc`: how long `dvc repro` takes where nothing has to be done.

A copy of the pipeline, in a git repository of its own, runs the tiny grid of tests/params/tiny.yaml once.  The runs
after it have nothing to do.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.figures import Figure
from benchmarks.process import ROOT, run
from benchmarks.terminal import say

ABOUT = "`dvc repro` on the tiny grid, where nothing has to be done"
MOST = 5.0  # seconds that it may take
RUNS = 5
COPIED = ("fut", "pipeline", "analysis", "dvc.yaml", ".dvcignore", ".gitignore")
REPRO = [sys.executable, "-m", "dvc", "repro"]


def measure() -> list[Figure]:
    """The first run and those after it."""
    with tempfile.TemporaryDirectory(prefix="fut-bench-") as scratch:
        folder = copy_of_the_pipeline(Path(scratch) / "copy")
        environment = {"DVC_SITE_CACHE_DIR": str(Path(scratch) / "site"), "WANDB_MODE": "disabled"}
        say("dvc repro, the first, which has everything to do")
        first = run(REPRO, folder, environment)
        again = []
        for number in range(RUNS):
            say(f"dvc repro with nothing to do, {number + 1} of {RUNS}")
            again.append(run(REPRO, folder, environment).seconds)
    return [
        Figure(row="nothing to do", column="time", unit="s", samples=again, better="lower", at_most=MOST),
        Figure(row="everything to do", column="time", unit="s", samples=[first.seconds], better="lower"),
    ]


def copy_of_the_pipeline(folder: Path) -> Path:
    """A copy of all that `dvc repro` needs, with the tiny grid in the place of params.yaml."""
    folder.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    (folder / ".dvc").mkdir()
    shutil.copy(ROOT / ".dvc" / "config", folder / ".dvc")
    shutil.copy(ROOT / "tests" / "params" / "tiny.yaml", folder / "params.yaml")
    (folder / ".venv").symlink_to(sys.prefix)  # the commands of dvc.yaml name the project's own interpreter
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    return folder
