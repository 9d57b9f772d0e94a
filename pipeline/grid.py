"""From a study to its cells and trials."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from fut.backbones import BACKBONES
from fut.config import UNTRAINED, TrialConfig
from fut.digest import digest
from fut.theory import sufficient_width
from pipeline.faults import REFUSED, Fault, Steps, entries, from_validation, join, nearest, rounded, show, unknown
from pipeline.limits import MOST_CONDITIONS, MOST_TRIALS, WITH_PARTS, excess
from pipeline.sources import Source, Sourced
from pipeline.study import Study
from pipeline.widths import KEY, Multiple, multiples, sufficient_multiple, too_wide_for_tables

OF_THE_STUDY = {"seed": "seeds", "learning_rate": "learning_rate"}
FIELDS = [name for name in TrialConfig.model_fields if name not in OF_THE_STUDY]


class GridError(Exception):
    """A study that cannot be expanded, with every fault."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__("\n".join(map(str, faults)))
        self.faults = faults


@dataclass(frozen=True)
class Cell:
    """One grid point without its seeds and learning rates."""

    id: str
    first: TrialConfig
    seeds: tuple[int, ...]
    learning_rates: tuple[float | None, ...]  # (None,) where nothing is trained

    @cached_property
    def config(self) -> dict[str, Any]:
        """The configuration shared by the cell's trials, as JSON values."""
        return cell_config(self.first)

    @cached_property
    def trials(self) -> list[TrialConfig]:
        """One trial for every learning rate and seed, in this order."""
        shared = {name: getattr(self.first, name) for name in FIELDS}
        return [
            TrialConfig(**shared, learning_rate=rate, seed=seed) for rate in self.learning_rates for seed in self.seeds
        ]


class Axis(NamedTuple):
    """A key of a block: the fields that it sets together, and each choice with its path."""

    targets: tuple[tuple[str, ...], ...]
    key: str
    choices: list[tuple[tuple[Any, ...], str]]


def cell_config(config: TrialConfig) -> dict[str, Any]:
    """A trial's canonical configuration without its seed and learning rate."""
    return {name: value for name, value in config.canonical().items() if name not in OF_THE_STUDY}


def cell_id(config: TrialConfig) -> str:
    """The name of a trial's cell: a digest of the cell's configuration, its backbone resolved.

    A setting that makes no difference (the gain of an MLP that is off) makes no other cell.
    """
    backbone = config.recipe.model_dump(mode="json", exclude={"seed", "source"})  # a source is named by its seed too
    return digest({**cell_config(config), "backbone": backbone})


def expand(name: str, study: Study) -> list[Cell]:
    """The cells of a study, each once, in the order of its blocks and of the keys in them (the last key runs fastest).

    Raises:
        GridError: with all faults, each at its path ``studies.NAME.…`` in params.yaml.
    """
    path = join("studies", name)
    cells: dict[str, Cell] = {}
    checks = _Checks([], set(), {})
    base = Sourced(
        {key: value for key, value in study.base.items() if checks.base_key(join(path, "base", key), key)},
        join(path, "base"),
    )
    blocks: list[tuple[str, list[Axis], _Checks]] = []
    for place, block in study.blocks():
        own = checks._replace(excused=set(checks.excused))
        blocks.append((join(path, *place), _axes(block, join(path, *place), own), own))
    if _few_enough(path, study, [axes for _, axes, _ in blocks], checks):
        for here, axes, own in blocks:
            for point in _points(base.at(here), axes, own):
                cell = _cell(name, study, point, own)
                if cell is not None:
                    cells.setdefault(cell.id, cell)
                    if "method" not in point.values and (twin := _compiled(cell)):
                        cells.setdefault(twin.id, twin)
    faults = checks.faults
    faults += _sources_missing(cells, checks.sources)
    metrics = {cell.first.task.metric for cell in cells.values()}
    if study.criterion is not None and len(metrics) > 1:
        faults.append(
            Fault(
                join(path, "criterion"),
                "the study has tasks of two metrics; leave the criterion out, or make two studies",
            )
        )
    if study.criterion is not None and metrics == {"accuracy"} and study.criterion > 1:
        faults.append(Fault(join(path, "criterion"), f"an accuracy is at most 1, got {study.criterion}"))
    if faults:
        raise GridError(list(dict.fromkeys(faults)))
    return list(cells.values())


class _Checks(NamedTuple):
    """What is wrong so far, and the fields whose absence follows from it."""

    faults: list[Fault]
    excused: set[Steps]
    sources: dict[str, str]  # of cells with a pretrained backbone: where the source was written, by the cell

    def base_key(self, path: str, key: str) -> bool:
        """Whether a key of `base` names a field of a cell."""
        if "," in key:
            self.excused.update((part.strip(),) for part in key.split(","))
            return self.add(path, "only keys of `grid` and `changes` set fields together; give each its own key")
        if not self.key(path, target := tuple(key.split("."))):
            return False
        if len(target) > 1:
            self.excused.add((target[0],))
            nested = ": {".join(target) + ": ..." + "}" * (len(target) - 1)
            return self.add(path, f"only keys of `grid` and `changes` reach in with dots; write {nested}")
        return True

    def key(self, path: str, target: tuple[str, ...]) -> bool:
        """Whether a (dotted) key names a field of a cell."""
        if target[0] in OF_THE_STUDY:
            return self.add(path, f"{target[0]} belongs to the study; give its `{OF_THE_STUDY[target[0]]}`")
        if target[0] in Study.model_fields:
            return self.add(path, f"{target[0]} belongs to the study; move it out, beside `base` and `grid`")
        if target[0] not in FIELDS:
            self.excused.add((nearest(target[0], FIELDS) or "",))
            return self.add(path, unknown("key", target[0], FIELDS))
        if not all(target):
            return self.add(path, "an empty name between dots; write for example task.hops")
        whole = target[: 1 + (target[0] in WITH_PARTS)]
        if whole != target:
            self.excused.add(whole)
            name, inside = ".".join(whole), f"{{{KEY}: ...}}" if target == ("width", KEY) else "..."
            return self.add(path, f"{name} has no parts; write {name}: {inside}")
        return True

    def add(self, path: str, text: str) -> Literal[False]:
        """Note a fault."""
        self.faults.append(Fault(path, text))
        return False


def _axes(block: dict[str, Any], path: str, checks: _Checks) -> list[Axis]:
    """The axes of a block, without the keys that are at fault."""
    axes: list[Axis] = []
    seen: set[tuple[str, ...]] = set()
    for key, value in block.items():
        here = join(path, key)
        targets = tuple(tuple(part.strip().split(".")) for part in key.split(","))
        good = []
        for target in targets:
            if not checks.key(here, target):
                good.append(False)
            elif target in seen:
                good.append(checks.add(here, f"{'.'.join(target)} is set twice in this block; keep one"))
            else:
                good.append(True)
            seen.add(target)
        choices, faults = _choices(targets, value, here) if all(good) else ([], [])
        checks.faults.extend(faults)
        if choices:
            axes.append(Axis(targets, here, choices))
        else:
            checks.excused.update(targets)
    return axes


def _choices(
    targets: tuple[tuple[str, ...], ...], value: Any, path: str
) -> tuple[list[tuple[tuple[Any, ...], str]], list[Fault]]:
    """The choices of a key, each as one value for each target, with its path."""
    if value == []:
        return [], [Fault(path, "an empty list makes no cells; give a value, or leave the key out")]
    listed = entries(value, path)
    if len(targets) > 1:
        names = [".".join(target) for target in targets]
        example = f"[[{', '.join(names)}], ...]"
        if not isinstance(value, list):
            return [], [Fault(path, f"sets {' and '.join(names)} together; write a list {example}, got {show(value)}")]
        wrong = [(item, place) for item, place in listed if not isinstance(item, list) or len(item) != len(targets)]
        faults = [
            Fault(
                place,
                f"sets {' and '.join(names)} together, so each entry is a list of {len(targets)}: "
                f"{example}, got {show(item)}",
            )
            for item, place in wrong
        ]
        return [(tuple(item), place) for item, place in listed if (item, place) not in wrong], faults
    if targets == (("width",),):
        return multiples(listed)
    return [((item,), place) for item, place in listed], []


def _few_enough(path: str, study: Study, blocks: list[list[Axis]], checks: _Checks) -> bool:
    """Whether a study has no more trials than can be expanded, counted before any is made."""
    points = sum(math.prod(len(axis.choices) for axis in axes) for axes in blocks)
    rates = max(map(len, study.learning_rate.values()))
    trials = points * len(study.seeds) * rates
    return trials <= MOST_TRIALS or checks.add(
        path,
        f"comes to {rounded(trials)} trials (points × seeds × learning rates: {rounded(points)} × {len(study.seeds):,} "
        f"× {rates:,}), and a study may have {MOST_TRIALS:,}; shorten its axes, or join some as in `heads, layers`",
    )


def _points(base: Sourced, axes: list[Axis], checks: _Checks) -> Iterator[Sourced]:
    """The configuration of every grid point: whole values first, then what stands inside them."""
    for choices in itertools.product(*(axis.choices for axis in axes)):
        point = base.copy()
        settings = [
            (target, value, Source(axis.key, place))
            for axis, (values, place) in zip(axes, choices, strict=True)
            for target, value in zip(axis.targets, values, strict=True)
        ]
        try:
            for target, value, source in sorted(settings, key=lambda setting: len(setting[0])):
                point.set(target, value, source)
        except TypeError as error:
            checks.add(source.key, str(error))
            continue
        yield point


def _cell(name: str, study: Study, point: Sourced, checks: _Checks) -> Cell | None:
    """The cell at a grid point; None, with its faults noted, where it is impossible."""
    values = point.values
    backbone = values.get("backbone")
    kind = backbone.get("kind") if isinstance(backbone, dict) else None
    rates = study.learning_rate.get(kind) if isinstance(kind, str) else None
    if rates is None and isinstance(kind, str) and kind in BACKBONES:
        checks.add(
            join("studies", name, "learning_rate", kind),
            "missing: the study has cells with this kind of backbone; add it",
        )
    faults = excess(point)
    width = values.get("width")
    try:
        if isinstance(width, Multiple):
            values["width"] = sufficient_multiple(values)
        elif isinstance(width, dict):
            raise ValueError(
                f"expected a whole number, got {show(width)}; {KEY} is for the key `width` of `grid` or `changes`"
            )
    except ValueError as error:
        faults.append(Fault(point.where(("width",)), str(error)))
        values["width"] = REFUSED
    first = None
    try:
        first = TrialConfig(**{**values, "learning_rate": (rates or [1.0])[0], "seed": study.seeds[0]})
    except ValidationError as error:
        faults += from_validation(error, TrialConfig, point.where, checks.excused, axes=True)
    if first is not None and (text := too_wide_for_tables(first)):
        faults.append(Fault(point.where(("layers",)), text))
    checks.faults.extend(faults)
    if first is None or not rates or faults:
        return None
    cell = Cell(cell_id(first), first, tuple(study.seeds), (None,) if first.method == "compiled" else tuple(rates))
    if first.source is not None:
        checks.sources[cell.id] = point.where(("source",))
    return cell


def _compiled(cell: Cell) -> Cell | None:
    """The compiled twin of a learned cell that starts at random; None where the theory has no program to offer.

    Nor has a machine where the conditions on it are too many to solve, which a small one can well be trained in.
    """
    recipe = cell.first.recipe
    if cell.first.start == "compiled" or not cell.first.compilable:
        return None
    if sufficient_width(recipe.heads, recipe.layers, recipe.qk_dim, cell.first.task.out_dim) > MOST_CONDITIONS:
        return None
    shared = {name: getattr(cell.first, name) for name in FIELDS if name not in UNTRAINED}
    first = TrialConfig(**{**shared, "method": "compiled", "seed": cell.first.seed})
    return Cell(cell_id(first), first, cell.seeds, (None,))


def _sources_missing(cells: dict[str, Cell], places: dict[str, str]) -> list[Fault]:
    """Sources of pretrained backbones that are no trials of the study, which would never have run."""
    faults = []
    for name, place in places.items():
        source = cells[name].first.source_trial
        assert source is not None
        there = cells.get(cell_id(source))
        if there is None or source.learning_rate not in there.learning_rates:
            faults.append(
                Fault(
                    place,
                    f"the study has no such trial: add a cell with task {source.task.name}, backbone {{kind: trained}} "
                    f"and the same shape, components and training, at learning rate {source.learning_rate:g}",
                )
            )
    return faults
