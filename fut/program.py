"""Programs on disk: what was trained, bound to the backbone that it was trained for."""

from pathlib import Path

import torch
from torch import Tensor, nn

from fut.digest import array_digest
from fut.files import CorruptFile, load_arrays, save_arrays


class ProgramError(ValueError):
    """A program that cannot be used: damaged, or made for another backbone."""


def save_program(path: Path, program: dict[str, Tensor], backbone_digest: str, trial: str) -> str:
    """Write a program as safetensors with its card beside it; returns its digest.

    Args:
        path: the file, ending in .safetensors.
        program: tensors by name, as `Transformer.program` gives them.
        backbone_digest: of the backbone that the program belongs to.
        trial: the trial that found it.
    """
    arrays = {name: tensor.cpu().numpy() for name, tensor in program.items()}
    save_arrays(path, arrays, {"backbone": backbone_digest, "trial": trial})
    return array_digest(arrays)


def load_program(path: Path, backbone_digest: str) -> dict[str, Tensor]:
    """Read a program for a backbone.

    Raises:
        ProgramError: the file is missing or damaged, or the program belongs to another backbone.
    """
    try:
        arrays, card = load_arrays(path)
    except FileNotFoundError as error:
        raise ProgramError(f"{path}: no such program") from error
    except CorruptFile as error:
        raise ProgramError(f"{error}; run its trial again") from error
    made_for = str(card.get("backbone"))
    if made_for != backbone_digest:
        raise ProgramError(
            f"{path}: made for the backbone {made_for[:16]}…, not for {backbone_digest[:16]}…; a program runs on its "
            "own backbone only"
        )
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def install(model: nn.Module, program: dict[str, Tensor]) -> None:
    """Put a program into a model that trains tensors of the same names and shapes.

    Raises:
        ProgramError: they do not match.
    """
    own = dict(model.named_parameters())
    shapes, given = ({name: tuple(tensor.shape) for name, tensor in held.items()} for held in (own, program))
    if shapes != given:
        raise ProgramError(f"the program holds {given}, but the model trains {shapes}")
    with torch.no_grad():
        for name, tensor in program.items():
            own[name].copy_(tensor)
