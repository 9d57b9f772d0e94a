"""Backbones on disk: one safetensors file and one card per recipe, named by the recipe's id."""

import warnings
from collections.abc import Callable
from pathlib import Path

from fut.backbones import build
from fut.backbones.base import Backbone, Recipe
from fut.backbones.pretrained import SourceMissing, read
from fut.files import SUFFIX, CorruptFile, load_arrays, save_arrays, set_aside


class CorruptBackbone(CorruptFile):
    """A backbone's file that is not what its recipe asks for."""


def path_of(recipe: Recipe, folder: Path) -> Path:
    """Where the backbone of a recipe lies in a folder."""
    return folder / f"{recipe.id}{SUFFIX}"


def save(backbone: Backbone, folder: Path) -> Path:
    """Writes a backbone and its card; returns the path of the arrays."""
    path = path_of(backbone.recipe, folder)
    save_arrays(path, backbone.arrays, backbone.card)
    return path


def load(recipe: Recipe, folder: Path) -> Backbone:
    """The backbone of a recipe, read back and checked.

    Raises:
        FileNotFoundError: no backbone of this recipe has been saved there.
        CorruptBackbone: file or card cannot be read, their digests differ, or the card names another recipe.
    """
    path = path_of(recipe, folder)
    remedy = "move the file and its card away, and it is built again from its recipe"
    try:
        arrays, card = load_arrays(path)
    except CorruptFile as error:
        raise CorruptBackbone(error.path, f"{error.reason}: {remedy}") from error
    if card.get("recipe") != recipe.model_dump(mode="json"):
        raise CorruptBackbone(path, f"its card describes another recipe: {remedy}")
    return Backbone(recipe, arrays)


def ensure_backbone(recipe: Recipe, folder: Path, programs: Callable[[str], Path] | None = None) -> Backbone:
    """The backbone of a recipe: read where it has been saved, else built and saved.

    A corrupt file is named in a warning, set aside, and made again.

    Args:
        recipe: what is wanted.
        folder: of the backbones.
        programs: where the program of a finished trial lies, by the trial's id; pretrained backbones are read there.

    Raises:
        SourceMissing: a pretrained backbone's source has left no program there.
    """
    if recipe.source is not None:
        if programs is None:
            raise SourceMissing(
                f"the weights of trial {recipe.source[:12]} are wanted, and there is no store of programs"
            )
        return read(recipe, programs(recipe.source))
    try:
        return load(recipe, folder)
    except FileNotFoundError:
        pass
    except CorruptBackbone as error:
        aside = set_aside(path_of(recipe, folder))
        warnings.warn(f"{error}. Done: the file now lies aside as {aside.name}", stacklevel=2)
    backbone = build(recipe)
    save(backbone, folder)
    return backbone
