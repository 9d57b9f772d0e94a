"""A trial's configuration: the one description of a training run, from which everything else follows."""

from functools import cached_property
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny, field_validator, model_validator

from fut.backbones import AnyBackbone
from fut.backbones.base import Recipe, Shape
from fut.datasets import dataset_id
from fut.digest import code_digest, digest
from fut.tasks import AnyTask

SWITCHES = ("residual", "layernorm", "mlp")
ATTENTION_ONLY = "attention"
Trainable = Literal["program", "embedding", "unembedding", "all"]


class Training(BaseModel):
    """How a trial is trained: AdamW with linear warm-up and a cosine to 5 % of the learning rate."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    steps: int = Field(2_000, ge=1, description="most optimiser steps")
    batch_size: int = Field(64, ge=1, description="sequences a step")
    steps_per_epoch: int = Field(100, ge=1, description="steps between two evaluations: one epoch")
    warmup_steps: int = Field(100, ge=0, description="steps of linear warm-up")
    weight_decay: float = Field(0.0, ge=0, allow_inf_nan=False)
    solved_at: float | None = Field(
        None,
        ge=0,
        description="early stop when validation is this good twice running; None: the task's own bound",
    )

    @model_validator(mode="after")
    def _whole_epochs(self) -> Self:
        if self.steps % self.steps_per_epoch:
            raise ValueError(f"steps: {self.steps} is not a multiple of steps_per_epoch, {self.steps_per_epoch}")
        if self.warmup_steps > self.steps:
            raise ValueError(f"warmup_steps: {self.warmup_steps} is more than steps, {self.steps}")
        return self


class TrialConfig(BaseModel):
    """One cell with one seed and one learning rate: one training run."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    task: SerializeAsAny[AnyTask]
    backbone: SerializeAsAny[AnyBackbone]
    components: str = ATTENTION_ONLY
    heads: int = Field(ge=1)
    layers: int = Field(ge=1)
    width: int = Field(ge=1)
    trainable: Trainable = "program"
    training: Training = Training()
    learning_rate: float = Field(gt=0, allow_inf_nan=False)
    seed: int = Field(ge=0)

    @model_validator(mode="before")
    @classmethod
    def _trained_trains_all(cls, values: Any) -> Any:
        """The kind `trained` implies `trainable: all` where nothing else is said."""
        backbone = values.get("backbone") if isinstance(values, dict) else None
        kind = backbone.get("kind") if isinstance(backbone, dict) else getattr(backbone, "kind", None)
        return {"trainable": "all"} | values if kind == "trained" else values

    @field_validator("components")
    @classmethod
    def _components_in_order(cls, text: str) -> str:
        names = [] if text == ATTENTION_ONLY else text.split("+")
        if unknown := [name for name in names if name not in SWITCHES]:
            raise ValueError(
                f"unknown component {', '.join(map(repr, unknown))}: write {ATTENTION_ONLY!r}, or some of "
                f"{', '.join(SWITCHES)} joined by '+'"
            )
        if len(set(names)) < len(names):
            raise ValueError("a component is named twice")
        return "+".join(name for name in SWITCHES if name in names) or ATTENTION_ONLY

    @model_validator(mode="after")
    def _possible(self) -> Self:
        problems = [f"task: {problem}" for problem in self.task.problems()]
        problems += [f"backbone: {problem}" for problem in self.backbone.problems(self.shape)]
        if (self.trainable == "all") != (self.backbone.kind == "trained"):
            problems.append("trainable: 'all' goes with backbone kind 'trained', and with no other")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def has(self, switch: Literal["residual", "layernorm", "mlp"]) -> bool:
        """Whether a component is switched on."""
        return switch in self.components.split("+")

    @property
    def shape(self) -> Shape:
        """The surroundings that the backbone is resolved in."""
        return Shape(
            self.heads,
            self.layers,
            self.width,
            self.has("mlp"),
            self.task.out_dim,
            getattr(self.task, "qk_dim", None),
            self.trainable == "embedding",
        )

    @cached_property
    def recipe(self) -> Recipe:
        """The recipe of this trial's backbone."""
        return self.backbone.recipe(self.shape, self.seed)

    @cached_property
    def dataset_id(self) -> str:
        """The name of this trial's dataset."""
        return dataset_id(self.task)

    @cached_property
    def code(self) -> str:
        """The digest of the code that determines this trial."""
        return code_digest(["fut.trial", type(self.task).__module__, type(self.backbone).__module__])

    @cached_property
    def id(self) -> str:
        """The trial's name: SHA-256 of its canonical configuration, recipes and code digest."""
        return digest({**self.canonical(), "backbone": self.recipe.model_dump(), "code": self.code})

    def canonical(self) -> dict[str, Any]:
        """The configuration as JSON values, complete with defaults."""
        return self.model_dump(mode="json")
