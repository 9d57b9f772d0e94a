"""What every backbone is: a validated configuration, resolved to a recipe, built into frozen tensors."""

from abc import abstractmethod
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from fut.digest import array_digest, code_digest, digest

Layout = Literal["attention", "residual", "tied"]
Distribution = Literal["gaussian", "uniform", "laplace", "orthogonal"]
Values = Literal["standard", "full"]


class Shape(NamedTuple):
    """The surroundings that a backbone's configuration is resolved in."""

    heads: int
    layers: int
    width: int
    mlp: bool  # whether the blocks have a frozen random MLP
    out_dim: int  # p of the task
    target_qk_dim: int | None  # k of the target, for tasks that have one
    fixed_unembedding: bool  # whether U belongs to the backbone (`trainable: embedding`)


class BackboneConfig(BaseModel):
    """A backbone as `params.yaml` states it; None means: derived, as `recipe` says.

    A kind is one file and one entry in the registry `fut.backbones.BACKBONES`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    kind: str
    qk_dim: int | None = Field(None, ge=1, description="columns k of W_Q and W_K of one head")
    mlp_gain: float = Field(1.0, ge=0, allow_inf_nan=False, description="scale of the MLP's second matrix")

    @abstractmethod
    def problems(self, shape: Shape) -> list[str]:
        """What makes this configuration impossible in these surroundings, with the remedy; [] if nothing."""

    @abstractmethod
    def recipe(self, shape: Shape, seed: int) -> "Recipe":
        """Everything that determines the tensors; `seed` enters only where something is drawn."""

    @staticmethod
    @abstractmethod
    def build(recipe: "Recipe") -> dict[str, np.ndarray]:
        """The tensors of a recipe of this kind, as `Backbone` describes them."""


class Recipe(BaseModel):
    """A backbone's resolved recipe: the same recipe gives the same tensors, in any process."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    kind: str
    heads: int
    layers: int
    width: int
    qk_dim: int
    seed: int | None  # None: nothing is drawn
    tied: bool
    mlp_gain: float | None  # None: no MLP
    unembedding: int | None  # columns p of the frozen unembedding, None: the program owns it
    # sparse only
    layout: Layout | None = None
    out_dim: int | None = None  # slots of a leaf of the tree; control low_rank: outputs p that the value rank is below
    # drawn kinds only
    distribution: Distribution | None = None
    values: Values | None = None
    qk_gain: float | None = None
    value_gain: float | None = None
    control: str | None = None
    # pretrained only
    source: str | None = None  # the trial whose trained weights these are

    @property
    def id(self) -> str:
        """The name of the backbone's file: a digest of the recipe and of the code that builds it."""
        return digest({"recipe": self.model_dump(), "code": code_digest([f"{__package__}.{self.kind}"])})[:16]


class Backbone(NamedTuple):
    """Frozen tensors and the recipe that they were built from.

    Drawn kinds (float32; one layer only where tied, S = number of stored layers):
        query, key      [S, H, m, k]
        value           [S, H, m, m / H] and output [S, H, m / H, m]   values = standard
        value           [S, H, m, m]                                   values = full
    Sparse (int64, indices of slots in a state padded to the tree's width where that exceeds m; l = 0 … S − 1):
        query, key      [S, H, k]     slots that head h reads
        source.l        [H, c_l]      slots that head h reads in layer l …
        destination.l   [c_l]         … and adds, weighted by attention, to these
    All kinds, where present:
        mlp_in [S, m, 4 m], mlp_out [S, 4 m, m], unembedding [m, p]
    """

    recipe: Recipe
    arrays: dict[str, np.ndarray]

    @property
    def digest(self) -> str:
        """SHA-256 of the tensors."""
        return array_digest(self.arrays)

    @property
    def card(self) -> dict[str, Any]:
        """What a reader wants to know: the recipe, shapes, number of frozen values, digest."""
        return {
            "recipe": self.recipe.model_dump(),
            "arrays": {name: {"dtype": str(a.dtype), "shape": list(a.shape)} for name, a in self.arrays.items()},
            "frozen_values": int(sum(a.size for a in self.arrays.values())),
            "digest": self.digest,
        }
