"""The baseline: weights drawn like those of the random backbone, which then train together with the program."""

from typing import Literal

import numpy as np

from fut.backbones.base import Recipe
from fut.backbones.draws import Drawn, draw_backbone


class Trained(Drawn):
    """A random initialisation of which nothing is frozen; it goes with `trainable: all`."""

    kind: Literal["trained"] = "trained"

    @staticmethod
    def build(recipe: Recipe) -> dict[str, np.ndarray]:
        """The initial tensors."""
        return draw_backbone(recipe)
