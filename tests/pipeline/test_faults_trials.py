"""Trials that raise, hang, take too much memory or lose their worker: each is told, and no other suffers."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pandas as pd
import pytest

import pipeline.sweep
import pipeline.tables
from fut.config import TrialConfig
from tests.pipeline.lab import CPUS, Ended, Lab

HUGE = 1_000_000  # times as many columns as below are more numbers than a processor can address
TOO_LARGE = f"{{width: {HUGE}, backbone.qk_dim: 1000000000}}"
WIDTHS = {20: "raises", 18: "hangs", 16: "is killed", 14: "is killed once", 12: "", 10: "", 8: ""}
STALLED_AFTER = 20  # seconds; many times what a good trial takes


class Faulty(NamedTuple):
    """A sweep in which some trials go wrong."""

    lab: Lab
    trials: dict[int, TrialConfig]  # by width
    ended: Ended

    def failure(self, width: int) -> dict[str, Any]:
        """What the store notes of the trial of a width."""
        return self.ended.store.failures()[self.trials[width].id]

    def said(self, text: str) -> int:
        """How often the sweep said something."""
        return (self.ended.output + self.ended.errors).count(text)


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faulty]:
    lab = Lab(tmp_path_factory.mktemp("trials"))
    cpus = max(1, CPUS // 2)
    lab.write(list(WIDTHS), seeds=[0], more=TOO_LARGE, cpus=cpus, stalled_after=STALLED_AFTER, wandb="disabled")
    trials = {trial.width: trial for trial in lab.trials()}
    lab.spoil({trials[width].id: fault for width, fault in WIDTHS.items()})
    yield Faulty(lab, trials, lab.sweep())
    lab.close()


@pytest.mark.slow
def test_faults_of_some_trials_fail_the_sweep_and_no_other_trial(faulty: Faulty) -> None:
    ended, trials = faulty.ended, faulty.trials
    lost = {trials[width].id for width in (HUGE, 20, 18, 16)}
    assert ended.status == 1
    assert ended.records() == {trial.id for trial in trials.values()} - lost
    assert ended.missing().keys() == lost
    assert ended.store.check() == []
    assert "first: incomplete, 4 of 8 trials are missing:" in ended.output
    assert "What is done is kept: run the same command again, and only these trials run." in ended.output
    assert "Traceback" not in ended.errors
    assert faulty.lab.left_over() == []


@pytest.mark.slow
def test_good_trials_and_those_that_raise_are_run_once(faulty: Faulty) -> None:
    starts = faulty.lab.starts()
    assert [starts[faulty.trials[width].id] for width in (20, 12, 10, 8)] == [1, 1, 1, 1]


@pytest.mark.slow
def test_a_trial_that_raises_leaves_its_traceback_in_the_store_and_once_on_the_terminal(faulty: Faulty) -> None:
    failure, trial = faulty.failure(20), faulty.trials[20]
    assert (failure["error"], failure["message"]) == ("ArithmeticError", "this trial was sabotaged")
    assert (failure["study"], failure["config"]) == ("first", trial.canonical())
    assert failure["traceback"].startswith("Traceback") and "in _run" in failure["traceback"]
    assert faulty.said(failure["traceback"].rstrip()) == 1
    assert faulty.ended.output.count("Traceback (most recent call last)") == 2  # and that of the one without memory
    reason = "ArithmeticError: this trial was sabotaged (run it alone: python -m pipeline.trial"
    assert faulty.ended.missing()[trial.id] == f"{reason} {trial.id[:12]})"
    assert faulty.said(f"{trial.id[:12]}: {reason} {trial.id[:12]})") == 1


@pytest.mark.slow
def test_a_trial_that_hangs_is_ended_and_tells_where_it_stood(faulty: Faulty) -> None:
    failure, trial = faulty.failure(18), faulty.trials[18]
    assert failure["error"] == "TimeoutError"
    assert failure["message"].startswith("no epoch was finished in 20 s, and its worker was ended")
    assert "raise stalled_after" in failure["message"]
    assert re.search(r'File ".*sitecustomize\.py", line \d+ in hang$', failure["traceback"], re.MULTILINE)
    assert faulty.said(failure["traceback"].rstrip()) == 1
    assert faulty.lab.starts()[trial.id] == 1  # it is not let hang a second time


@pytest.mark.slow
def test_a_trial_that_lacks_memory_names_what_to_lower_and_what_to_raise(faulty: Faulty) -> None:
    failure = faulty.failure(HUGE)
    assert failure["error"] == "MemoryError"
    assert "Unable to allocate" in failure["message"]
    assert "training.batch_size" in failure["message"] and "cpus_per_trial" in failure["message"]


@pytest.mark.slow
def test_a_trial_whose_worker_is_killed_runs_once_more(faulty: Faulty) -> None:
    trial = faulty.trials[14].id
    assert faulty.lab.starts()[trial] == 2
    assert faulty.said(f"trial {trial[:12]} lost its worker (killed, or out of memory); it runs once more") == 1
    assert faulty.ended.store.has(trial)
    assert trial not in faulty.ended.store.failures()


@pytest.mark.slow
def test_a_trial_whose_worker_is_killed_again_is_given_up(faulty: Faulty) -> None:
    trial = faulty.trials[16].id
    assert faulty.lab.starts()[trial] == 2
    assert faulty.said(f"trial {trial[:12]} lost its worker again:") == 1
    reason = faulty.ended.missing()[trial]
    assert reason.startswith("its worker was lost twice; if memory ran out, lower training.batch_size")
    assert faulty.said(f"{trial[:12]}: {reason}") == 1


@pytest.mark.slow
def test_the_tables_show_every_failure(faulty: Faulty, capsys: pytest.CaptureFixture[str]) -> None:
    lab, trials = faulty.lab, faulty.trials
    pipeline.tables.main(lab.params)
    table = pd.read_parquet(lab.workspace.tables / "failures.parquet").set_index("trial")
    assert set(table.index) == faulty.ended.missing().keys()
    for width in (HUGE, 20, 18):
        row, failure = table.loc[trials[width].id], faulty.failure(width)
        assert (row["reason"], row["traceback"]) == ("failed", failure["traceback"])
        assert row["error"] == f"{failure['error']}: {failure['message']}"
    killed = table.loc[trials[16].id]
    assert (killed["reason"], killed["error"]) == ("missing", faulty.ended.missing()[trials[16].id])
    assert "failures 4" in capsys.readouterr().out


def test_more_cores_than_there_are_is_refused_at_once(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = Lab(tmp_path_factory.mktemp("cores"))
    lab.write([8], cpus=CPUS + 1)
    with pytest.raises(SystemExit) as exit_:
        pipeline.sweep.main("first", lab.params)
    assert exit_.value.code == 2
    assert f"cpus_per_trial: {CPUS + 1}, and this machine has {CPUS}; lower it" in capsys.readouterr().err
    assert not lab.store.path.exists()
