"""Controls: random backbones broken on purpose, universal at no width.

`identical_heads`: all heads of a layer have the same queries, keys and values, so that paths which differ only in their
heads ask for different contents in the same place.  `low_rank`: value matrices of a rank below p, so that the p outputs
of a full path cannot be set one by one.  Both make columns of Φ dependent, at every width.
"""

from typing import Any, Literal

import numpy as np

from fut.backbones.base import Recipe, Shape
from fut.backbones.draws import Drawn, draw_backbone, draw_head
from fut.seeds import generator

ControlName = Literal["identical_heads", "low_rank"]


class Control(Drawn):
    """A frozen random backbone that lacks one thing that universality needs."""

    kind: Literal["control"] = "control"
    control: ControlName

    def problems(self, shape: Shape) -> list[str]:
        """As for every drawn kind, and shapes in which the control would control nothing."""
        found = super().problems(shape)
        if self.control == "identical_heads" and shape.heads == 1:
            found.append("control: identical_heads needs at least 2 heads: take more heads, or control: low_rank")
        if self.control == "low_rank" and shape.out_dim == 1:
            found.append(
                "control: low_rank needs a task with at least 2 outputs, since a value of rank 0 would carry "
                "nothing: take such a task, or control: identical_heads"
            )
        return found

    @staticmethod
    def build(recipe: Recipe) -> dict[str, np.ndarray]:
        """The drawn tensors, with the fault put in."""
        return draw_backbone(recipe, _identical_head if recipe.control == "identical_heads" else _low_rank_head)

    def _more(self, shape: Shape) -> dict[str, Any]:
        return {"control": self.control, "out_dim": shape.out_dim if self.control == "low_rank" else None}


def _identical_head(recipe: Recipe, layer: int, head: int) -> dict[str, np.ndarray]:
    return draw_head(recipe, layer, 0)


def _low_rank_head(recipe: Recipe, layer: int, head: int) -> dict[str, np.ndarray]:
    """A head whose value matrix repeats its first p − 1 columns, each time with a sign of its own.

    So its rank is exact in float32 too, where that of a product of two factors would be lost in rounding, and its
    entries keep their distribution.
    """
    assert recipe.out_dim is not None and recipe.seed is not None
    drawn = draw_head(recipe, layer, head)
    columns = drawn["value"].shape[1]
    signs = generator(recipe.seed, "backbone", layer, head, "signs").choice([-1.0, 1.0], columns)
    return drawn | {"value": drawn["value"][:, np.arange(columns) % (recipe.out_dim - 1)] * signs}
