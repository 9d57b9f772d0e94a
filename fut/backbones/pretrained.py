"""The reprogrammed machine: weights that were trained for another task, and are frozen now.

They are those of a finished trial of kind `trained`, the source, which has the same shape, components and seed.
Nothing is drawn or built: the tensors are read from the program that the source left.
"""

from pathlib import Path
from typing import Any, Literal

import numpy as np

from fut.backbones.base import Backbone, BackboneConfig, Recipe, Shape
from fut.files import CorruptFile, load_arrays

FROZEN = ("query", "key", "value", "output", "mlp_in", "mlp_out")  # what is not the source's program


class SourceMissing(LookupError):
    """The program of a source that is not there, or not usable."""


class Pretrained(BackboneConfig):
    """Trained weights of another trial, frozen; which trial, a trial's own `source` says."""

    kind: Literal["pretrained"] = "pretrained"

    def problems(self, shape: Shape) -> list[str]:
        """Fields that belong to the source's backbone."""
        given = [
            name for name in ("qk_dim", "mlp_gain") if getattr(self, name) != self.__class__.model_fields[name].default
        ]
        return [f"{name}: is the source's own: give it there, as source.backbone.{name}" for name in given]

    def recipe(self, shape: Shape, seed: int) -> Recipe:
        """It is the source's: `fut.config.TrialConfig.recipe` makes it."""
        raise SourceMissing("a pretrained backbone has the recipe of its source")

    @staticmethod
    def build(recipe: Recipe) -> dict[str, np.ndarray]:
        """There is nothing to build: `read` reads it."""
        raise SourceMissing("a pretrained backbone is not built, but read from the program of its source")


def read(recipe: Recipe, program: Path) -> Backbone:
    """The backbone of a recipe of this kind.

    Args:
        recipe: what is wanted.
        program: the file that the source left.

    Raises:
        SourceMissing: the file is missing, damaged, or another trial's.
    """
    name = str(recipe.source)[:12]
    try:
        arrays, card = load_arrays(program)
    except FileNotFoundError as error:
        raise SourceMissing(f"{program}: the source {name} has left no program here; run it first") from error
    except CorruptFile as error:
        raise SourceMissing(f"{error}; run the source {name} again") from error
    if card.get("trial") != recipe.source:
        raise SourceMissing(f"{program}: is not the program of the source {name}")
    tensors: dict[str, Any] = {key.removeprefix("attention."): array for key, array in arrays.items()}
    return Backbone(recipe, {key: tensors[key] for key in FROZEN if key in tensors})
