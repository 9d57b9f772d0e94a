"""Rows of trials with every column filled, to be changed column by column."""

import json
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from analysis import schema

_BLANKS: dict[str, Any] = {"string": "", "int64": 1, "double": 1.0, "bool": False}


@pytest.fixture
def trial() -> Callable[..., dict[str, Any]]:
    """A row of `trials`: a khop trial of a random backbone, with some columns changed."""

    def make(**changes: Any) -> dict[str, Any]:
        row = {field.name: None if field.nullable else _BLANKS[str(field.type)] for field in schema.TRIALS}
        row |= {
            "study": "width",
            "cell": "c0",
            "curve": "k0",
            "task": "khop",
            "hops": 1,
            "out_dim": 4,
            "method": "learned",
            "backbone": "random",
            "distribution": "gaussian",
            "components": "residual+layernorm",
            "residual": True,
            "layernorm": True,
            "heads": 1,
            "layers": 2,
            "width": 16,
            "qk_dim": 8,
            "trainable": "program",
            "learning_rate": 0.01,
            "seed": 0,
            "criterion_metric": "test_accuracy",
            "criterion_value": 0.99,
            "val_accuracy": 0.9,
            "test_accuracy": 0.8,
            "stop_reason": "budget",
            "references": "{}",
        }
        row |= changes
        row.setdefault("trial", "")
        row["trial"] = row["trial"] or f"{row['study']}-{row['cell']}-{row['learning_rate']}-{row['seed']}"
        if not row["task_parameters"]:
            named = {"hops": row["hops"], "target_dim": row["target_dim"]}
            row["task_parameters"] = json.dumps(
                {"name": row["task"]} | {name: value for name, value in named.items() if value is not None}
            )
        return row

    return make


@pytest.fixture
def trials(trial: Callable[..., dict[str, Any]]) -> Callable[..., pd.DataFrame]:
    """A typed frame of trials, one row for each mapping of changed columns."""

    def make(*changes: dict[str, Any]) -> pd.DataFrame:
        return schema.to_frame(schema.to_table("trials", [trial(**change) for change in changes]))

    return make
