"""Datasets on disk: one safetensors file and one card per recipe, named by a digest of the recipe and its code."""

import warnings
from pathlib import Path
from typing import Any

from fut.digest import array_digest, code_digest, digest
from fut.files import SUFFIX, CorruptFile, load_arrays, save_arrays, set_aside
from fut.tasks.base import Arrays, Task

Card = dict[str, Any]


def dataset_id(task: Task) -> str:
    """The name of a task's dataset: a digest of its recipe and of the code that generates it."""
    return digest({"recipe": task.data_recipe(), "code": code_digest([type(task).__module__])})[:16]


def path_of(task: Task, folder: Path) -> Path:
    """Where the dataset of a task lies in a folder."""
    return folder / f"{dataset_id(task)}{SUFFIX}"


def build(task: Task) -> tuple[Arrays, Card]:
    """Generate a task's dataset.

    Returns:
        The arrays, and their card: the recipe, what the task says of the data (sizes, class balance, repeats), the
        accuracies of the reference rules on test, and the digest of the arrays.
    """
    arrays = task.generate()
    card = {
        "recipe": task.data_recipe(),
        "arrays": {name: {"dtype": str(array.dtype), "shape": list(array.shape)} for name, array in arrays.items()},
        "bytes": sum(array.nbytes for array in arrays.values()),
        "digest": array_digest(arrays),
        "references": task.references(arrays),
        **task.card(arrays),
    }
    return arrays, card


def load(task: Task, folder: Path) -> tuple[Arrays, Card]:
    """A task's dataset and its card, read back and checked.

    Raises:
        FileNotFoundError: this dataset has not been saved there.
        CorruptFile: file or card cannot be read, their digests differ, or the card is another dataset's.
    """
    path = path_of(task, folder)
    arrays, card = load_arrays(path)
    if card.get("recipe") != task.data_recipe() or "references" not in card:
        raise CorruptFile(path, "its card describes another dataset")
    return arrays, card


def ensure_dataset(task: Task, folder: Path) -> tuple[Arrays, Card]:
    """A task's dataset and its card: read where it has been saved, else generated and saved.

    A corrupt file is named in a warning, set aside, and made again.
    """
    try:
        return load(task, folder)
    except FileNotFoundError:
        pass
    except CorruptFile as error:
        aside = set_aside(path_of(task, folder))
        warnings.warn(f"{error.path}: {error.reason}. Set aside as {aside.name} and generated again", stacklevel=2)
    arrays, card = build(task)
    save_arrays(path_of(task, folder), arrays, card)
    return arrays, card
