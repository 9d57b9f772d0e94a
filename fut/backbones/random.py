"""The random backbone: frozen weights drawn from an absolutely continuous distribution (or orthogonal ones).

Almost every draw is universal from the sufficient width on.  Orthogonal draws are not absolutely continuous and stand
outside that theorem: an empirical case.
"""

from typing import Literal

import numpy as np

from fut.backbones.base import Recipe
from fut.backbones.draws import Drawn, draw_backbone


class Random(Drawn):
    """A frozen random backbone."""

    kind: Literal["random"] = "random"

    @staticmethod
    def build(recipe: Recipe) -> dict[str, np.ndarray]:
        """The drawn tensors."""
        return draw_backbone(recipe)
