"""What every task is: a validated configuration that generates its own data and measures its own answers."""

from abc import abstractmethod
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor
from torch.nn import functional

from fut.tasks.splits import SPLITS, repeats

Arrays = dict[str, np.ndarray]  # keys "train/inputs", "train/labels", "val/inputs", …


class Examples(NamedTuple):
    """Inputs and labels of one split, as tensors."""

    inputs: Tensor  # [N, n] int64 tokens, or [N, n, d] float32
    labels: Tensor  # [N, n] int64 with −1 where no answer is asked for, or [N, n, p] float32


class Task(BaseModel):
    """A task's parameters, and everything that follows from them.

    A task is one file and one entry in the registry `fut.tasks.TASKS`.  Its dataset has a seed of its own and is
    shared by all trials; what depends on a trial (the target of `simulate`) is made by `examples`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str
    data_seed: int = Field(0, ge=0, description="seed of the dataset, shared by all trials")
    train_size: int = Field(50_000, ge=1, description="training sequences")
    val_size: int = Field(1_000, ge=1, description="validation sequences")
    test_size: int = Field(4_000, ge=1, description="test sequences")

    metric: ClassVar[Literal["accuracy", "nmse"]]
    criterion_value: ClassVar[float]  # the test metric of a solved cell: at least (accuracy) or at most (nmse) this
    solved_at: ClassVar[float]  # default bound for the early stop, on the validation metric

    @property
    @abstractmethod
    def positions(self) -> int:
        """Length n of the sequences that the transformer reads."""

    @property
    @abstractmethod
    def vocabulary(self) -> int | None:
        """Number of tokens, or None where inputs are vectors."""

    @property
    @abstractmethod
    def input_dim(self) -> int:
        """Rows of the token embedding: the vocabulary, or the dimension of the input vectors."""

    @property
    @abstractmethod
    def out_dim(self) -> int:
        """Columns p of the unembedding: classes, or coordinates of the output."""

    @abstractmethod
    def problems(self) -> list[str]:
        """What makes these parameters impossible, each with the value that would do; [] if nothing."""

    @abstractmethod
    def data_recipe(self) -> dict[str, Any]:
        """The parameters that determine the dataset's arrays, as JSON values."""

    @abstractmethod
    def generate(self) -> Arrays:
        """The dataset: the same bytes for the same recipe, in any process."""

    @abstractmethod
    def card(self, arrays: Arrays) -> dict[str, Any]:
        """What a reader wants to know of a dataset: sizes, class balance, repeats within splits."""

    @abstractmethod
    def references(self, arrays: Arrays) -> dict[str, float]:
        """Accuracies on test of the rules that a model has to beat, keyed `reference_…`."""

    def examples(self, arrays: Arrays, heads: int, layers: int, seed: int) -> dict[str, Examples]:
        """The splits as tensors.  Shape and seed of the trial matter only where labels depend on them (`simulate`)."""
        return {
            split: Examples(
                torch.from_numpy(arrays[f"{split}/inputs"].astype(np.int64)),
                torch.from_numpy(arrays[f"{split}/labels"].astype(np.int64)),
            )
            for split in SPLITS
        }

    @abstractmethod
    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The training loss, a scalar: outputs [B, n, p], labels as in `Examples`."""

    @abstractmethod
    def measure(self, outputs: Tensor, labels: Tensor) -> dict[str, float | None]:
        """Metrics over one whole split: {"accuracy": …} or {"nmse": …, "agreement": …}; None where there is none."""

    @property
    def sizes(self) -> dict[str, int]:
        """Sequences of each split."""
        return {"train": self.train_size, "val": self.val_size, "test": self.test_size}

    def require_possible(self) -> None:
        """Raises ValueError with every entry of `problems`, if there are any."""
        if problems := self.problems():
            raise ValueError("; ".join(problems))

    @property
    def higher_is_better(self) -> bool:
        """Whether a larger metric is a better one."""
        return self.metric == "accuracy"


class TokenTask(Task):
    """A task over tokens that asks for a class at some positions: cross-entropy, measured by accuracy.

    Inputs [N, n] are uint8 tokens, labels [N, n] are int8 classes, −1 where nothing is asked.
    """

    metric: ClassVar[Literal["accuracy", "nmse"]] = "accuracy"
    criterion_value: ClassVar[float] = 0.99
    solved_at: ClassVar[float] = 0.999

    @property
    @abstractmethod
    def vocabulary(self) -> int:
        """Number of tokens."""

    @property
    def input_dim(self) -> int:
        """Rows of the token embedding: one a token."""
        return self.vocabulary

    def data_recipe(self) -> dict[str, Any]:
        """Every parameter: all of them alter the arrays."""
        return self.model_dump(mode="json")

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy, in nats, over the positions that are asked; 0 where none is."""
        total = functional.cross_entropy(outputs.flatten(0, -2), labels.flatten(), ignore_index=-1, reduction="sum")
        return total / (labels >= 0).sum().clamp(min=1)

    def measure(self, outputs: Tensor, labels: Tensor) -> dict[str, float | None]:
        """Share of right answers among the positions that are asked; an output that is not finite is wrong."""
        asked = labels >= 0
        right = (outputs.argmax(-1) == labels) & outputs.isfinite().all(-1) & asked
        return {"accuracy": float(right.sum()) / int(asked.sum())}

    def common_card(self, arrays: Arrays, classes: list[str]) -> dict[str, Any]:
        """The parts of a card that all token tasks share, for each split."""
        card: dict[str, Any] = {"task": self.model_dump(mode="json"), "splits": {}}
        for split in SPLITS:
            inputs, labels = arrays[f"{split}/inputs"], arrays[f"{split}/labels"]
            asked = labels[labels >= 0]
            counts = np.bincount(asked, minlength=len(classes)) / len(asked)
            card["splits"][split] = {
                "sequences": len(inputs),
                "repeats": repeats(inputs),
                "answers": len(asked),
                "class_balance": {name: float(share) for name, share in zip(classes, counts, strict=True)},
            }
        return card


__all__ = ["SPLITS", "Arrays", "Examples", "Task", "TokenTask"]
