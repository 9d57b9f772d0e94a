"""Sweeps in which trials wait for others: a pretrained backbone is what its source has trained."""

from collections.abc import Iterator

import pytest

from fut.config import TrialConfig
from tests.pipeline.lab import Ended, Lab

PARAMS = """
run: [first]
wandb: {mode: disabled}
studies:
  first:
    seeds: [0, 1]
    base:
      task: {name: dyck, max_length: 12, train_size: 200, val_size: 50, test_size: 50}
      heads: 1
      layers: 1
      width: 8
      training: &short {steps: 20, batch_size: 16, steps_per_epoch: 10, warmup_steps: 5}
    grid:
      - &khop
        task: {name: khop, length: 8, train_size: 200, val_size: 50, test_size: 50}
        backbone: {kind: trained}
      - backbone: {kind: pretrained}
        source: {<<: *khop, training: *short, learning_rate: 0.001}
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("sources"))
    lab.params.write_text(PARAMS)
    lab.spoil({})
    yield lab
    lab.close()


@pytest.fixture(scope="module")
def pairs(lab: Lab) -> list[tuple[TrialConfig, TrialConfig]]:
    """Each trial with a pretrained backbone, and its source."""
    return [(trial, trial.source_trial) for trial in lab.trials() if trial.source_trial is not None]


@pytest.fixture(scope="module")
def failed(lab: Lab, pairs: list[tuple[TrialConfig, TrialConfig]]) -> Ended:
    """A sweep that finds a folder where the program of the first source has to go."""
    obstacle = lab.workspace.root / "store" / "programs" / pairs[0][1].id[:2] / f"{pairs[0][1].id}.safetensors"
    obstacle.mkdir(parents=True)
    ended = lab.sweep()
    obstacle.rmdir()
    return ended


@pytest.fixture(scope="module")
def repaired(lab: Lab, failed: Ended) -> Ended:
    return lab.sweep()


@pytest.mark.slow
def test_a_trial_whose_source_failed_is_not_run_and_says_so(
    lab: Lab, pairs: list[tuple[TrialConfig, TrialConfig]], failed: Ended
) -> None:
    (waiting, source), (done, other) = pairs
    assert failed.status == 1 and failed.records() == {done.id, other.id}
    assert failed.missing()[waiting.id] == f"not run: its source, trial {source.id[:12]}, has no record"
    assert failed.missing()[source.id].startswith("IsADirectoryError")


@pytest.mark.slow
def test_the_next_sweep_runs_the_source_first_and_then_what_waits_for_it(
    lab: Lab, pairs: list[tuple[TrialConfig, TrialConfig]], failed: Ended, repaired: Ended
) -> None:
    assert repaired.status == 0 and repaired.records() == {trial.id for pair in pairs for trial in pair}
    order = [trial for _, trial in lab.started()]
    assert order[-2:] == [pairs[0][1].id, pairs[0][0].id]  # each source before its trial, also in the first sweep
    assert order.index(pairs[1][1].id) < order.index(pairs[1][0].id)
    for trial, source in pairs:
        record = repaired.store.read(trial.id)
        assert record["recipe"]["source"] == source.id and record["digests"]["backbone"] != ""
    assert failed.kept().items() <= repaired.files.items()


@pytest.mark.slow
def test_the_trial_runs_alone_on_the_stores_program(
    lab: Lab, pairs: list[tuple[TrialConfig, TrialConfig]], repaired: Ended
) -> None:
    """As anybody who doubts a record would run it."""
    run = lab.start(*lab.command("pipeline.trial", pairs[0][0].id[:12]))
    run.wait()
    assert run.process.returncode == 0
    assert f'"program": "{repaired.store.read(pairs[0][0].id)["digests"]["program"]}"' in run.output


@pytest.mark.slow
def test_without_its_source_a_trial_says_what_to_run(lab: Lab, pairs: list[tuple[TrialConfig, TrialConfig]]) -> None:
    repaired_program = lab.store.program_path(pairs[0][1].id)
    aside = repaired_program.rename(repaired_program.with_suffix(".aside"))
    run = lab.start(*lab.command("pipeline.trial", pairs[0][0].id[:12]))
    run.wait()
    aside.rename(repaired_program)
    assert run.process.returncode == 2
    assert f"the source {pairs[0][1].id[:12]} has left no program here; run it first" in run.errors
