"""params.yaml, the one configuration: read once, refused whole with every fault, or good for the whole run."""

import re
import sys
from os.path import normpath
from pathlib import Path, PurePath
from typing import Annotated, Any, ClassVar, Literal, NoReturn, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from fut.transfer import Transfer
from pipeline.faults import Fault, Problems, clip, from_validation, join, unknown
from pipeline.grid import Cell, GridError, expand
from pipeline.limits import too_large
from pipeline.study import Study
from pipeline.yamlfile import read

NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")  # studies name files, DVC stages and W&B groups
ADDRESS = re.compile(r"local|auto|([a-z]+://)?(\[[0-9a-f:]+\]|[^\s:/]+):[0-9]+")
MADE = ("artifacts", "results", "quick")  # folders that DVC and `make clean` delete
SMALLEST_SHARE = 0.0001  # of a GPU, for Ray


def _study_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise ValueError(
            f"{clip(name)!r} names no study; take a small letter, then up to 63 small letters, digits, - and _"
        )
    if name == "transfer":
        raise ValueError("the picture of the stage `transfer` has this name; take another")
    return name


def _no_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    return text


def _local_folder(path: str) -> str:
    if "://" in path:
        raise ValueError(f"{clip(path)!r} is an address, and the store is a local folder; give its path")
    if (first := next(iter(PurePath(normpath(path)).parts), "")) in MADE:
        raise ValueError(f"lies in {first}, which `make clean` deletes; take another folder, such as store")
    try:
        Path(path).expanduser()
    except RuntimeError as error:
        raise ValueError(f"{clip(path)!r} names the home of a user who is not there; write the path out") from error
    return path


def _project(name: str) -> str:
    if odd := sorted(set(name) & set("/\\#?%:")):
        raise ValueError(f"holds {' '.join(odd)}, which W&B allows in no name of a project; leave it out")
    return name


def _address(text: str) -> str:
    if not ADDRESS.fullmatch(text):
        raise ValueError(f"{clip(text)!r} is no address; write local, auto, or the HOST:PORT of a cluster that runs")
    return text


def _gpus(share: float) -> float:
    if share > 1 and share != int(share):
        raise ValueError(f"more than one GPU has to be a whole number of them, got {share}; write {int(share)}")
    if 0 < share < SMALLEST_SHARE:
        raise ValueError(f"a share of a GPU is at least {SMALLEST_SHARE}, got {share}; write 0 to train on the CPU")
    return share


def _possible(transfer: Transfer) -> Transfer:
    if problems := too_large(transfer) or transfer.problems():  # which count, and would not end on too large a number
        raise Problems(problems)
    return transfer


class ParamsError(Exception):
    """A params.yaml that cannot be used, with every fault."""

    def __init__(self, path: Path, faults: list[Fault]) -> None:
        self.path, self.faults = path, list(dict.fromkeys(faults))
        count = f"{len(self.faults)} faults" if len(self.faults) > 1 else "1 fault"
        super().__init__("\n".join([f"{path} cannot be used: {count}", *(f"  {fault}" for fault in self.faults)]))


class Wandb(BaseModel):
    """Where runs are logged; mode auto means: what WANDB_MODE says, else online with a key, else offline."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    project: Annotated[str, AfterValidator(_no_blank), AfterValidator(_project)] = Field("fut", max_length=128)
    mode: Literal["auto", "online", "offline", "disabled"] = "auto"


class Params(BaseModel):
    """The configuration of the pipeline."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    elsewhere: ClassVar = dict.fromkeys(Study.model_fields, "to a study, in `studies`")

    run: list[str] = Field(description="the studies to run")
    store: Annotated[str, AfterValidator(_no_blank), AfterValidator(_local_folder)] = Field(
        "store", description="folder of the trial store, relative to this file's"
    )
    cpus_per_trial: int = Field(1, ge=1, le=10_000)
    gpus_per_trial: Annotated[float, AfterValidator(_gpus)] = Field(0, ge=0, le=1_000, allow_inf_nan=False)
    ray_address: Annotated[str, AfterValidator(_no_blank), AfterValidator(_address)] = "local"
    stalled_after: float = Field(
        1_800,
        ge=1,
        le=10_000_000,
        allow_inf_nan=False,
        description="seconds without a finished epoch after which a trial counts as hung and is ended",
    )
    wandb: Wandb = Wandb()
    transfer: Annotated[Transfer, AfterValidator(_possible)] = Transfer()
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
    """The studies whose grid can be checked, so that a fault elsewhere hides none in it."""
    good: dict[str, Study] = {}
    studies = raw.get("studies")
    for name, value in studies.items() if isinstance(studies, dict) else ():
        try:
            good[name] = Study.model_validate(value)
        except ValidationError as error:
            bad = {details["loc"][0] for details in error.errors() if details["loc"]}
            if isinstance(value, dict) and bad <= {"about", "seeds", "learning_rate", "criterion"}:
                rest = {key: item for key, item in value.items() if key not in bad}
                good[name] = Study.model_validate({"seeds": [0], **rest})
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
    faults: list[Fault] = []
    seen: set[str] = set()
    for index, name in enumerate(run):
        if not isinstance(name, str):
            continue  # pydantic says so
        if name in seen:
            faults.append(Fault(join(place, index), f"study {clip(name)!r} is named twice; keep one"))
        elif name not in known:
            faults.append(Fault(join(place, index), unknown("study", name, known)))
        seen.add(name)
    return faults
