"""A trial's record: the same wherever it is run, whole, and true."""

import json
import subprocess
import sys

import pytest
import torch

from fut.backbones import build
from fut.backbones.files import ensure_backbone
from fut.program import ProgramError, install, load_program
from fut.transformer import Transformer
from fut.trial import run_trial

VARY = {"train_seconds", "started", "seconds"}


def steady(value):
    """A record without what may differ between two runs: times."""
    if isinstance(value, dict):
        return {name: steady(inner) for name, inner in value.items() if name not in VARY}
    return [steady(inner) for inner in value] if isinstance(value, list) else value


def test_the_record_is_json_and_complete(trial, folders) -> None:
    config = trial()
    record = run_trial(config, **folders)
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert record["trial"] == config.id and record["config"] == config.canonical()
    assert record["result"]["steps"] == 20 and record["environment"]["threads"] == 1
    assert set(record["digests"]) == {"data", "backbone", "code", "dataset_id", "backbone_id", "program"}
    held = Transformer(config, ensure_backbone(config.recipe, folders["backbones"]))
    assert record["result"]["trainable_parameters"] == sum(p.numel() for p in held.parameters())
    # 2 layers of q, k, v, o, each 16 × 16, one head
    assert record["result"]["frozen_parameters"] == 2 * 4 * 16 * 16


def test_the_same_record_after_another_trial_and_in_a_fresh_process(trial, folders, tmp_path) -> None:
    config = trial()
    first = run_trial(config, **folders)
    run_trial(trial(seed=7), **folders)
    torch.manual_seed(99)
    torch.set_default_dtype(torch.float64)
    try:
        again = run_trial(config, **folders)
    finally:
        torch.set_default_dtype(torch.float32)
    code = (
        "import json, sys, pathlib; from fut.config import TrialConfig; from fut.trial import run_trial\n"
        "c, d, b, p = sys.argv[1:]; paths = map(pathlib.Path, (d, b, p))\n"
        "print(json.dumps(run_trial(TrialConfig.model_validate_json(c), *paths)))"
    )
    fresh = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            "-c",
            code,
            config.model_dump_json(),
            *map(str, (tmp_path / "d2", tmp_path / "b2", tmp_path / "p.safetensors")),
        ],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert steady(again) == steady(first)
    assert steady(json.loads(fresh.stdout)) == steady(first)


@pytest.mark.parametrize("kind", ["sparse", "random", "trained"])
def test_the_record_names_the_backbone_that_the_trial_started_from(trial, folders, kind) -> None:
    """Also where nothing is frozen: the digest of a recipe is the same in every record, whatever training did."""
    digests = set()
    for config in (trial(backbone={"kind": kind}), trial(backbone={"kind": kind}, learning_rate=0.001)):
        digests.add(run_trial(config, **folders)["digests"]["backbone"])
        digests.add(build(config.recipe).digest)
    assert len(digests) == 1


def test_a_moved_frozen_tensor_makes_no_record(trial, folders, monkeypatch) -> None:
    def nudge(config, model, *rest):
        model.attention.query[0, 0, 0, 0] += 1e-6

    monkeypatch.setattr("fut.trial.train", nudge)
    with pytest.raises(RuntimeError, match="moved"):
        run_trial(trial(), **folders)


def test_a_program_gives_back_what_was_measured(trial, folders) -> None:
    config = trial()
    record = run_trial(config, **folders)
    backbone = ensure_backbone(config.recipe, folders["backbones"])
    model = Transformer(config, backbone)
    install(model, load_program(folders["program"], backbone.digest))
    arrays = config.task.generate()
    examples = config.task.examples(arrays, 1, 2, 0)["test"]
    with torch.no_grad():
        assert (
            config.task.measure(model(examples.inputs), examples.labels)["accuracy"]
            == record["result"]["test_accuracy"]
        )


def test_a_program_is_refused_on_another_backbone_when_damaged_and_when_missing(trial, folders) -> None:
    run_trial(trial(), **folders)
    path = folders["program"]
    other = ensure_backbone(trial(seed=1).recipe, folders["backbones"])
    own = ensure_backbone(trial().recipe, folders["backbones"])
    with pytest.raises(ProgramError, match="made for the backbone"):
        load_program(path, other.digest)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ProgramError, match=r"program\.safetensors.*digest"):
        load_program(path, own.digest)
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ProgramError, match=r"program\.safetensors"):
        load_program(path, own.digest)
    path.unlink()
    with pytest.raises(ProgramError, match="no such program"):
        load_program(path, own.digest)


def test_a_program_of_other_shapes_is_refused(trial, folders) -> None:
    model = Transformer(trial(), ensure_backbone(trial().recipe, folders["backbones"]))
    with pytest.raises(ProgramError, match="the model trains"):
        install(model, {"token_embedding": torch.zeros(2, 2)})


def test_a_damaged_dataset_and_backbone_are_named_and_made_again(trial, folders) -> None:
    config = trial()
    first = run_trial(config, **folders)
    for folder in (folders["datasets"], folders["backbones"]):
        path = next(folder.glob("*.safetensors"))
        path.write_bytes(path.read_bytes()[:-3])
        with pytest.warns(UserWarning, match=path.name):
            again = run_trial(config, **folders)
        assert steady(again) == steady(first)
