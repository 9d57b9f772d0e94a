"""The definition itself: imitate a random transformer whose weights one does not know.

Claim: a frozen backbone that is wide enough computes, under the right program, what any attention-only transformer of
its shape computes.  Here that transformer, the *target*, is drawn at random, with the backbone's heads and layers.

Input: n vectors of dimension d, standard Gaussian.  Output: n vectors of dimension p, those of the target,

    X⁰ = X,   Xˡ = Σ_g softmax(Xˡ⁻¹ W_Q (W_K)ᵀ (Xˡ⁻¹)ᵀ / √k) Xˡ⁻¹ W_VO   over the heads g of layer l,   output = X^L W_U

with causal attention: position i attends to positions 0 … i.

Traced: one head, one layer, queries that are all zero.  All scores are then zero, so position i attends equally to
0 … i and its state is the mean of the values so far.  With identity value and unembedding, inputs 1, 3, 8 give 1;
(1 + 3) / 2 = 2; (1 + 3 + 8) / 3 = 4:

>>> one = np.ones((1, 1, 1, 1))
>>> mean = Target(query=0 * one, key=one, value=one, unembedding=one[0, 0])
>>> mean(np.array([[[1.0], [3.0], [8.0]]])).round(12).tolist()
[[[1.0], [2.0], [4.0]]]

Queries other than zero prefer some positions to others.  With query and key 1 the scores of position 1 are
3 · 1 and 3 · 3, so that its weights are σ(−6) and σ(6), and its state 3 − 2 σ(−6):

>>> float(Target(query=one, key=one, value=one, unembedding=one[0, 0])(np.array([[[1.0], [3.0]]]))[0, 1, 0].round(4))
2.9951
"""

from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn import functional

from fut.seeds import generator
from fut.tasks.base import Arrays, Examples, Task
from fut.tasks.splits import SPLITS, draw_splits, repeats

_BATCH = 2048  # sequences that the target reads at once: bounds its memory
Floats = TypeVar("Floats", np.ndarray, Tensor)


@dataclass(frozen=True, eq=False)
class Target:
    """An attention-only transformer: float64 arrays, L layers of H heads."""

    query: np.ndarray  # [L, H, d, k]
    key: np.ndarray  # [L, H, d, k]
    value: np.ndarray  # [L, H, d, d], W_VO = W_V W_O
    unembedding: np.ndarray  # [d, p]

    def __call__(self, inputs: Floats) -> Floats:
        """Outputs [B, n, p], in float64, of inputs [B, n, d]; an array gives an array, a tensor a tensor."""
        if isinstance(inputs, np.ndarray):
            return np.asarray(self(torch.from_numpy(inputs)))
        state = inputs.double()  # [B, n, d]
        query, key, value, unembedding = (
            torch.from_numpy(weights).to(state) for weights in (self.query, self.key, self.value, self.unembedding)
        )
        length = state.shape[-2]
        future = torch.ones(length, length, dtype=torch.bool, device=state.device).triu(1)
        for layer in range(len(query)):
            shared = state.unsqueeze(-3)  # [B, 1, n, d]: the same state for every head
            scores = (shared @ query[layer]) @ (shared @ key[layer]).mT / sqrt(query.shape[-1])  # [B, H, n, n]
            weights = scores.masked_fill(future, float("-inf")).softmax(-1)
            state = (weights @ (shared @ value[layer])).sum(-3)  # [B, n, d]
        return state @ unembedding


class Simulate(Task):
    """Parameters of a target and of its inputs."""

    name: Literal["simulate"] = "simulate"
    target_dim: int = Field(2, ge=1, description="dimension d of the target's states and of the inputs")
    target_qk_dim: int | None = Field(None, ge=1, description="columns k of the target's W_Q and W_K; None: d")
    target_out_dim: int | None = Field(None, ge=1, description="coordinates p of the output; None: d")
    target_qk_gain: float = Field(2.0, ge=0, allow_inf_nan=False, description="scale of the target's W_Q and W_K")
    length: int = Field(10, ge=1, description="vectors n of a sequence")
    train_size: int = Field(16_384, ge=1, description="training sequences")

    metric: ClassVar[Literal["accuracy", "nmse"]] = "nmse"
    criterion_value: ClassVar[float] = 0.01
    solved_at: ClassVar[float] = 0.001

    @model_validator(mode="before")
    @classmethod
    def _derived(cls, values: Any) -> Any:
        """Writes derived dimensions out, so that one target has one configuration."""
        dim = values.get("target_dim", 2) if isinstance(values, dict) else None
        if type(dim) is not int or dim < 1:
            return values  # the fields' own checks say what is wrong
        given = {name: value for name, value in values.items() if value is not None or name == "target_dim"}
        return {"target_qk_dim": dim, "target_out_dim": dim} | given

    @property
    def positions(self) -> int:
        """Length n of the sequences that the transformer reads."""
        return self.length

    @property
    def vocabulary(self) -> None:
        """The inputs are vectors."""
        return None

    @property
    def input_dim(self) -> int:
        """Dimension d of the input vectors."""
        return self.target_dim

    @property
    def qk_dim(self) -> int:
        """Columns k of the target's W_Q and W_K."""
        return self.target_qk_dim or self.target_dim

    @property
    def out_dim(self) -> int:
        """Coordinates p of the output."""
        return self.target_out_dim or self.target_dim

    def problems(self) -> list[str]:
        """What makes these parameters impossible, each with the value that would do."""
        return [
            f"{split}_size: the error is measured against the variance of the outputs, and there is only one: use 2"
            for split in ("val", "test")
            if self.sizes[split] * self.length * self.out_dim < 2
        ]

    def data_recipe(self) -> dict[str, Any]:
        """The parameters that alter the inputs; what alters the target only is left out."""
        return self.model_dump(mode="json", exclude={"target_qk_dim", "target_out_dim", "target_qk_gain"})

    def generate(self) -> Arrays:
        """Standard Gaussian inputs, float32 (N, n, d); the labels depend on the trial and are made by `examples`."""
        self.require_possible()
        rng = generator(self.data_seed, "data", "simulate")
        shape = (self.length, self.target_dim)
        inputs = draw_splits(lambda count: rng.standard_normal((count, *shape), dtype=np.float32), self.sizes)
        return {f"{split}/inputs": inputs[split] for split in SPLITS}

    def card(self, arrays: Arrays) -> dict[str, Any]:
        """Sizes, repeats, mean and standard deviation of the inputs, for each split."""
        card: dict[str, Any] = {"task": self.data_recipe(), "splits": {}}
        for split in SPLITS:
            inputs = arrays[f"{split}/inputs"]
            card["splits"][split] = {
                "sequences": len(inputs),
                "repeats": repeats(inputs),
                "input_mean": float(inputs.mean(dtype=np.float64)),
                "input_sd": float(inputs.std(dtype=np.float64)),
            }
        return card

    def references(self, arrays: Arrays) -> dict[str, float]:
        """None: NMSE 1 is the mean's, by its definition."""
        return {}

    def draw_target(self, heads: int, layers: int, seed: int) -> Target:
        """The target of a trial: Gaussian entries of standard deviation 1/√d, those of W_Q and W_K times the gain."""
        d, k, p = self.target_dim, self.qk_dim, self.out_dim

        def draw(name: str, *shape: int) -> np.ndarray:
            return generator(seed, "target", name).standard_normal(shape) / sqrt(d)  # every matrix has d rows

        return Target(
            query=self.target_qk_gain * draw("query", layers, heads, d, k),
            key=self.target_qk_gain * draw("key", layers, heads, d, k),
            value=draw("value", layers, heads, d, d),
            unembedding=draw("unembedding", d, p),
        )

    def examples(self, arrays: Arrays, heads: int, layers: int, seed: int) -> dict[str, Examples]:
        """The splits as float32 tensors: inputs [N, n, d], labels [N, n, p] by the trial's target, in float64."""
        target = self.draw_target(heads, layers, seed)
        made = {}
        for split in SPLITS:
            inputs = torch.from_numpy(arrays[f"{split}/inputs"])
            made[split] = Examples(inputs, torch.cat([target(part).float() for part in torch.split(inputs, _BATCH)]))
        return made

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Mean squared error over sequences, positions and coordinates."""
        return functional.mse_loss(outputs, labels)

    def measure(self, outputs: Tensor, labels: Tensor) -> dict[str, float | None]:
        """NMSE and agreement.

        NMSE is the mean squared error over the labels' variance, both over all entries of the split; infinite where an
        output is not finite.  Agreement is the share of positions with equal argmax, None for p = 1; an output that is
        not finite does not agree.
        """
        outputs = outputs.detach()
        finite = outputs.isfinite()
        error = (outputs.double() - labels.double()).square().mean() / labels.double().var(unbiased=False)
        agreement = None
        if labels.shape[-1] > 1:
            agreement = float(((outputs.argmax(-1) == labels.argmax(-1)) & finite.all(-1)).double().mean())
        return {"nmse": float(error) if finite.all() else float("inf"), "agreement": agreement}
