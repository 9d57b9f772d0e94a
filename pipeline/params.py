"""params.yaml, the one configuration: read once, refused whole with every fault, or good for the whole run."""

import re
import sys
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from pipeline.faults import Fault, from_validation, join, unknown
from pipeline.grid import Cell, GridError, expand
from pipeline.study import Study
from pipeline.yamlfile import read

NAME = re.compile(r"[a-z][a-z0-9_-]*")  # studies name files, DVC stages and W&B groups


def _study_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} names no study; take a small letter, then small letters, digits, - and _")
    return name


def _local_folder(path: str) -> str:
    if "://" in path:
        raise ValueError(f"{path!r} is an address, and the store is a local folder; give its path")
    return path


class ParamsError(Exception):
    """A params.yaml that cannot be used, with every fault."""

    def __init__(self, path: Path, faults: list[Fault]) -> None:
        self.path, self.faults = path, list(dict.fromkeys(faults))
        count = f"{len(self.faults)} faults" if len(self.faults) > 1 else "1 fault"
        super().__init__("\n".join([f"{path} cannot be used: {count}", *(f"  {fault}" for fault in self.faults)]))


class Wandb(BaseModel):
    """Where runs are logged; mode auto means: what WANDB_MODE says, else online with a key, else offline."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    project: str = Field(default="fut", min_length=1)
    mode: Literal["auto", "online", "offline", "disabled"] = "auto"


class Params(BaseModel):
    """The configuration of the pipeline."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    run: list[str] = Field(description="the studies to run")
    store: Annotated[str, AfterValidator(_local_folder)] = Field(
        "store", min_length=1, description="folder of the trial store, relative to this file's"
    )
    cpus_per_trial: int = Field(1, ge=1)
    gpus_per_trial: float = Field(0, ge=0, allow_inf_nan=False)
    ray_address: str = Field("local", min_length=1)
    wandb: Wandb = Wandb()
    studies: dict[Annotated[str, AfterValidator(_study_name)], Study] = Field(description="the grids, by name")

    def cells(self, study: str) -> list[Cell]:
        """The cells of a study, in a stable order.

        Raises:
            KeyError: there is no such study.
            GridError: its grid is impossible; never after `load_params`.
        """
        return expand(study, self.studies[study])

    def with_run(self, names: list[str], place: str = "--run") -> Self:
        """The same configuration with other studies to run.

        Raises:
            ValueError: an unknown study.
        """
        if faults := _run_faults(names, list(self.studies), place):
            raise ValueError("\n".join(map(str, faults)))
        return self.model_copy(update={"run": names})


def load_params(path: Path | str) -> Params:
    """Read and check a params.yaml, every study of it, whether it is run or not.

    Raises:
        ParamsError: with all faults at once, each at its path in the file.
    """
    path = Path(path)
    raw, faults = read(path)
    if raw is None and not faults:
        faults = [Fault("the file", "is empty; give `run` and `studies`")]
    elif raw is not None and not isinstance(raw, dict):
        faults.append(Fault("the file", "is no mapping; give `run: [...]` and `studies: {...}`"))
    if not isinstance(raw, dict):
        raise ParamsError(path, faults)
    params: Params | None = None
    try:
        params = Params.model_validate(raw)
    except ValidationError as error:
        faults += from_validation(error, Params, lambda steps, of_key: join("", *steps))
    faults += _reference_faults(raw)
    for name, study in _good_studies(raw).items():
        try:
            expand(name, study)
        except GridError as error:
            faults += error.faults
    if faults or params is None:
        raise ParamsError(path, faults)
    return params


def load_or_exit(path: Path | str) -> Params:
    """`load_params` for command lines: every fault on standard error and exit status 2, before any work."""
    try:
        return load_params(path)
    except ParamsError as error:
        refuse(str(error))


def refuse(message: str) -> NoReturn:
    """End the program with exit status 2: what it was given cannot be used."""
    print(message, file=sys.stderr)
    raise SystemExit(2)


def _good_studies(raw: dict[str, Any]) -> dict[str, Study]:
    """The studies that are well-formed one by one, so that a fault in one hides none in another's grid."""
    good: dict[str, Study] = {}
    studies = raw.get("studies")
    for name, value in studies.items() if isinstance(studies, dict) else ():
        try:
            good[name] = Study.model_validate(value)
        except ValidationError:
            continue
    return good


def _reference_faults(raw: dict[str, Any]) -> list[Fault]:
    """What is wrong between the parts of a file: studies that are named but not there."""
    run, studies = raw.get("run"), raw.get("studies")
    if studies == {}:
        return [Fault("studies", "is empty; give at least one study")]
    if not isinstance(run, list) or not isinstance(studies, dict):
        return []
    return _run_faults(run, list(studies), "run")


def _run_faults(run: list[Any], known: list[str], place: str) -> list[Fault]:
    if not run:
        return [Fault(place, f"names no study; name at least one of {', '.join(known)}")]
    faults = [
        Fault(join(place, index), unknown("study", name, known))
        for index, name in enumerate(run)
        if isinstance(name, str) and name not in known
    ]
    return faults + [
        Fault(join(place, index), f"study {name!r} is named twice; keep one")
        for index, name in enumerate(run)
        if name in run[:index]
    ]
