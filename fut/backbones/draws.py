"""What the drawn kinds share: distributions, gains, named streams, and the configuration fields that go with them."""

from collections.abc import Callable
from typing import Any

import numpy as np
from pydantic import Field

from fut.backbones.base import BackboneConfig, Distribution, Recipe, Shape, Values
from fut.seeds import generator

HeadDraw = Callable[[Recipe, int, int], dict[str, np.ndarray]]
MLP_RATIO = 4  # hidden units of the MLP per unit of width


class Drawn(BackboneConfig):
    """Fields of every backbone that is drawn at random, frozen or not."""

    distribution: Distribution = Field("gaussian", description="of the entries; all have the same standard deviation")
    values: Values | None = Field(
        None,
        description="rank m / heads a head (standard) or m × m a head (full); None: "
        "full where the task has a target, standard elsewhere",
    )
    qk_gain: float = Field(1.0, ge=0, allow_inf_nan=False, description="scale of W_Q and of W_K")
    value_gain: float = Field(1.0, ge=0, allow_inf_nan=False, description="scale of a head's contribution")
    tied: bool = Field(False, description="whether all layers are the same")

    def problems(self, shape: Shape) -> list[str]:
        """Heads that do not divide the width, where `qk_dim` or the value rank is derived as width / heads."""
        derived = []
        if self.qk_dim is None and shape.target_qk_dim is None:
            derived.append("qk_dim")
        if self._values(shape) == "standard":
            derived.append("values")
        if not derived or shape.width % shape.heads == 0:
            return []
        remedy = " and ".join({"qk_dim": "give qk_dim", "values": "set values: full"}[name] for name in derived)
        below = shape.width - shape.width % shape.heads
        multiples = f"{below} or {below + shape.heads}" if below else f"{shape.heads}"
        return [
            f"{' and '.join(derived)}: derived as width / heads, but heads {shape.heads} do not divide width "
            f"{shape.width}: take width {multiples}, or {remedy}"
        ]

    def recipe(self, shape: Shape, seed: int) -> Recipe:
        """The resolved recipe: `qk_dim` is the target's where there is one, else width / heads."""
        return Recipe(
            kind=self.kind,
            heads=shape.heads,
            layers=shape.layers,
            width=shape.width,
            seed=seed,
            tied=self.tied,
            qk_dim=self.qk_dim or shape.target_qk_dim or shape.width // shape.heads,
            mlp_gain=self.mlp_gain if shape.mlp else None,
            unembedding=shape.out_dim if shape.fixed_unembedding else None,
            distribution=self.distribution,
            values=self._values(shape),
            qk_gain=self.qk_gain,
            value_gain=self.value_gain,
            **self._more(shape),
        )

    def _values(self, shape: Shape) -> Values:
        return self.values or ("standard" if shape.target_qk_dim is None else "full")

    def _more(self, shape: Shape) -> dict[str, Any]:
        """Fields of the recipe that only some drawn kinds have."""
        return {}


def draw_matrix(
    rng: np.random.Generator, rows: int, columns: int, deviation: float, distribution: Distribution
) -> np.ndarray:
    """A rows × columns matrix in float64 whose entries have mean 0 and the standard deviation asked for.

    Orthogonal: Haar-distributed orthonormal columns (rows, where there are fewer of them), times the factor that gives
    the entries that deviation; entries are then not independent.
    """
    match distribution:
        case "gaussian":
            return rng.standard_normal((rows, columns)) * deviation
        case "uniform":
            return rng.uniform(-1, 1, (rows, columns)) * (deviation * np.sqrt(3))
        case "laplace":
            return rng.laplace(0, 1, (rows, columns)) * (deviation / np.sqrt(2))
        case "orthogonal":
            longer, shorter = max(rows, columns), min(rows, columns)
            frame, triangle = np.linalg.qr(rng.standard_normal((longer, shorter)))
            frame *= np.sign(np.diag(triangle)) * (deviation * np.sqrt(longer))  # the signs make it Haar
            return frame if rows >= columns else frame.T


def draw_head(recipe: Recipe, layer: int, head: int) -> dict[str, np.ndarray]:
    """Query, key and value (and output, where values are standard) of one head, layer and head counted from 0.

    Standard deviations are 1/√fan-in times the gain.  The fan-in of the output projection is m, that of the one
    m × m matrix which all heads' projections make together.
    """
    m, k = recipe.width, recipe.qk_dim
    assert recipe.seed is not None and recipe.distribution is not None
    assert recipe.qk_gain is not None and recipe.value_gain is not None
    seed, distribution, unit = recipe.seed, recipe.distribution, 1 / np.sqrt(m)

    def draw(name: str, rows: int, columns: int, gain: float) -> np.ndarray:
        rng = generator(seed, "backbone", layer, head, name)
        return draw_matrix(rng, rows, columns, gain * unit, distribution)

    drawn = {"query": draw("query", m, k, recipe.qk_gain), "key": draw("key", m, k, recipe.qk_gain)}
    if recipe.values == "full":
        return drawn | {"value": draw("value", m, m, recipe.value_gain)}
    rank = m // recipe.heads
    return drawn | {"value": draw("value", m, rank, 1.0), "output": draw("output", rank, m, recipe.value_gain)}


def draw_backbone(recipe: Recipe, draw: HeadDraw = draw_head) -> dict[str, np.ndarray]:
    """All tensors of a drawn recipe, head by head from `draw`; shapes as `fut.backbones.base.Backbone` says."""
    drawn = [
        [_single_precision(draw(recipe, layer, head)) for head in range(recipe.heads)]
        for layer in range(stored_layers(recipe))
    ]
    arrays = {name: np.array([[head[name] for head in layer] for layer in drawn]) for name in drawn[0][0]}
    arrays |= draw_mlp(recipe)
    if recipe.unembedding is not None:
        assert recipe.seed is not None and recipe.distribution is not None
        rng = generator(recipe.seed, "unembedding")
        matrix = draw_matrix(rng, recipe.width, recipe.unembedding, 1 / np.sqrt(recipe.width), recipe.distribution)
        arrays |= _single_precision({"unembedding": matrix})
    return arrays


def draw_mlp(recipe: Recipe) -> dict[str, np.ndarray]:
    """The MLPs of a recipe, {} where it has none: mlp_in [S, m, 4 m] and mlp_out [S, 4 m, m], float32.

    Gaussian where the recipe names no distribution (sparse backbones).
    """
    if recipe.mlp_gain is None:
        return {}
    assert recipe.seed is not None
    seed, distribution = recipe.seed, recipe.distribution or "gaussian"
    m, hidden = recipe.width, MLP_RATIO * recipe.width

    def draw(name: str, rows: int, columns: int, gain: float) -> np.ndarray:
        layers = [generator(seed, "mlp", layer, name) for layer in range(stored_layers(recipe))]
        deviation = gain / np.sqrt(rows)
        return np.array([draw_matrix(rng, rows, columns, deviation, distribution) for rng in layers], dtype=np.float32)

    return {"mlp_in": draw("in", m, hidden, 1.0), "mlp_out": draw("out", hidden, m, recipe.mlp_gain)}


def stored_layers(recipe: Recipe) -> int:
    """S: the layers that are stored, one where all are the same."""
    return 1 if recipe.tied else recipe.layers


def _single_precision(matrices: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.asarray(matrix, np.float32, order="C") for name, matrix in matrices.items()}
