"""Any backbone's attention as plain matrices: the form that the theory speaks of."""

import numpy as np

from fut.backbones.base import Backbone
from fut.backbones.trees import tree_width


def dense(backbone: Backbone) -> dict[str, np.ndarray]:
    """The equivalent dense weights, in float64: query and key [L, H, m, k], value [L, H, m, m].

    Tied layers are repeated L times, value and output projections multiplied, slots of a sparse tree beyond the width
    dropped.  MLP and unembedding are not part of it.
    """
    recipe, arrays = backbone.recipe, backbone.arrays
    if recipe.layout is not None:
        matrices = _from_slots(backbone)
    else:
        matrices = {name: arrays[name].astype(np.float64) for name in ("query", "key", "value")}
        if "output" in arrays:
            matrices["value"] = matrices["value"] @ arrays["output"].astype(np.float64)
    if recipe.tied:
        matrices = {name: np.repeat(matrix, recipe.layers, axis=0) for name, matrix in matrices.items()}
    return matrices


def _from_slots(backbone: Backbone) -> dict[str, np.ndarray]:
    recipe, arrays = backbone.recipe, backbone.arrays
    layers, heads, k = arrays["query"].shape
    slots = max(recipe.width, tree_width(recipe))
    matrices = {name: np.zeros((layers, heads, slots, k)) for name in ("query", "key")}
    matrices["value"] = np.zeros((layers, heads, slots, slots))
    for layer in range(layers):
        for head in range(heads):
            for name in ("query", "key"):
                matrices[name][layer, head, arrays[name][layer, head], np.arange(k)] = 1
            matrices["value"][layer, head, arrays[f"source.{layer}"][head], arrays[f"destination.{layer}"]] = 1
    m = recipe.width
    return {
        "query": matrices["query"][:, :, :m],
        "key": matrices["key"][:, :, :m],
        "value": matrices["value"][:, :, :m, :m],
    }
