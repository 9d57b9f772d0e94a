"""A trial's configuration: the one description of a training run, from which everything else follows."""

from functools import cached_property
from typing import Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializeAsAny,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from fut.backbones import AnyBackbone, Trained
from fut.backbones.base import Recipe, Shape
from fut.datasets import dataset_id
from fut.digest import code_digest, digest
from fut.tasks import AnyTask
from fut.training_plan import Training

SWITCHES = ("residual", "layernorm", "mlp")
ATTENTION_ONLY = "attention"
Trainable = Literal["program", "embedding", "unembedding", "all"]
Start = Literal["random", "compiled"]
UNTRAINED = frozenset({"training", "learning_rate", "init", "init_noise"})  # play no part where nothing is trained


class Source(BaseModel):
    """The trial whose trained weights a backbone of kind `pretrained` freezes.

    It has the shape, the components and the seed of the trial that uses them; here stands what it may have of its own.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    task: SerializeAsAny[AnyTask]
    backbone: Trained = Trained()
    training: Training = Training()
    learning_rate: float = Field(gt=0, allow_inf_nan=False, description="that the source was trained with")


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
    source: Source | None = Field(None, description="of a pretrained backbone: the trial whose weights it freezes")
    method: Literal["learned", "compiled"] = Field("learned", description="how the program is found")
    init: Start = Field("random", description="what training starts from: a draw, or the compiled program")
    init_noise: float = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="standard deviation of the noise on a compiled start, in units of each matrix's root mean square",
    )
    training: Training = Training()
    learning_rate: float | None = Field(
        None, gt=0, allow_inf_nan=False, validate_default=True, description="None: nothing is trained"
    )
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

    @field_validator("learning_rate")
    @classmethod
    def _learned_at_a_rate(cls, rate: float | None, info: ValidationInfo) -> float | None:
        if rate is None and info.data.get("method") == "learned":
            raise ValueError("missing: add it; only a compiled program needs none")
        return rate

    @model_validator(mode="after")
    def _possible(self) -> Self:
        problems = [f"task: {problem}" for problem in self.task.problems()]
        problems += [f"backbone: {problem}" for problem in self.backbone.problems(self.shape)]
        if (self.trainable == "all") != (self.backbone.kind == "trained"):
            problems.append("trainable: 'all' goes with backbone kind 'trained', and with no other")
        problems += self._source_problems()
        if self.method == "compiled" and self.init != "random":
            problems.append("init: nothing is trained where the method is compiled: leave it out, or the method")
        if self.init_noise and self.init != "compiled":
            problems.append("init_noise: goes with init: compiled; a random start is noise already")
        if not problems and self.start == "compiled":
            field = "method" if self.method == "compiled" else "init"
            problems += [f"{field}: compiled: {problem}" for problem in self._uncompilable()]
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def _source_problems(self) -> list[str]:
        if (self.source is None) == (self.backbone.kind == "pretrained"):
            return ["source: goes with backbone kind 'pretrained', which needs one, and with no other"]
        if self.source is None:
            return []
        if self.trainable == "embedding":
            return ["trainable: a pretrained backbone has no unembedding for this task: train the program"]
        try:
            self.source_trial  # noqa: B018 - it is checked as it is made
        except ValidationError as error:
            return [f"source: {details['msg'].removeprefix('Value error, ')}" for details in error.errors()]
        return []

    def _uncompilable(self) -> list[str]:
        """Why there is no program to compile; [] where there is one.  The trial is possible otherwise."""
        problems = []
        if (target_qk_dim := getattr(self.task, "qk_dim", None)) is None:
            problems.append(f"task {self.task.name} has no target to compile, and simulate has")
        elif self.recipe.qk_dim < target_qk_dim:
            problems.append(f"the backbone's qk_dim, {self.recipe.qk_dim}, is below the target's, {target_qk_dim}")
        if self.components != ATTENTION_ONLY:
            problems.append(f"the target has no {self.components}, so the backbone must not: components attention")
        if self.trainable not in ("program", "embedding"):
            problems.append(f"the embedding is what is compiled, and trainable is {self.trainable}")
        return problems

    @property
    def compilable(self) -> bool:
        """Whether this trial's target can be compiled into its backbone."""
        return not self._uncompilable()

    @property
    def start(self) -> Start:
        """Where the program comes from before anything trains."""
        return "compiled" if self.method == "compiled" else self.init

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
    def source_trial(self) -> "TrialConfig | None":
        """The trial that a pretrained backbone's weights come from."""
        if self.source is None:
            return None
        shared = {name: getattr(self, name) for name in ("components", "heads", "layers", "width", "seed")}
        own = {name: getattr(self.source, name) for name in Source.model_fields}
        return TrialConfig(**shared, **own)

    @cached_property
    def recipe(self) -> Recipe:
        """The recipe of this trial's backbone."""
        if self.source_trial is None:
            return self.backbone.recipe(self.shape, self.seed)
        return self.source_trial.recipe.model_copy(update={"kind": "pretrained", "source": self.source_trial.id})

    @cached_property
    def dataset_id(self) -> str:
        """The name of this trial's dataset."""
        return dataset_id(self.task)

    @cached_property
    def code(self) -> str:
        """The digest of the code that determines this trial."""
        parts = ["fut.trial", type(self.task).__module__, type(self.backbone).__module__]
        return code_digest([*parts, "fut.starts.compiled"] if self.start == "compiled" else parts)

    @cached_property
    def id(self) -> str:
        """The trial's name: SHA-256 of its canonical configuration, recipes and code digest."""
        return digest({**self.canonical(), "backbone": self.recipe.model_dump(), "code": self.code})

    def canonical(self) -> dict[str, Any]:
        """The configuration as JSON values, complete with defaults; without what plays no part where nothing trains."""
        return self.model_dump(mode="json", exclude=set(UNTRAINED) if self.method == "compiled" else None)
