"""`python -m pipeline.trial`: any trial again, by its id, its configuration, or a file."""

import json
from pathlib import Path
from typing import Any

import pytest

from fut.config import TrialConfig
from fut.files import save_arrays
from fut.program import load_program
from pipeline.store import Store
from pipeline.trial import find, main, parse
from pipeline.workspace import Workspace

TRIAL = """
task: {name: khop, length: 8, train_size: 100, val_size: 50, test_size: 50}
backbone: {kind: random}
heads: 1
layers: 1
width: 8
training: {steps: 10, steps_per_epoch: 5, warmup_steps: 2}
learning_rate: 1e-2
seed: 3
"""


@pytest.fixture
def quick(tiny: Path) -> Path:
    """The tiny params.yaml with ten steps a trial."""
    tiny.write_text(tiny.read_text().replace("{steps: 100}", "{steps: 10, steps_per_epoch: 5, warmup_steps: 2}"))
    return tiny


def run(params: Path, trial: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The record that the command prints; nothing else may stand on standard output."""
    capsys.readouterr()
    main(trial, params, None, params.parent / "program.safetensors")
    output = capsys.readouterr()
    assert output.err.splitlines()[0].startswith("epoch 1: training loss ")
    return json.loads(output.out)


def refused(params: Path, trial: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Why the command ends with status 2, before anything is built."""
    before = {path for path in params.parent.rglob("*")}
    with pytest.raises(SystemExit) as exit_:
        main(trial, params)
    assert exit_.value.code == 2
    output = capsys.readouterr()
    assert output.out == "" and {path for path in params.parent.rglob("*")} == before
    return output.err


@pytest.mark.parametrize("letters", [6, 12, 64])
def test_a_trial_of_a_study_by_the_first_letters_of_its_id(
    letters: int, quick: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trial = Workspace.open(quick).params.cells("tiny")[1].trials[1]
    record = run(quick, trial.id[:letters], capsys)
    assert (record["trial"], record["config"]) == (trial.id, trial.canonical())
    assert record["result"]["steps"] == 10
    program = load_program(quick.parent / "program.safetensors", record["digests"]["backbone"])
    assert program["unembedding"].shape == (12, trial.task.out_dim)
    assert not (quick.parent / "store").exists()


def test_a_trial_by_yaml_json_or_file(quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = run(quick, TRIAL, capsys)
    config = TrialConfig.model_validate(record["config"])
    assert (config.learning_rate, config.seed, config.task.length, config.training.steps) == (0.01, 3, 8, 10)
    (quick.parent / "trial.yaml").write_text(TRIAL)
    assert run(quick, str(quick.parent / "trial.yaml"), capsys)["trial"] == config.id == record["trial"]
    text = json.dumps(config.canonical())
    assert len(text) > 300  # more than the name of a file may have
    assert run(quick, text, capsys)["trial"] == config.id


def test_a_trial_of_the_store_that_is_in_no_study_any_more(quick: Path, finish: Any) -> None:
    workspace = Workspace.open(quick)
    gone = workspace.params.cells("other")[0].trials[0]
    workspace.store.create()
    finish(workspace.store, gone)
    quick.write_text(quick.read_text().split("  other:")[0])
    assert find(Workspace.open(quick), gone.id[:8]) == gone


def test_without_a_path_the_program_lands_in_the_working_directory(
    quick: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trial = Workspace.open(quick).params.cells("tiny")[0].trials[0]
    main(trial.id, quick)
    assert (tmp_path / f"trial-{trial.id[:12]}.safetensors").is_file()


def test_an_id_that_nobody_has_is_refused(quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(quick, "abcdefabcdef", capsys) == "no trial of params.yaml or the store begins with abcdefabcdef\n"


def test_letters_that_several_trials_begin_with_are_refused(
    quick: Path, finish: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = Workspace.open(quick)
    store, trial = workspace.store, workspace.params.cells("tiny")[0].trials[0]
    store.create()
    add_with_id(store, finish(store, trial), trial.id[:10] + "f" * 54)
    assert refused(quick, trial.id[:10], capsys) == f"several trials begin with {trial.id[:10]}\n"
    assert find(workspace, trial.id) == trial


def add_with_id(store: Store, record: dict[str, Any], name: str) -> None:
    """Write a record again under another id, as other code would have given to the same configuration."""
    save_arrays(store.program_path(name), {}, {"trial": name})
    store.write({**record, "trial": name})


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("heads: 3\nlayers: 1", ["task: missing", "backbone: missing", "width: missing", "learning_rate", "seed"]),
        (TRIAL.replace("length: 8", "lenght: 8"), ["task.lenght: unknown key 'lenght': did you mean 'length'?"]),
        (TRIAL.replace("width: 8", "width: eight").replace("seed: 3", "seed: -1"), ["width: ", "seed: "]),
        (TRIAL.replace("heads: 1", "heads: 3"), ["backbone", "width"]),
        (TRIAL + "seed: 4", ["seed: given twice"]),
        ("[1, 2]", ["a trial is an id"]),
        ("abc", ["a trial is an id, at least its first 6 letters"]),
        ("nowhere.yaml", ["a trial is an id"]),
        ("{task: ", ["not valid YAML"]),
    ],
)
def test_an_impossible_configuration_is_refused_with_every_path(
    text: str, paths: list[str], quick: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    errors = refused(quick, text, capsys)
    for path in paths:
        assert path in errors


def test_a_number_that_is_too_large_or_no_number_is_refused_and_not_tried() -> None:
    shape = "heads: 1, layers: 1000000000, width: 8, learning_rate: 0.01, seed: 0"
    text = f"{{task: {{name: khop}}, backbone: {{kind: sparse}}, {shape}, training: {{solved_at: .nan}}}}"
    with pytest.raises(ValueError) as refused:
        parse(text)
    assert str(refused.value).splitlines() == [
        "layers: must be at most 1,000, got 1000000000",
        "training.solved_at: must be a finite number, got nan",
    ]
