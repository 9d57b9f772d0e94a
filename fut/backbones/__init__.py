"""The backbones, by kind.  A new kind is one file beside these and one entry here."""

from typing import Annotated

from pydantic import Field

from fut.backbones.base import Backbone, BackboneConfig, Recipe
from fut.backbones.base import Shape as Shape
from fut.backbones.control import Control
from fut.backbones.pretrained import Pretrained
from fut.backbones.random import Random
from fut.backbones.sparse import Sparse
from fut.backbones.trained import Trained

BACKBONES: dict[str, type[BackboneConfig]] = {
    "sparse": Sparse,
    "random": Random,
    "control": Control,
    "trained": Trained,
    "pretrained": Pretrained,
}
AnyBackbone = Annotated[Sparse | Random | Control | Trained | Pretrained, Field(discriminator="kind")]


def build(recipe: Recipe) -> Backbone:
    """The backbone of a recipe: the same tensors for the same recipe, in any process."""
    return Backbone(recipe, BACKBONES[recipe.kind].build(recipe))
