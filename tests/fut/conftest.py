"""Trials small enough to run in a second."""

from pathlib import Path

import pytest

from fut.config import TrialConfig

KHOP = {"name": "khop", "hops": 1, "length": 8, "alphabet": 4, "train_size": 300, "val_size": 100, "test_size": 100}
TRAINING = {"steps": 20, "batch_size": 16, "steps_per_epoch": 10, "warmup_steps": 5}


@pytest.fixture
def trial():
    """A function that makes a small trial; keywords replace its fields."""

    def make(**fields) -> TrialConfig:
        return TrialConfig(
            **(
                {
                    "task": KHOP,
                    "backbone": {"kind": "random"},
                    "components": "residual+layernorm",
                    "heads": 1,
                    "layers": 2,
                    "width": 16,
                    "learning_rate": 0.01,
                    "seed": 0,
                    "training": TRAINING,
                }
                | fields
            )
        )

    return make


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    """Where `run_trial` keeps things."""
    return {
        "datasets": tmp_path / "datasets",
        "backbones": tmp_path / "backbones",
        "program": tmp_path / "program.safetensors",
    }
