"""Run one trial by itself, without Ray, and print its record."""

import json
import os
import re
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from fut.backbones.pretrained import SourceMissing
from fut.config import TrialConfig
from fut.training import Epoch
from fut.trial import run_trial
from pipeline import yamlfile
from pipeline.command import run_command
from pipeline.faults import from_validation, join
from pipeline.limits import excess
from pipeline.params import refuse
from pipeline.sources import Sourced
from pipeline.store import StoreError
from pipeline.workspace import PARAMS, ParamsOption, Workspace, WorkspaceOption

PREFIX = re.compile(r"[0-9a-f]{6,64}")


def find(workspace: Workspace, prefix: str) -> TrialConfig:
    """The configuration of a trial of any study in params, or of the store, by the first letters of its id.

    Raises:
        LookupError: none, or several, begin so.
    """
    known = {
        trial.id: trial
        for name in workspace.params.studies
        for cell in workspace.params.cells(name)
        for trial in cell.trials
    }
    store = workspace.store
    matching = {trial: known[trial] for trial in known if trial.startswith(prefix)}
    for trial in store.ids() - known.keys():
        if trial.startswith(prefix):  # of a study that is gone, or of other code
            matching[trial] = TrialConfig.model_validate(store.read(trial)["config"])
    if len(matching) != 1:
        what = "several trials" if matching else "no trial of params.yaml or the store"
        raise LookupError(f"{what} begin with {prefix}" if matching else f"{what} begins with {prefix}")
    return next(iter(matching.values()))


def parse(text: str) -> TrialConfig:
    """A trial's configuration written as YAML or JSON, or the path of such a file.

    Raises:
        ValueError: with every fault.
    """
    if os.path.isfile(text):  # Path.is_file raises for a text that is too long for a name
        text = Path(text).read_text(encoding="utf-8")
    values, faults = yamlfile.parse(text)
    if faults:
        raise ValueError("\n".join(map(str, faults)))
    if not isinstance(values, dict):
        raise ValueError("a trial is an id, at least its first 6 letters, or a mapping, or a file that holds one")
    point = Sourced(values, "")
    faults = excess(point)
    try:
        trial = TrialConfig.model_validate(point.values)
    except ValidationError as error:
        faults += from_validation(error, TrialConfig, lambda steps, of_key: join("", *steps))
    if faults:
        raise ValueError("\n".join(map(str, faults)))
    return trial


def main(
    trial: Annotated[
        str,
        typer.Argument(
            help="a trial's id, or its first letters; or its configuration, as YAML, JSON or a file of either"
        ),
    ],
    params: ParamsOption = PARAMS,
    workspace: WorkspaceOption = None,
    program: Annotated[
        Path | None, typer.Option(help="where to write the program; default: trial-ID.safetensors")
    ] = None,
) -> None:
    """Run a trial again, whether the store has it or not, and print its record; the store is left alone."""
    opened = Workspace.open(params, workspace)
    try:
        config = find(opened, trial) if PREFIX.fullmatch(trial) else parse(trial)
    except (ValueError, LookupError, StoreError) as error:
        refuse(str(error))

    def say(row: Epoch) -> None:
        metric = row["val_accuracy"] if config.task.metric == "accuracy" else row["val_nmse"]
        typer.echo(
            f"epoch {row['epoch']}: training loss {row['train_loss']}, validation {config.task.metric} {metric}",
            err=True,
        )

    target = program or Path(f"trial-{config.id[:12]}.safetensors")
    try:
        record: dict[str, Any] = run_trial(
            config,
            opened.datasets,
            opened.backbones,
            target.absolute(),
            opened.params.cpus_per_trial,
            opened.params.gpus_per_trial,
            say,
            opened.store.program_path,
        )
    except SourceMissing as error:
        refuse(str(error))
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    run_command(main)
