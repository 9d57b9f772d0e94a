"""Targets, backbones and programs as files, and a frozen machine that is asked in words.

A compiled program's card names its backbone's digest, its task and its connections, so that machine and program are all
that is needed to ask it something.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import TypeAdapter, ValidationError

from fut.backbones.base import Backbone, Recipe
from fut.backbones.draws import MLP_RATIO, stored_layers
from fut.backbones.trees import tree_width
from fut.compiler import CompileError, Program, Target
from fut.config import TrialConfig
from fut.files import CorruptFile, load_arrays, save_arrays
from fut.program import load_program
from fut.stack import stack_of
from fut.tasks import AnyTask
from fut.tasks.base import Task
from fut.tasks.dyck import Dyck, encode
from fut.tasks.khop import Khop

LETTERS = "abcdefghijklmnopqrstuvwxyz"
SHOWN = 40  # characters of a text that is refused
TASK: TypeAdapter[Any] = TypeAdapter(AnyTask)


class FileError(ValueError):
    """A file that cannot be used, and why."""


def target_of(config: TrialConfig, tensors: Mapping[str, np.ndarray]) -> Target:
    """A trained transformer as a target.

    Args:
        config: a trial of kind `trained` over tokens.
        tensors: what it trained, by name, as `Transformer.program` gives it.

    Raises:
        CompileError: it has LayerNorm or an MLP, which the theory leaves open, is not trained whole, or reads vectors.
    """
    faults = [
        f"it has {name}, which the theory leaves open"
        for name, switch in (("LayerNorm", "layernorm"), ("an MLP", "mlp"))
        if config.has(switch)  # type: ignore[arg-type]
    ]
    if config.backbone.kind != "trained":
        faults.append(f"its backbone is of kind {config.backbone.kind}, and only a trained one is its own")
    if config.task.vocabulary is None:
        faults.append(f"task {config.task.name} reads vectors, and this is for tokens")
    if faults:
        raise CompileError("this trial is no target: " + "; ".join(faults))
    value = tensors["attention.value"].astype(np.float64)
    if "attention.output" in tensors:
        value = value @ tensors["attention.output"].astype(np.float64)
    stored = {"query": tensors["attention.query"], "key": tensors["attention.key"], "value": value}
    return Target(
        **{name: np.repeat(array, config.layers // len(array), axis=0) for name, array in stored.items()},
        unembedding=tensors["unembedding"],
        residual=config.has("residual"),
        token_embedding=tensors["token_embedding"],
        position_embedding=tensors["position_embedding"],
    )


def save_target(path: Path, target: Target, task: Task | None = None) -> None:
    """Write a target, and the task that it was trained for, as safetensors with a card beside it."""
    card = {"residual": target.residual, "task": task.model_dump(mode="json") if task else None}
    save_arrays(path, arrays_of(target), card)


def arrays_of(target: Target) -> dict[str, np.ndarray]:
    """The arrays of a target, by name."""
    return {
        field.name: value for field in fields(target) if isinstance(value := getattr(target, field.name), np.ndarray)
    }


def load_target(path: Path) -> tuple[Target, Task | None]:
    """A target and its task, if it has one.

    Raises:
        FileError: the file is missing, damaged, or no target.
    """
    arrays, card = _load(path)
    names = {field.name for field in fields(Target)} - {"residual"}
    optional = {"token_embedding", "position_embedding"}
    if (missing := names - optional - set(arrays)) or (more := set(arrays) - names):
        said = f"it lacks {_listed(missing)}" if missing else f"nothing is known of {_listed(more)} in it"
        raise FileError(f"{path}: no target, {said}")
    try:
        target = Target(**arrays, residual=_residual(path, card, "target"))
    except CompileError as error:
        raise FileError(f"{path}: {error}") from error
    task = _task(path, card)
    if task and target.token_embedding is not None and target.position_embedding is not None:
        _require_shapes(path, task, target.dim, target.token_embedding, target.position_embedding, target.unembedding)
    return target, task


def load_backbone(path: Path) -> Backbone:
    """A backbone's file, wherever it lies.

    Raises:
        FileError: the file is missing, damaged, or no backbone.
    """
    arrays, card = _load(path)
    try:
        recipe = Recipe.model_validate(card.get("recipe"))
        if recipe.layout is not None:
            tree_width(recipe)
    except ValueError as error:  # also pydantic's
        raise FileError(f"{path}: no backbone, its card holds no recipe") from error
    if faults := _misfits(recipe, arrays):
        raise FileError(f"{path}: not the backbone of its card's recipe: {'; '.join(faults)}")
    return Backbone(recipe, arrays)


def _misfits(recipe: Recipe, arrays: Mapping[str, np.ndarray]) -> list[str]:
    """What is wrong with arrays that should be those of a recipe: names, shapes, values that cannot be used."""
    h, m, k, stored = recipe.heads, recipe.width, recipe.qk_dim, stored_layers(recipe)
    shapes: dict[str, tuple[int, ...]]
    if recipe.layout is None:
        rank = m if recipe.values == "full" else m // max(h, 1)
        shapes = {"query": (stored, h, m, k), "key": (stored, h, m, k), "value": (stored, h, m, rank)}
        if recipe.values != "full":
            shapes["output"] = (stored, h, rank, m)
    else:
        shapes = {"query": (stored, h, k), "key": (stored, h, k)}
        for layer in range(min(stored, len(arrays))):
            moved = arrays[f"destination.{layer}"].size if f"destination.{layer}" in arrays else 0
            shapes |= {f"source.{layer}": (h, moved), f"destination.{layer}": (moved,)}
    slots = set(shapes) if recipe.layout else set()
    if recipe.mlp_gain is not None:
        shapes |= {"mlp_in": (stored, m, MLP_RATIO * m), "mlp_out": (stored, MLP_RATIO * m, m)}
    if recipe.unembedding is not None:
        shapes["unembedding"] = (m, recipe.unembedding)
    faults = []
    for name in sorted(arrays.keys() | shapes.keys()):
        if name not in arrays or name not in shapes:
            faults.append(f"{name} is " + ("missing" if name in shapes else "no part of it"))
            continue
        array = arrays[name]
        if array.shape != shapes[name]:
            faults.append(f"{name} has shape {array.shape}, not {shapes[name]}")
        if name in slots and (array.dtype.kind != "i" or not ((array >= 0) & (array < tree_width(recipe))).all()):
            faults.append(f"{name} holds what is no slot of the tree")
        if not np.isfinite(array).all():
            faults.append(f"{name} holds values that are not finite")
    return faults


def save_compiled(path: Path, program: Program, target: Target, task: Task | None, backbone: Backbone) -> None:
    """Write a compiled program in the names of `Transformer`, in float64."""
    card = {
        "backbone": backbone.digest,
        "method": "compiled",
        "residual": target.residual,
        "task": task.model_dump(mode="json") if task else None,
    }
    save_arrays(path, _program_arrays(program, target), card)


def _program_arrays(program: Program, target: Target) -> dict[str, np.ndarray]:
    """A compiled program in the names of `Transformer`, in float64."""
    arrays = {"token_embedding": program.embedding, "unembedding": program.unembedding}
    if target.token_embedding is not None and target.position_embedding is not None:
        arrays |= {
            name: embedding.astype(np.float64) @ program.embedding
            for name, embedding in (
                ("token_embedding", target.token_embedding),
                ("position_embedding", target.position_embedding),
            )
        }
    return arrays


class Machine(NamedTuple):
    """A backbone with a program loaded into it, in float64."""

    backbone: Backbone
    task: Task
    residual: bool
    token_embedding: np.ndarray  # [v, m]
    position_embedding: np.ndarray  # [n, m]
    unembedding: np.ndarray  # [m, p]

    @classmethod
    def of(cls, backbone: Backbone, task: Task, target: Target, program: Program) -> "Machine":
        """Put the compiled program of a target over tokens into its backbone."""
        return cls(backbone, task, target.residual, **_program_arrays(program, target))

    @classmethod
    def load(cls, backbone: Path, program: Path) -> "Machine":
        """Put a program's file into a backbone's.

        Raises:
            FileError: either cannot be used, or the card names no task over tokens.
            ProgramError: the program belongs to another backbone.
        """
        frozen = load_backbone(backbone)
        arrays, card = _load(program)
        if "backbone" not in card:
            raise FileError(f"{program}: no program, its card names no backbone")
        load_program(program, frozen.digest)  # refuses that of another
        task = _task(program, card)
        if task is None or "position_embedding" not in arrays:
            raise FileError(f"{program}: its card names no task over tokens, so that it cannot be asked in words")
        if names := {"token_embedding", "position_embedding", "unembedding"} ^ set(arrays):
            raise FileError(f"{program}: no compiled program, {_listed(names)} is missing in it or unknown")
        _require_shapes(program, task, frozen.recipe.width, **arrays)
        return cls(frozen, task, _residual(program, card, "compiled program"), **arrays)

    def outputs(self, tokens: np.ndarray) -> np.ndarray:
        """Outputs [B, n, p] of tokens [B, n]."""
        states = self.token_embedding[tokens] + self.position_embedding[: tokens.shape[1]]
        return stack_of(self.backbone).run(states, self.residual) @ self.unembedding

    def ask(self, text: str) -> list["Answer"]:
        """The answers to a text, in order.

        Raises:
            ValueError: it is no text of the program's task; the message says what would be.
        """
        if self.task.name not in LANGUAGES:
            raise ValueError(f"task {self.task.name} has no language")
        tokens, asked, words = LANGUAGES[self.task.name](self.task, text)
        scores = self.outputs(np.array([tokens]))[0][asked, : self.task.out_dim]  # more columns are another task's
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        return [Answer(words[best], float(row[best])) for row, best in zip(shares, shares.argmax(-1), strict=True)]


class Answer(NamedTuple):
    """What a machine says, and the share of all classes' probability that it gives to it."""

    word: str
    confidence: float


Question = tuple[list[int], list[int], list[str]]  # tokens, positions asked, the classes' names


def _dyck(task: Dyck, text: str) -> Question:
    if odd := sorted(set(text) - set("()")):
        raise ValueError(f"{_quoted(''.join(odd))} in {_quoted(text)}: write ( and ) only")
    if len(text) > task.max_length:
        raise ValueError(f"{_quoted(text)} has {len(text)} characters, and the program reads at most {task.max_length}")
    word = np.array([["()".index(character) for character in text]], dtype=np.uint8).reshape(1, -1)
    tokens, _ = encode(word, balanced=True, positions=task.positions)
    return tokens[0, : len(text) + 1].tolist(), [len(text)], ["not balanced", "balanced"]


def _khop(task: Khop, text: str) -> Question:
    letters = LETTERS[: task.alphabet]
    if odd := sorted(set(text) - set(letters)):
        raise ValueError(f"{_quoted(''.join(odd))} in {_quoted(text)}: the program's alphabet is {letters}")
    if not 0 < len(text) <= task.length:
        raise ValueError(f"{_quoted(text)} has {len(text)} characters, and the program reads 1 to {task.length}")
    return [letters.index(character) for character in text], list(range(len(text))), list(letters)


LANGUAGES: dict[str, Callable[[Any, str], Question]] = {"dyck": _dyck, "khop": _khop}


def _quoted(text: str) -> str:
    return repr(text if len(text) <= SHOWN else text[:SHOWN] + "…")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _load(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    try:
        return load_arrays(path)
    except FileNotFoundError as error:
        raise FileError(f"{path}: no such file") from error
    except CorruptFile as error:
        raise FileError(f"{path}: {error.reason}" + f" ({error.path.name})" * (error.path != path)) from error
    except OSError as error:
        raise FileError(f"{error.filename or path}: cannot be read ({error.strerror})") from error


def _task(path: Path, card: Mapping[str, Any]) -> Task | None:
    try:
        return TASK.validate_python(card["task"]) if card.get("task") else None
    except ValidationError as error:
        raise FileError(f"{path}: its card names a task that this code does not know") from error


def _residual(path: Path, card: Mapping[str, Any], kind: str) -> bool:
    residual = card.get("residual")
    if not isinstance(residual, bool):
        raise FileError(f"{path}: no {kind}, whose card would say of `residual` that it is true or false")
    return residual


def _require_shapes(
    path: Path, task: Task, width: int, token_embedding: np.ndarray, position_embedding: np.ndarray,
    unembedding: np.ndarray,
) -> None:  # fmt: skip
    """Refuse what cannot be asked about the task that its card names."""
    if task.vocabulary is None:
        raise FileError(f"{path}: its card names task {task.name}, which reads no tokens")
    columns = unembedding.shape[-1] if unembedding.ndim else 0
    faults = [
        f"{name} has shape {array.shape}, not {shape}"
        for name, array, shape in (
            ("token_embedding", token_embedding, (task.vocabulary, width)),
            ("position_embedding", position_embedding, (task.positions, width)),
            ("unembedding", unembedding, (width, max(columns, task.out_dim))),  # more columns are another task's
        )
        if array.shape != shape
    ]
    faults += ["it holds values that are not finite"] * (
        not all(np.isfinite(array).all() for array in (token_embedding, position_embedding, unembedding))
    )
    if faults:
        raise FileError(f"{path}: not for the task {task.name} of its card: {'; '.join(faults)}")
