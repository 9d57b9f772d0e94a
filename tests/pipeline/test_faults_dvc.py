"""A sweep whose `dvc` is killed, in a home that cannot be written."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from pipeline.interrupt import STOPPING
from tests.pipeline.lab import Ended, Lab, Run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A project of three trials, with the sweep as its only stage."""
    lab = Lab(tmp_path_factory.mktemp("dvc"))
    lab.write([8], wandb="disabled")
    stage = {
        "cmd": f"{sys.executable} -m pipeline.sweep first",
        "params": ["studies.first", "store"],
        "outs": ["results/sweeps/first.json"],
    }
    project = lab.params.parent
    (project / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"sweep": stage}}))
    (project / ".dvc").mkdir()
    (project / ".dvc" / "config").write_text("[core]\n    no_scm = true\n    analytics = false\n")
    yield lab
    lab.close()


def repro(lab: Lab) -> Run:
    """Start `dvc repro`."""
    return lab.start(
        sys.executable,
        "-m",
        "dvc",
        "repro",
        folder=lab.params.parent,
        DVC_SITE_CACHE_DIR=str(lab.root / "site"),
        DVC_NO_ANALYTICS="true",
        HOME="/sys",  # where not even root can make a file
    )


@pytest.fixture(scope="module")
def killed(lab: Lab) -> tuple[Ended, list[str]]:
    """A sweep whose `dvc` is killed when a trial has a record and another is trained; and the processes it left."""
    first, *later = (trial.id for trial in lab.trials())
    lab.spoil(dict.fromkeys(later, "is held"))
    run = repro(lab)
    run.until(lambda: lab.store.has(first) and lab.held(), "a record, and a trial in the middle of its training")
    run.send(signal.SIGKILL)
    run.wait()
    left = lab.left_over()
    return lab.ended(run), left


@pytest.fixture(scope="module")
def again(lab: Lab, killed: tuple[Ended, list[str]]) -> Ended:
    lab.spoil({})
    run = repro(lab)
    run.wait()
    return lab.ended(run)


def test_a_sweep_whose_dvc_is_killed_ends_by_itself(lab: Lab, killed: tuple[Ended, list[str]]) -> None:
    ended, left = killed
    assert left == []
    assert ended.status == -signal.SIGKILL
    first, *later = (trial.id for trial in lab.trials())
    assert ended.records() == {first}
    assert ended.errors.count(STOPPING) == 1
    assert ended.missing() == dict.fromkeys(later, "not run: the sweep was interrupted")
    assert "What is done is kept: run the same command again, and only these trials run." in ended.output


def test_dvc_goes_on_where_it_was_killed_in_a_home_that_cannot_be_written(
    lab: Lab, killed: tuple[Ended, list[str]], again: Ended
) -> None:
    before, _ = killed
    assert again.status == 0, again.output + again.errors
    assert again.records() == {trial.id for trial in lab.trials()}
    assert before.kept().items() <= again.kept().items()
    assert lab.starts()[lab.trials()[0].id] == 1
    assert again.missing() == {}
    assert again.store.check() == []
    assert lab.left_over() == []
    assert yaml.safe_load(Path(lab.params.parent / "dvc.lock").read_text())["stages"].keys() == {"sweep"}
