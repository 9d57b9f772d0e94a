"""The stage of the tables: exactly the studies that are run, every trial accounted for, contradictions refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import analysis
from analysis import schema
from fut.config import TrialConfig
from fut.files import save_arrays
from fut.record import SCHEMA_VERSION
from fut.theory import sufficient_width
from fut.trial import run_trial
from pipeline.store import Store
from pipeline.tables import METRICS, StudyCell, TablesError, build_tables, main, trial_row
from pipeline.workspace import Workspace

Edit = Callable[[TrialConfig, dict[str, Any]], None]


def put(store: Store, trial: TrialConfig, edit: Edit = lambda trial, record: None) -> None:
    """Write a full record of a trial that was never trained, and its program."""
    save_arrays(store.program_path(trial.id), {"embedding": np.zeros((1, 1), np.float32)}, {"trial": trial.id})
    digests = {
        "data": "d0",
        "backbone": f"b-{trial.recipe.id}",
        "code": trial.code,
        "dataset_id": trial.dataset_id,
        "backbone_id": trial.recipe.id,
        "program": json.loads(store.program_path(trial.id).with_suffix(".json").read_text())["digest"],
    }
    record = {
        "schema_version": SCHEMA_VERSION,
        "trial": trial.id,
        "config": trial.canonical(),
        "recipe": trial.recipe.model_dump(),
        "references": {"reference_majority": 0.25, "reference_of_a_new_task": 0.3},
        "result": {
            "val_accuracy": 0.9,
            "test_accuracy": 0.8,
            "val_nmse": None,
            "nmse": None,
            "agreement": None,
            "stop_reason": "budget",
            "stop_detail": "",
            "steps": 100,
            "epochs": 2,
            "train_seconds": 1.5,
            "trainable_parameters": 10,
            "frozen_parameters": 20,
            "margin": None,
            "condition_number": None,
            "relative_error": None,
        },
        "epochs": [
            {
                "epoch": epoch,
                "step": 50 * epoch,
                "learning_rate": 0.01,
                "train_loss": 1.0,
                "val_loss": 1.0,
                "val_accuracy": 0.9,
                "val_nmse": None,
                "seconds": 0.7,
            }
            for epoch in (1, 2)
        ],
        "digests": digests,
        "environment": {
            "fut": "0",
            "python": "3",
            "torch": "2",
            "lightning": "2",
            "numpy": "2",
            "host": "here",
            "platform": "p",
            "cpus": 2,
            "threads": 1,
            "accelerator": "cpu",
            "started": "2026-01-01T00:00",
        },
    }
    edit(trial, record)
    store.write(record)


def complete(workspace: Workspace, study: str, missing: dict[str, str] | None = None) -> None:
    """The completion file of a study's sweep."""
    missing = missing or {}
    cells = [
        {"cell": cell.id, "criterion_value": 0.99, "trials": [trial.id for trial in cell.trials]}
        for cell in workspace.params.cells(study)
    ]
    path = workspace.sweep(study)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps(
            {
                "study": study,
                "cells": cells,
                "missing": [{"trial": trial, "reason": reason} for trial, reason in missing.items()],
            }
        )
    )


@pytest.fixture
def filled(tiny: Path) -> Workspace:
    """Both studies of the tiny configuration, complete."""
    workspace = Workspace.open(tiny)
    workspace.store.create()
    for study in workspace.params.studies:
        for cell in workspace.params.cells(study):
            for trial in cell.trials:
                put(workspace.store, trial)
        complete(workspace, study)
    return workspace


def trials_of(workspace: Workspace, study: str) -> list[TrialConfig]:
    return [trial for cell in workspace.params.cells(study) for trial in cell.trials]


def test_tables_hold_exactly_the_studies_that_are_run(filled: Workspace, tiny: Path) -> None:
    both = Workspace.open(tiny, run=["tiny", "other"])
    build_tables(both)
    trials = analysis.load("trials", both.tables)
    assert trials["study"].value_counts().to_dict() == {"tiny": 4, "other": 1}
    assert set(trials["trial"]) == {trial.id for study in ("tiny", "other") for trial in trials_of(both, study)}
    build_tables(filled)  # `other` dropped from run: its rows go, though its records and completion file stay
    assert set(analysis.load("trials", filled.tables)["study"]) == {"tiny"}
    assert set(analysis.load("curves", filled.tables)["study"]) == {"tiny"}
    assert len(analysis.load("epochs", filled.tables)) == 8
    assert list(json.loads(filled.metrics.read_text())) == ["tiny"]


def test_every_trial_of_a_cell_shares_it_and_cells_of_a_curve_differ_in_width(filled: Workspace) -> None:
    build_tables(filled)
    trials, curves = analysis.load("trials", filled.tables), analysis.load("curves", filled.tables)
    cells = {cell.id: cell for cell in filled.params.cells("tiny")}
    for row in trials.itertuples():
        assert row.trial in {trial.id for trial in cells[row.cell].trials}
        assert row.width == cells[row.cell].first.width
    assert sorted(curves["width"]) == [8, 12] and curves["curve"].nunique() == 1 and curves["cell"].nunique() == 2
    assert curves["n"].tolist() == [2, 2] and curves["mean"].tolist() == pytest.approx([0.8, 0.8])


def test_a_gain_of_an_mlp_that_is_off_makes_no_other_curve(filled: Workspace) -> None:
    """Two studies may share a trial, which is recorded as the first of them writes it."""
    narrow, wide = {trial.width: trial for trial in trials_of(filled, "tiny")}.values()
    gained = narrow.model_copy(update={"backbone": narrow.backbone.model_copy(update={"mlp_gain": 0.1})})
    assert gained.canonical() != narrow.canonical() and gained.id == narrow.id
    put(filled.store, gained)
    rows = [trial_row(filled.store.read(trial.id), StudyCell("s", "c", 0.99, [trial.id])) for trial in (narrow, wide)]
    assert rows[0]["curve"] == rows[1]["curve"]


def test_a_record_as_a_row(filled: Workspace) -> None:
    build_tables(filled)
    row = analysis.load("trials", filled.tables).iloc[0]
    expected = {
        "task": "khop",
        "hops": 1,
        "length": 8,
        "out_dim": 4,
        "backbone": "random",
        "values": "full",
        "qk_dim": 4,
        "components": "attention",
        "residual": False,
        "method": "learned",
        "init": "random",
        "criterion_metric": "test_accuracy",
        "criterion_value": 0.99,
        "training_steps": 100,
        "reference_majority": 0.25,
        "host": "here",
    }
    assert {name: row[name] for name in expected} == expected
    assert json.loads(row["references"])["reference_of_a_new_task"] == 0.3  # a new task needs no new column
    assert json.loads(row["task_parameters"])["train_size"] == 400


def test_a_trial_of_two_studies_has_a_row_in_each_and_its_epochs_once(tmp_path: Path, tiny: Path) -> None:
    text = tiny.read_text()
    study = text.split("studies:\n")[1].split("  other:")[0]
    tiny.write_text(text + study.replace("tiny:", "twin:"))
    workspace = Workspace.open(tiny, run=["tiny", "twin"])
    workspace.store.create()
    for trial in trials_of(workspace, "tiny"):
        put(workspace.store, trial)
    complete(workspace, "tiny")
    complete(workspace, "twin")
    build_tables(workspace)
    trials = analysis.load("trials", workspace.tables)
    assert len(trials) == 8 and trials["trial"].nunique() == 4 and len(analysis.load("epochs", workspace.tables)) == 8


def test_expected_trials_without_a_record_are_failures_with_their_reason(tiny: Path) -> None:
    workspace = Workspace.open(tiny)
    workspace.store.create()
    first, other, second, another = trials_of(workspace, "tiny")  # two cells of two seeds: one of each is lost
    for trial in (other, another):
        put(workspace.store, trial)
    workspace.store.write_failure(first.id, "tiny", first.canonical(), ValueError("no memory"), "Traceback …")
    workspace.store.write_failure("f" * 64, "elsewhere", {}, ValueError("not of this run"), "")
    complete(workspace, "tiny", {first.id: "ValueError: no memory", second.id: "its worker was lost"})
    build_tables(workspace)
    failures = analysis.load("failures", workspace.tables).set_index("trial")
    assert set(failures.index) == {first.id, second.id}
    assert failures.loc[first.id, ["reason", "error", "traceback"]].tolist() == [
        "failed",
        "ValueError: no memory",
        "Traceback …",
    ]
    assert failures.loc[second.id, ["reason", "error"]].tolist() == ["missing", "its worker was lost"]
    assert json.loads(failures.loc[first.id, "config"]) == first.canonical()
    curves = analysis.load("curves", workspace.tables)
    assert len(analysis.load("trials", workspace.tables)) == 2
    assert curves["n_missing"].tolist() == curves["n"].tolist() == [1, 1]
    assert json.loads(workspace.metrics.read_text())["tiny"]["failures"] == 2


@pytest.mark.parametrize("damage", ["lost", "cut"])
def test_a_finished_trial_that_is_gone_is_refused_with_what_to_run(
    filled: Workspace, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = filled.store.record_path(trials_of(filled, "tiny")[0].id)
    path.unlink() if damage == "lost" else path.write_text(path.read_text()[:100])
    with pytest.raises(SystemExit) as ended:
        main(filled.params_path)
    error = capsys.readouterr().err
    assert ended.value.code == 1 and str(path) in error and "--force sweep@tiny" in error
    assert not filled.tables.exists() and not filled.metrics.exists()


def test_a_study_that_was_not_run_is_named(filled: Workspace) -> None:
    filled.sweep("tiny").unlink()
    with pytest.raises(TablesError, match="study tiny has not been run"):
        build_tables(filled)
    filled.sweep("tiny").write_text('{"cells": [{}]}')
    with pytest.raises(TablesError, match=r"tiny.json is no completion file.*sweep@tiny"):
        build_tables(filled)


@pytest.mark.parametrize(("part", "named"), [("data", "dataset_id"), ("backbone", "backbone_id")])
def test_records_of_one_recipe_with_other_contents_are_refused_and_both_named(
    filled: Workspace, part: str, named: str
) -> None:
    def edit(trial: TrialConfig, record: dict[str, Any]) -> None:
        if part == "backbone":  # two seeds have two backbones; let the second claim the first's recipe
            record["digests"][named] = first.recipe.id
        record["digests"][part] = "another"

    first, second, *_ = trials_of(filled, "tiny")
    put(filled.store, second, edit)
    with pytest.raises(TablesError, match=f"the {part} of recipe") as refused:
        build_tables(filled)
    assert first.id in str(refused.value) and second.id in str(refused.value)
    assert not filled.tables.exists()


def test_metrics_are_small_numbers_without_nan(filled: Workspace) -> None:
    def diverge(trial: TrialConfig, record: dict[str, Any]) -> None:
        record["result"] |= {"val_accuracy": None, "test_accuracy": None, "stop_reason": "diverged"}

    for trial in filled.params.cells("tiny")[0].trials:
        put(filled.store, trial, diverge)
    build_tables(filled)
    text = filled.metrics.read_text()
    assert "NaN" not in text
    assert json.loads(text)["tiny"] == {
        "trials": 4,
        "failures": 0,
        "cells": 2,
        "share_meeting_criterion": 0.0,
        "best_test_accuracy_khop1_random": 0.8,
        "worst_test_accuracy_khop1_random": 0.8,
    }


def test_metrics_lose_no_task(tiny: Path) -> None:
    def fit(trial: TrialConfig, record: dict[str, Any]) -> None:
        error = trial.width / 1000
        record["result"] |= {"val_accuracy": None, "test_accuracy": None, "val_nmse": error, "nmse": error}

    khop = "task: {name: khop, length: 8, train_size: 400, val_size: 50, test_size: 50}"
    tiny.write_text(tiny.read_text().replace(khop, "task: {name: simulate}").replace("qk_dim: 4", "qk_dim: 2"))
    workspace = Workspace.open(tiny)
    workspace.store.create()
    for trial in trials_of(workspace, "tiny"):
        put(workspace.store, trial, fit)
    complete(workspace, "tiny")
    build_tables(workspace)
    found = json.loads(workspace.metrics.read_text())["tiny"]
    assert found["best_nmse_simulate_random"] == 0.008 and found["worst_nmse_simulate_random"] == 0.012


def test_a_sweep_leaves_the_completion_file_that_the_tables_read(filled: Workspace) -> None:
    from pipeline.sweep import run_sweep

    filled.sweep("tiny").unlink()
    assert run_sweep(filled, "tiny", Console(quiet=True)) == 0  # all is in the store: nothing is trained
    build_tables(filled)
    curves = analysis.load("curves", filled.tables)
    assert len(curves) == 2 and curves["criterion_value"].tolist() == [0.99, 0.99]


SHORT = {"steps": 2, "steps_per_epoch": 1, "warmup_steps": 1, "batch_size": 4}
REAL = {
    "dyck": {
        "task": {"name": "dyck", "max_length": 12, "train_size": 60, "val_size": 30, "test_size": 30},
        "backbone": {"kind": "sparse"},
        "components": "residual+layernorm+mlp",
        "width": 20,
    },
    "simulate": {
        "task": {"name": "simulate", "train_size": 60, "val_size": 30, "test_size": 30},
        "backbone": {"kind": "random"},
        "width": 8,
    },
}


def test_the_record_of_a_compiled_trial_says_what_the_compiler_found_and_leaves_training_out(tmp_path: Path) -> None:
    config = TrialConfig(**REAL["simulate"], heads=2, layers=1, method="compiled", seed=0)
    record = run_trial(config, tmp_path / "data", tmp_path / "backbones", tmp_path / "program.safetensors")
    row = trial_row(record, StudyCell("real", "cell", 0.01, [config.id]))
    frame = schema.to_frame(schema.to_table("trials", [row]))
    assert frame.loc[0, ["method", "stop_reason", "steps", "epochs"]].tolist() == ["compiled", "compiled", 0, 0]
    untrained = ["init", "init_noise", "learning_rate", "training_steps", "batch_size", "weight_decay", "solved_at"]
    assert frame[untrained].isna().all(axis=None)
    assert frame.loc[0, "nmse"] < 1e-12 and frame.loc[0, "relative_error"] < 1e-8  # at N_EU = 8
    assert frame.loc[0, "margin"] > 0 and frame.loc[0, "condition_number"] >= 1


def test_the_row_of_a_pretrained_backbone_names_its_source(tmp_path: Path) -> None:
    real = REAL["dyck"]
    config = TrialConfig(
        **{**real, "backbone": {"kind": "pretrained"}, "components": "residual"},
        source={"task": real["task"], "training": SHORT, "learning_rate": 0.001},
        **{"heads": 2, "layers": 1, "training": SHORT, "learning_rate": 0.01, "seed": 0},
    )
    source, left = config.source_trial, tmp_path / "source.safetensors"
    assert source is not None
    run_trial(source, tmp_path / "data", tmp_path / "backbones", left)
    program = tmp_path / "program.safetensors"
    record = run_trial(config, tmp_path / "data", tmp_path / "backbones", program, programs=lambda trial: left)
    row = trial_row(record, StudyCell("real", "cell", 0.99, [config.id]))
    (found,) = schema.to_rows(schema.to_frame(schema.to_table("trials", [row])))
    assert (found["backbone"], found["source_task"], found["source_trial"]) == ("pretrained", "dyck", source.id)
    assert json.loads(found["source"])["learning_rate"] == 0.001


@pytest.mark.parametrize("task", REAL)
def test_the_record_of_a_real_trial_fills_every_column(task: str, tmp_path: Path) -> None:
    config = TrialConfig(**REAL[task], heads=2, layers=1, training=SHORT, learning_rate=0.01, seed=0)
    record = run_trial(config, tmp_path / "data", tmp_path / "backbones", tmp_path / "program.safetensors")
    row = trial_row(record, StudyCell("real", "cell", config.task.criterion_value, [config.id]))
    frame = schema.to_frame(schema.to_table("trials", [row]))
    metric = METRICS[config.task.metric]
    assert frame["criterion_metric"].tolist() == [metric] and frame[metric].notna().all()
    assert frame["program_digest"].str.len().tolist() == [64] and frame["epochs"].tolist() == [2]
    simulated = task == "simulate"
    assert frame["sufficient_width"].notna().tolist() == [simulated]
    if simulated:  # H = 2, L = 1, k = p = d = 2: N = 2·2·2 + 2·2 = 12, N_EU = max(8, 2·2) = 8
        assert frame.loc[0, ["sufficient_width", "sufficient_width_compiled", "out_dim"]].tolist() == [12, 8, 2]
        assert sufficient_width(2, 1, 2, 2) == 12
    else:
        assert frame.loc[0, ["mlp", "layout", "leaf_dim"]].tolist() == [True, "attention", record["recipe"]["out_dim"]]
        assert frame["reference_majority"].notna().all() and frame["reference_counting"].notna().all()
