"""Trained targets, compiled into frozen backbones of several kinds and widths: what is transferred, and at which width.

A small target with residual connections is trained for each task.  Its program is then computed for sparse, random and
control backbones at widths below, at and above the sufficient one, and runs on the task's test split: in how many
answers does the machine agree with its target, and how many of its answers are right?
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny

from fut.backbones import AnyBackbone, Control, Random, Shape, Sparse, Trained, build
from fut.backbones.base import Backbone
from fut.compiler import Target, compile_program
from fut.config import TrialConfig
from fut.digest import array_digest, canonical_json
from fut.machine import Machine, arrays_of, target_of
from fut.tasks import AnyTask
from fut.tasks.base import Arrays, Task
from fut.tasks.dyck import Dyck
from fut.tasks.khop import Khop
from fut.theory import sufficient_width
from fut.training_plan import Training

SEQUENCES = 100  # at a time: bounds the memory
MOST_PROGRAMS = 10_000
WIDEST = 4_096  # a dense backbone of this width takes seconds to solve for, and some GB
MACHINES: tuple[AnyBackbone, ...] = (
    Sparse(layout="residual"),
    Random(),
    Control(control="identical_heads"),
    Control(control="low_rank"),
)

Row = dict[str, Any]  # by the columns of the table `transfer`
Say = Callable[[str], None]
Problem = tuple[tuple[str | int, ...], str]  # its place, and what is wrong with its remedy


class Transfer(BaseModel):
    """Which targets are trained, and into which backbones they are compiled."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    tasks: list[SerializeAsAny[AnyTask]] = Field(
        [Dyck(max_length=16, train_size=20_000, test_size=500), Khop(train_size=20_000, test_size=500)],
        description="tasks over tokens; a target is trained for each",
    )
    heads: int = Field(2, ge=2, le=8, description="heads H of targets and machines; identical heads need two")
    layers: int = Field(2, ge=1, le=6, description="layers L of targets and machines")
    target_dim: int = Field(
        16, ge=2, le=1_000, description="dimension d of the targets, whose heads have d / H columns"
    )
    seeds: list[Annotated[int, Field(ge=0, le=2**63 - 1)]] = Field(
        [0, 1, 2], description="of the drawn backbones; the first also that of the targets"
    )
    times_sufficient: list[Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)]] = Field(
        [0.5, 0.75, 0.9, 1, 1.25], description="widths, in multiples of the sufficient one, rounded up"
    )
    training: Training = Training(steps=1_000)
    learning_rate: float = Field(3e-3, gt=0, le=100, allow_inf_nan=False, description="of the targets' training")

    @property
    def qk_dim(self) -> int:
        """Columns k of W_Q and W_K of one head."""
        return self.target_dim // self.heads

    def sufficient_width(self, task: Task) -> int:
        """N of a task's target, whose unembedding is the machine's own."""
        return sufficient_width(self.heads, self.layers, self.qk_dim, task.out_dim, residual=True)

    def widths(self, task: Task) -> list[int]:
        """The widths of the machines for a task's target, one for each multiple."""
        return [
            math.ceil(self.sufficient_width(task) * Fraction(repr(float(times)))) for times in self.times_sufficient
        ]

    def shape(self, task: Task, width: int) -> Shape:
        """The surroundings that a machine is resolved in."""
        return Shape(self.heads, self.layers, width, False, task.out_dim, self.qk_dim, fixed_unembedding=True)

    def machines(self, task: Task, width: int) -> Iterator[tuple[int | None, Backbone]]:
        """The machines of a width, each with its seed: None where nothing is drawn."""
        for kind in MACHINES:
            for seed in [None] if kind.kind == "sparse" else self.seeds:
                yield seed, build(kind.recipe(self.shape(task, width), seed or 0))

    def problems(self) -> list[Problem]:
        """What is impossible, each with its place and its remedy; [] if nothing."""
        count = len(self.tasks) * len(self.times_sufficient) * (1 + (len(MACHINES) - 1) * len(self.seeds))
        if count > MOST_PROGRAMS:
            text = f"comes to {count:,} programs, and at most {MOST_PROGRAMS:,} are compiled"
            return [((), f"{text}; take fewer tasks, widths or seeds")]
        found: list[Problem] = []
        for name, example in (("tasks", "[{name: khop}]"), ("seeds", "[0, 1, 2]"), ("times_sufficient", "[0.5, 1]")):
            values = getattr(self, name)
            first = {value: index for index, value in reversed(list(enumerate(values)))}
            found += [] if values else [((name,), f"is empty; write for example {example}")]
            found += [((name, i), "is given twice; keep one") for i, value in enumerate(values) if first[value] < i]
        divides = self.target_dim % self.heads == 0
        if not divides:
            near = max(self.heads, self.target_dim - self.target_dim % self.heads)
            text = f"heads {self.heads} do not divide it, got {self.target_dim}; write {near}"
            found.append((("target_dim",), text))
        for index, task in enumerate(self.tasks):
            place = ("tasks", index)
            if task.vocabulary is None:
                text = f"task {task.name} reads vectors, and targets here read tokens; take dyck or khop"
                found.append((place, text))
            elif problems := task.problems():
                found += [_placed(place, problem) for problem in problems]
            elif divides:
                found += self._width_problems(task)
        return found

    def _width_problems(self, task: Task) -> list[Problem]:
        enough, widths = self.sufficient_width(task), self.widths(task)
        found: list[Problem] = []
        for index, (times, width) in enumerate(zip(self.times_sufficient, widths, strict=True)):
            place, made = ("times_sufficient", index), f"makes width {width:,} of {task.name}'s N = {enough:,}"
            if width > WIDEST:
                text = f"{made}, and at most {WIDEST:,} can be compiled; take less of it, or a smaller shape"
                found.append((place, text))
                continue
            problems = [text for kind in MACHINES for text in kind.problems(self.shape(task, width))]
            found += [(place, f"{made}: {text.removeprefix('width: ')}") for text in dict.fromkeys(problems)]
            if width in widths[:index] and times not in self.times_sufficient[:index]:
                found.append((place, f"{made}, as times_sufficient[{widths.index(width)}] does; keep one"))
        return found


@dataclass(frozen=True, eq=False)
class TrainedTarget:
    """A target that was trained for a task, with the test split and its answers there."""

    task: Task
    target: Target
    arrays: Arrays

    @cached_property
    def answers(self) -> np.ndarray:
        """The target's classes at the asked test positions, [asked]."""
        return self.answers_of(self.target)

    @property
    def accuracy(self) -> float:
        """Share of its answers on test that are right."""
        return self.accuracy_of(self.answers)

    @property
    def constant_agreement(self) -> float:
        """Share of its answers that are its most frequent one: what a machine that always says it agrees in."""
        return float(np.bincount(self.answers).max()) / len(self.answers)

    def answers_of(self, compute: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """The classes that outputs [B, n, p] of tokens [B, n] give at the asked test positions, [asked].

        Outputs beyond the task's own answers are another task's, and not looked at.
        """
        found = []
        for start in range(0, len(self.arrays["test/inputs"]), SEQUENCES):
            part = slice(start, start + SEQUENCES)
            asked = self.arrays["test/labels"][part] >= 0
            found.append(compute(self.arrays["test/inputs"][part])[asked][:, : self.task.out_dim].argmax(-1))
        return np.concatenate(found)

    def accuracy_of(self, answers: np.ndarray) -> float:
        """Share of answers on test that are right."""
        labels = self.arrays["test/labels"]
        return float((answers == labels[labels >= 0]).mean())

    def agreement(self, answers: np.ndarray) -> float:
        """Share of answers on test that are the target's."""
        return float((answers == self.answers).mean())


def train_target(
    task: AnyTask, heads: int, layers: int, dim: int, training: Training, learning_rate: float, seed: int
) -> TrainedTarget:
    """Train a target with residual connections and without LayerNorm, whose heads have `dim` / `heads` columns.

    Raises:
        CompileError: training left weights that are not finite.
    """
    from fut.training import train  # Lightning takes seconds to import, and a configuration needs none of it
    from fut.transformer import Transformer

    config = TrialConfig(
        task=task,
        backbone=Trained(),
        components="residual",
        heads=heads,
        layers=layers,
        width=dim,
        training=training,
        learning_rate=learning_rate,
        seed=seed,
    )
    arrays = task.generate()
    model = Transformer(config, build(config.recipe))
    train(config, model, task.examples(arrays, heads, layers, seed))
    target = target_of(config, {name: tensor.numpy() for name, tensor in model.program().items()})
    return TrainedTarget(task, target, arrays)


def transfer(config: Transfer, say: Say = lambda text: None) -> Iterator[Row]:
    """Train the targets and compile each into every machine: a row for each task, width, kind of backbone and seed.

    Args:
        config: one in which there are no `problems`.
        say: told what is going on.

    Raises:
        CompileError: training left weights that are not finite.
        MemoryError: a machine needs more memory than there is.
    """
    for task in config.tasks:
        say(f"{task.name}: training a target of dimension {config.target_dim}")
        trained = train_target(
            task, config.heads, config.layers, config.target_dim, config.training, config.learning_rate, config.seeds[0]
        )
        say(f"{task.name}: the target is right at {_percent(trained.accuracy)} of test")
        for width in config.widths(task):
            rows = [transferred(trained, backbone, seed) for seed, backbone in config.machines(task, width)]
            say(f"{task.name}: width {width} (N = {config.sufficient_width(task)}): {_agreements(rows)}")
            yield from rows


def transferred(trained: TrainedTarget, backbone: Backbone, seed: int | None) -> Row:
    """A target compiled into a backbone with an unembedding of its own, and what became of it on test, in float64."""
    task, target, recipe = trained.task, trained.target, backbone.recipe
    program, report = compile_program(target, backbone)
    answers = trained.answers_of(Machine.of(backbone, task, target, program).outputs)
    return {
        "task": task.name,
        "task_parameters": canonical_json(task.model_dump(mode="json")),
        "backbone": recipe.kind,
        "control": recipe.control,
        "layout": recipe.layout,
        "seed": seed,
        "heads": recipe.heads,
        "layers": recipe.layers,
        "target_dim": target.dim,
        "qk_dim": recipe.qk_dim,
        "out_dim": target.out_dim,
        "residual": target.residual,
        "width": report.width,
        "sufficient_width": report.sufficient_width,
        "target_accuracy": trained.accuracy,
        "compiled_accuracy": trained.accuracy_of(answers),
        "agreement": trained.agreement(answers),
        "constant_agreement": trained.constant_agreement,
        "margin": report.margin,
        "condition_number": report.condition_number if math.isfinite(report.condition_number) else None,
        "relative_error": report.relative_error,
        "exact": report.exact,
        "target_digest": array_digest(arrays_of(target)),
        "backbone_digest": backbone.digest,
    }


def _agreements(rows: list[Row]) -> str:
    """The mean agreement of each kind of backbone, in words."""
    names = [row["control"] or row["backbone"] for row in rows]
    sums = Counter[str]()
    for name, row in zip(names, rows, strict=True):
        sums[name] += row["agreement"]
    return ", ".join(f"{name} {_percent(total / names.count(name))}" for name, total in sums.items())


def _placed(place: tuple[str | int, ...], problem: str) -> Problem:
    """A task's problem, which starts with the names of its fields, at the place of the first of them."""
    names, _, text = problem.partition(": ")
    return ((*place, names), text) if names.isidentifier() else (place, problem)


def _percent(share: float) -> str:
    return f"{100 * share:.4g} %"
