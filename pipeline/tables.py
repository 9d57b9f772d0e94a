"""The stage of the tables: the records of exactly the studies that `run` names, as tables and a few metrics."""

import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa

from analysis import schema
from analysis.curves import curves
from fut.digest import canonical_json, digest
from fut.files import write_atomically
from fut.record import Record
from fut.tasks import TASKS
from fut.theory import sufficient_width
from pipeline.command import run_command
from pipeline.store import Store, StoreError
from pipeline.workspace import PARAMS, ParamsOption, Workspace, WorkspaceOption

SHOWN = 10  # trials that are named one by one
METRICS = {"accuracy": "test_accuracy", "nmse": "nmse"}  # what is reported, by the metric of the task
_CONFIGURED = ("method", "trainable", "components", "heads", "layers", "width", "seed")
_TASK = ("hops", "alphabet", "length", "min_length", "max_length", "target_dim", "target_qk_dim", "target_qk_gain")
_RECIPE = ("control", "distribution", "layout", "values", "qk_dim", "tied", "qk_gain", "value_gain", "mlp_gain")
_TRAINING = ("batch_size", "steps_per_epoch", "warmup_steps", "weight_decay", "solved_at")
_VERSIONS = ("python", "torch", "lightning", "numpy", "fut")
_ENVIRONMENT = ("host", "platform", "threads", "accelerator", "started")


class StudyCell(NamedTuple):
    """What the completion file of a study's sweep says of one cell."""

    study: str
    cell: str
    criterion_value: float
    trials: list[str]


class Sweep(NamedTuple):
    """The completion file of a study's sweep."""

    cells: list[StudyCell]
    missing: dict[str, str]  # trial → why it has no record


class TablesError(Exception):
    """Trials that cannot be made into tables; the message says which, and what to do."""


def read_sweep(workspace: Workspace, study: str) -> Sweep:
    """The completion file of a study.

    Raises:
        TablesError: there is none, or it is of another form.
    """
    path, again = workspace.sweep(study), f"run `dvc repro --single-item --force sweep@{study}` to make it again"
    try:
        content = json.loads(path.read_bytes())
        cells = [
            StudyCell(study, cell["cell"], float(cell["criterion_value"]), list(cell["trials"]))
            for cell in content["cells"]
        ]
        return Sweep(cells, {entry["trial"]: entry["reason"] for entry in content["missing"]})
    except FileNotFoundError as error:
        raise TablesError(f"{path} does not exist, so study {study} has not been run: run `dvc repro`") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TablesError(f"{path} is no completion file of a sweep ({error!r}): {again}") from error


def trial_row(record: Record, cell: StudyCell) -> dict[str, Any]:
    """A record as a row of the table of trials, in the cell of a study."""
    config, recipe, result = record["config"], record["recipe"], record["result"]
    digests, environment, references = record["digests"], record["environment"], record["references"]
    task = TASKS[config["task"]["name"]].model_validate(config["task"])
    source, plan = config["source"], config.get("training", {})  # no plan where nothing was trained
    switches = config["components"].split("+")
    backbone = {  # a gain of an MLP that is off makes no other curve
        name: value for name, value in config["backbone"].items() if name != "mlp_gain" or "mlp" in switches
    }
    curve = {name: value for name, value in config.items() if name not in ("seed", "learning_rate", "width")}
    curve["backbone"] = backbone
    known = [name for name in schema.TRIALS.names if name.startswith("reference_")]
    return {
        "trial": record["trial"],
        "study": cell.study,
        "cell": cell.cell,
        "curve": digest(curve),
        "task": task.name,
        "out_dim": task.out_dim,
        "task_parameters": canonical_json(config["task"]),
        **{name: config["task"].get(name) for name in _TASK},
        "backbone": recipe["kind"],
        "source_task": source["task"]["name"] if source else None,
        "source": canonical_json(source) if source else None,
        "leaf_dim": recipe["out_dim"],
        **{name: recipe[name] for name in _RECIPE},
        **{name: config[name] for name in _CONFIGURED},
        **{name: name in switches for name in ("residual", "layernorm", "mlp")},
        "init": config.get("init"),
        "init_noise": config["init_noise"] if config.get("init") == "compiled" else None,
        "learning_rate": config.get("learning_rate"),
        "training_steps": plan.get("steps"),
        **{name: plan.get(name) for name in _TRAINING},
        **_sufficient_widths(record, task.out_dim),
        "criterion_metric": METRICS[task.metric],
        "criterion_value": cell.criterion_value,
        **{name: references.get(name) for name in known},
        "references": canonical_json(references),
        **result,
        "dataset_id": digests["dataset_id"],
        "backbone_id": digests["backbone_id"],
        "source_trial": recipe["source"],
        **{f"{name}_digest": digests.get(name) for name in ("data", "backbone", "code", "program")},
        **{f"{name}_version": environment[name] for name in _VERSIONS},
        **{name: environment[name] for name in _ENVIRONMENT},
    }


def _sufficient_widths(record: Record, out_dim: int) -> dict[str, int | None]:
    """N and N_EU of a record with a target; k is the backbone's, as the theory counts it."""
    recipe, target_dim = record["recipe"], record["config"]["task"].get("target_dim")
    widths: dict[str, int | None] = {"sufficient_width": None, "sufficient_width_compiled": None}
    if target_dim is not None:
        shape = {"residual": "residual" in record["config"]["components"].split("+"), "tied": recipe["tied"]}
        sizes = recipe["heads"], recipe["layers"], recipe["qk_dim"], out_dim
        widths["sufficient_width"] = sufficient_width(*sizes, **shape)
        widths["sufficient_width_compiled"] = sufficient_width(
            *sizes, **shape, unembedding="compiled", target_dim=target_dim
        )
    return widths


def disagreements(records: Iterable[Record]) -> list[str]:
    """Recipes whose records name different contents, which would mean that their trials cannot be compared.

    Returns:
        A line for each such recipe, naming two of its trials and their digests.
    """
    contents: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)  # (part, recipe) → digest → first trial
    for record in records:
        for part, recipe in (("data", "dataset_id"), ("backbone", "backbone_id")):
            digests = record["digests"]
            contents[part, digests[recipe]].setdefault(digests[part], record["trial"])
    lines = []
    for (part, recipe), found in sorted(contents.items()):
        if len(found) > 1:
            (first, one), (second, other) = list(found.items())[:2]
            lines.append(
                f"the {part} of recipe {recipe} differ between trials: {one} has digest {first[:16]}…, "
                f"{other} has {second[:16]}…"
            )
    return lines


def gather(store: Store, sweeps: Iterable[Sweep]) -> tuple[dict[str, Record], list[dict[str, Any]], list[str]]:
    """The records of all expected trials.

    Returns:
        The records by trial; the rows of `failures` for those that have none; and, of these, a line for each that its
        sweep had finished: lost or damaged since.
    """
    records: dict[str, Record] = {}
    failed, lost = [], []
    noted = store.failures()
    for sweep in sweeps:
        for cell in sweep.cells:
            for trial in cell.trials:
                try:
                    records[trial] = records.get(trial) or store.read(trial)
                except StoreError as error:
                    failed.append(_failure(trial, cell, noted.get(trial), sweep.missing.get(trial, str(error))))
                    if trial not in sweep.missing:
                        lost.append(f"{cell.study}: {error}")
    return records, failed, lost


def _failure(trial: str, cell: StudyCell, note: dict[str, Any] | None, reason: str) -> dict[str, Any]:
    note = note or {}
    message = note.get("message") or ""
    return {
        "study": cell.study,
        "cell": cell.cell,
        "trial": trial,
        "reason": "failed" if note else "missing",
        "error": f"{note['error']}: {message}".removesuffix(": ") if note else reason,
        "traceback": note.get("traceback"),
        "when": note.get("time"),
        "config": canonical_json(note["config"]) if note.get("config") else None,
    }


def epoch_rows(records: Iterable[Record]) -> list[dict[str, Any]]:
    """The evaluations of some records, as rows of the table of epochs."""
    names = [name for name in schema.EPOCHS.names if name not in ("schema_version", "trial")]
    return [
        {"trial": record["trial"], **{name: epoch.get(name) for name in names}}
        for record in records
        for epoch in record["epochs"]
    ]


def transfer_table(workspace: Workspace) -> pa.Table:
    """The table `transfer`: what its stage found, and no rows where that has not run, as in `pipeline.quick`.

    Raises:
        TablesError: its file is of another form.
    """
    path = workspace.transfer
    try:
        rows = json.loads(path.read_bytes())["rows"] if path.exists() else []
        return schema.to_table("transfer", rows)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        again = "run `dvc repro --single-item --force transfer` to make it again"
        raise TablesError(f"{path} is no file of the stage transfer ({error!r}): {again}") from error


def metrics(trials: pd.DataFrame, cells: pd.DataFrame, failures: pd.DataFrame) -> dict[str, Any]:
    """A few numbers a study, small enough for `dvc metrics show`; null where there is none."""
    found: dict[str, Any] = {}
    for study, group in cells.groupby("study", sort=True):
        numbers: dict[str, Any] = {
            "trials": int((trials["study"] == study).sum()),
            "failures": int((failures["study"] == study).sum()),
            "cells": len(group),
            "share_meeting_criterion": round(float(group["meets_criterion"].mean()), 4),
        }
        tasks = group["task"] + ["" if pd.isna(hops) else str(hops) for hops in group["hops"]]
        kinds = group["backbone"] + group["method"].map({"learned": "", "compiled": "_compiled"})
        for keys, part in group.groupby([group["criterion_metric"], tasks, kinds]):
            best, worst = part["mean"].max(), part["mean"].min()
            if keys[0] == "nmse":
                best, worst = worst, best
            label = "_".join(map(str, keys))
            numbers |= {f"best_{label}": _plain(best), f"worst_{label}": _plain(worst)}
        found[str(study)] = numbers
    return found


def _plain(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None


def build_tables(workspace: Workspace) -> None:
    """Write all tables and the metrics of the studies to run, and say what was written.

    Raises:
        TablesError: a study that has not been run, records lost since, or records that contradict each other.
    """
    sweeps = [read_sweep(workspace, study) for study in workspace.params.run]
    records, failed, lost = gather(workspace.store, sweeps)
    if lost:
        more = [f"… and {len(lost) - SHOWN} more"] if len(lost) > SHOWN else []
        studies = " ".join(f"sweep@{name}" for name in dict.fromkeys(line.split(":")[0] for line in lost))
        raise TablesError(
            "\n  ".join(
                [
                    f"{len(lost)} trials that were finished cannot be read from the store any more:",
                    *lost[:SHOWN],
                    *more,
                    f"to run these again: dvc repro --single-item --force {studies}, then dvc repro",
                ]
            )
        )
    if lines := disagreements(records.values()):
        raise TablesError(
            "\n  ".join(
                [
                    "records of one recipe disagree on what it makes, so they must not stand in one table:",
                    *lines,
                    "were they made on different machines, or with other versions? Move either kind out of the store",
                ]
            )
        )
    found = [
        trial_row(records[trial], cell)
        for sweep in sweeps
        for cell in sweep.cells
        for trial in cell.trials
        if trial in records
    ]
    tables = {
        "trials": schema.to_table("trials", found),
        "epochs": schema.to_table("epochs", epoch_rows(records.values())),
        "failures": schema.to_table("failures", failed),
        "transfer": transfer_table(workspace),
    }
    trials, failures = schema.to_frame(tables["trials"]), schema.to_frame(tables["failures"])
    cells = curves(trials, failures)
    tables["curves"] = schema.to_table("curves", schema.to_rows(cells.drop(columns="schema_version")))
    for table in tables.values():
        schema.write(table, workspace.tables)
    text = json.dumps(metrics(trials, cells, failures), indent=1, allow_nan=False)
    write_atomically(workspace.metrics, f"{text}\n".encode())
    counts = ", ".join(f"{name} {table.num_rows}" for name, table in tables.items())
    print(f"tables: {counts} rows ({workspace.tables})")


def main(params: ParamsOption = PARAMS, workspace: WorkspaceOption = None) -> None:
    """Gather the trials of the studies of `run` into tables."""
    opened = Workspace.open(params, workspace)
    try:
        build_tables(opened)
    except (TablesError, schema.TableError, StoreError) as error:
        print(f"tables: {error}", file=sys.stderr)
        raise SystemExit(1) from error


if __name__ == "__main__":
    run_command(main)
