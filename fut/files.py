"""Arrays on disk: a safetensors file and a readable card beside it, written whole and checked when read.

Datasets, backbones and programs are kept like this.  Nothing is ever unpickled.
"""

import contextlib
import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from fut.digest import array_digest

SUFFIX = ".safetensors"


class CorruptFile(ValueError):
    """A file that is not what its card says; `path` is the file and `reason` what is wrong with it."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason

    def __reduce__(self) -> tuple[type["CorruptFile"], tuple[Path, str]]:
        return type(self), (self.path, self.reason)  # crosses process borders whole


def card_path(path: Path) -> Path:
    """Where the card of an array file lies: beside it, with the suffix .json."""
    return path.with_suffix(".json")


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a file that readers see whole or not at all, whatever stops this process; makes the folder if missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray], card: Mapping[str, Any]) -> None:
    """Writes arrays to `path` (ending in .safetensors) and their card, with the arrays' digest added, beside it.

    The arrays come last, so that where they are, their card is: who finds none makes them, and nobody waits.
    """
    content = safetensors.save({name: np.asarray(array, order="C") for name, array in arrays.items()})
    text = json.dumps({**card, "digest": array_digest(arrays)}, indent=2, sort_keys=True, allow_nan=False)
    write_atomically(card_path(path), (text + "\n").encode())
    write_atomically(path, content)


def load_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays of a file and its card, the first checked against the digest in the second.

    Raises:
        FileNotFoundError: there is no such file.
        CorruptFile: file or card cannot be read, the card is missing, or the digests differ.
    """
    content = path.read_bytes()
    card = _load_card(card_path(path))
    try:
        arrays = safetensors.load(content)
    except (SafetensorError, KeyError, ValueError) as error:
        raise CorruptFile(path, f"not a readable safetensors file ({error})") from error
    if (found := array_digest(arrays)) != card["digest"]:
        raise CorruptFile(
            path, f"its digest is {found[:16]}…, but its card {card_path(path).name} says {str(card['digest'])[:16]}…"
        )
    return arrays, card


def set_aside(path: Path) -> Path:
    """Moves an array file and its card out of the way, for a person to look at; returns the new path of the arrays."""
    aside = path.with_name(f"{path.name}.set_aside")
    for old, new in ((card_path(path), aside.with_name(f"{aside.name}.json")), (path, aside)):
        with contextlib.suppress(FileNotFoundError):  # another process may have been faster
            os.replace(old, new)
    return aside


def _load_card(path: Path) -> dict[str, Any]:
    try:
        card = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise CorruptFile(path, "the card is missing") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CorruptFile(path, f"the card is not readable JSON ({error})") from error
    if not isinstance(card, dict) or "digest" not in card:
        raise CorruptFile(path, "the card holds no digest")
    return card
