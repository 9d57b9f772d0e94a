"""Trials whose program is compiled: as the result, or as the start of training."""

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from fut.backbones import build
from fut.backbones.files import ensure_backbone
from fut.compiler import Target, compile_program
from fut.config import TrialConfig
from fut.digest import reached
from fut.files import load_arrays
from fut.stack import stack_of
from fut.starts import STARTS
from fut.theory import sufficient_width
from fut.transformer import Transformer
from fut.trial import run_trial
from tests.fut.conftest import TRAINING

SIZES = {"train_size": 200, "val_size": 50, "test_size": 50, "length": 6}
ENOUGH = sufficient_width(2, 2, 2, 2, unembedding="compiled", target_dim=2)


def config(**fields) -> TrialConfig:
    return TrialConfig.model_validate(
        {
            "task": {"name": "simulate", "target_dim": 2, **SIZES},
            "backbone": {"kind": "random"},
            "heads": 2,
            "layers": 2,
            "width": ENOUGH,
            "seed": 0,
            "training": TRAINING,
            **fields,
        }
    )


@pytest.mark.parametrize(
    "fields, enough",
    [
        ({}, ENOUGH),
        ({"trainable": "embedding"}, sufficient_width(2, 2, 2, 2)),
        ({"backbone": {"kind": "random", "tied": True}}, ENOUGH),
        ({"backbone": {"kind": "random", "qk_dim": 3}}, sufficient_width(2, 2, 3, 2, False, False, "compiled", 2)),
    ],
)
def test_a_compiled_trial_is_exact_from_the_sufficient_width_on_and_not_one_below(fields, enough, folders) -> None:
    """The targets are float32 on disk: an NMSE of 1e-14 is their rounding."""
    at, below = (
        run_trial(config(**fields, method="compiled", width=width), **folders)["result"]
        for width in (enough, enough - 1)
    )
    assert at["nmse"] < 1e-13 and at["agreement"] == 1 and at["relative_error"] < 1e-8 and at["margin"] > 0
    assert below["nmse"] > 1e-4 and below["relative_error"] > 1e-3
    assert below["margin"] == 0 and below["condition_number"] is None
    assert at["stop_reason"] == "compiled" and at["stop_detail"].startswith("exact")
    assert (at["steps"], at["epochs"]) == (0, 0)


def test_a_compiled_control_is_not_exact_at_twice_the_width(folders) -> None:
    control = {"kind": "control", "control": "identical_heads"}
    assert run_trial(config(method="compiled", backbone=control, width=2 * ENOUGH), **folders)["result"]["nmse"] > 1e-3


def test_what_is_measured_is_what_the_saved_program_does(folders) -> None:
    """In float64, by the compiler's own runner and not by the transformer."""
    trial = config(method="compiled", width=ENOUGH - 1)
    record = run_trial(trial, **folders)
    backbone = ensure_backbone(trial.recipe, folders["backbones"])
    arrays, card = load_arrays(folders["program"])
    assert card["trial"] == trial.id and arrays["token_embedding"].dtype == np.float64
    inputs = trial.task.generate()["test/inputs"].astype(np.float64)
    target = Target(**vars(trial.task.draw_target(2, 2, 0)))
    right = target(inputs)
    found = stack_of(backbone).run(inputs @ arrays["token_embedding"], False) @ arrays["unembedding"]
    assert record["result"]["nmse"] == pytest.approx(np.mean((found - right) ** 2) / right.var(), rel=1e-5)


def test_training_plays_no_part_in_a_compiled_trial() -> None:
    one, other = config(method="compiled"), config(method="compiled", learning_rate=0.5, training={"steps": 900})
    assert one.id == other.id and TrialConfig.model_validate(one.canonical()).id == one.id
    assert one.id != config(learning_rate=0.5).id


def test_training_from_the_compiled_program_starts_where_the_compiler_ended(folders) -> None:
    """One step at a learning rate of nearly nothing leaves it what it was, but for float32."""
    plan = {**TRAINING, "steps": 1, "steps_per_epoch": 1, "warmup_steps": 0}
    still = run_trial(config(init="compiled", learning_rate=1e-12, training=plan), **folders)["result"]
    scratch = run_trial(config(learning_rate=1e-12, training=plan), **folders)["result"]
    assert still["nmse"] < 1e-6 and still["relative_error"] < 1e-8 and still["steps"] == 1
    assert scratch["nmse"] > 0.1 and scratch["relative_error"] is None


def test_noise_has_the_scale_that_it_says_and_the_seed_decides_it() -> None:
    def started(noise: float, seed: int = 0) -> dict[str, torch.Tensor]:
        trial = config(init="compiled", init_noise=noise, learning_rate=0.01, seed=seed, width=400)
        backbone = build(trial.recipe)
        model = Transformer(trial, backbone).double()
        STARTS["compiled"](trial, backbone, model)
        return model.program()

    plain, noisy, again = started(0.0), started(0.5), started(0.5)
    for name, tensor in plain.items():
        noise = noisy[name] - tensor
        assert torch.equal(noisy[name], again[name])
        assert float(noise.std()) == pytest.approx(0.5 * float(tensor.square().mean().sqrt()), rel=0.15)


def test_only_the_embedding_starts_compiled_where_only_it_trains() -> None:
    trial = config(init="compiled", trainable="embedding", learning_rate=0.01, width=32)
    backbone = build(trial.recipe)
    model = Transformer(trial, backbone).double()
    before = model.unembedding.clone()
    STARTS["compiled"](trial, backbone, model)
    program, _ = compile_program(Target(**vars(trial.task.draw_target(2, 2, 0))), backbone)
    assert torch.equal(model.unembedding, before)
    np.testing.assert_array_equal(model.token_embedding.detach().numpy(), program.embedding)


def test_only_compiled_starts_depend_on_the_compiler() -> None:
    """Else an edit of the compiler would train everything again."""
    assert "fut.compiler" not in reached(["fut.trial", "fut.tasks.simulate", "fut.backbones.random"])
    assert "fut.compiler" in reached(["fut.starts.compiled"])
    codes = {config(**fields).code for fields in ({"learning_rate": 0.1}, {"init": "compiled", "learning_rate": 0.1})}
    assert len(codes) == 2
    assert config(method="compiled").code == config(init="compiled", learning_rate=0.1).code


@pytest.mark.parametrize(
    "fields, says",
    [
        ({}, r"learning_rate\n  Value error, missing: add it"),
        ({"method": "compiled", "components": "residual"}, "method: compiled: the target has no residual"),
        ({"method": "compiled", "trainable": "unembedding"}, "trainable is unembedding"),
        ({"method": "compiled", "backbone": {"kind": "random", "qk_dim": 1}}, "qk_dim, 1, is below the target's, 2"),
        ({"method": "compiled", "task": {"name": "khop"}, "backbone": {"kind": "sparse"}}, "khop has no target"),
        ({"method": "compiled", "backbone": {"kind": "trained"}}, "trainable is all"),
        ({"method": "compiled", "init": "compiled"}, "init: nothing is trained"),
        ({"init": "compiled", "learning_rate": 0.1, "components": "mlp"}, "init: compiled: the target has no mlp"),
        ({"init_noise": 0.1, "learning_rate": 0.1}, "init_noise: goes with init: compiled"),
        ({"init": "compiled", "init_noise": -0.1, "learning_rate": 0.1}, "greater than or equal to 0"),
    ],
)
def test_what_cannot_be_compiled_is_refused(fields, says) -> None:
    with pytest.raises(ValidationError, match=says):
        config(**fields)
