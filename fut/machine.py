"""Targets, backbones and programs as files, and a frozen machine that is asked in words.

A compiled program's card names its backbone's digest, its task and its connections, so that machine and program are all
that is needed to ask it something.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import TypeAdapter, ValidationError

from fut.backbones.base import Backbone, Recipe
from fut.compiler import CompileError, Program, Target
from fut.config import TrialConfig
from fut.files import CorruptFile, card_path, load_arrays, save_arrays
from fut.program import load_program
from fut.stack import stack_of
from fut.tasks import AnyTask
from fut.tasks.base import Task
from fut.tasks.dyck import Dyck, encode
from fut.tasks.khop import Khop

LETTERS = "abcdefghijklmnopqrstuvwxyz"
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
    try:
        return Target(**arrays, residual=bool(card["residual"])), _task(card)
    except (TypeError, KeyError, CompileError) as error:
        raise FileError(f"{path}: no target ({error})") from error


def load_backbone(path: Path) -> Backbone:
    """A backbone's file, wherever it lies.

    Raises:
        FileError: the file is missing, damaged, or no backbone.
    """
    arrays, card = _load(path)
    try:
        return Backbone(Recipe.model_validate(card.get("recipe")), arrays)
    except ValidationError as error:
        raise FileError(f"{path}: no backbone, its card holds no recipe") from error


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
            ProgramError: the program is missing, damaged, or belongs to another backbone.
        """
        frozen = load_backbone(backbone)
        arrays = {name: tensor.numpy() for name, tensor in load_program(program, frozen.digest).items()}
        card = json.loads(card_path(program).read_bytes())
        task = _task(card)
        if task is None or "position_embedding" not in arrays:
            raise FileError(f"{program}: its card names no task over tokens, so that it cannot be asked in words")
        return cls(frozen, task, bool(card.get("residual")), **arrays)

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
        raise ValueError(f"{''.join(odd)!r} in {text!r}: write ( and ) only")
    if len(text) > task.max_length:
        raise ValueError(f"{text!r} has {len(text)} characters, and the program reads at most {task.max_length}")
    word = np.array([["()".index(character) for character in text]], dtype=np.uint8).reshape(1, -1)
    tokens, _ = encode(word, balanced=True, positions=task.positions)
    return tokens[0, : len(text) + 1].tolist(), [len(text)], ["not balanced", "balanced"]


def _khop(task: Khop, text: str) -> Question:
    letters = LETTERS[: task.alphabet]
    if odd := sorted(set(text) - set(letters)):
        raise ValueError(f"{''.join(odd)!r} in {text!r}: the program's alphabet is {letters}")
    if not 0 < len(text) <= task.length:
        raise ValueError(f"{text!r} has {len(text)} characters, and the program reads 1 to {task.length}")
    return [letters.index(character) for character in text], list(range(len(text))), list(letters)


LANGUAGES: dict[str, Callable[[Any, str], Question]] = {"dyck": _dyck, "khop": _khop}


def _load(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    try:
        return load_arrays(path)
    except FileNotFoundError as error:
        raise FileError(f"{path}: no such file") from error
    except (CorruptFile, OSError) as error:
        raise FileError(str(error)) from error


def _task(card: Mapping[str, Any]) -> Task | None:
    try:
        return TASK.validate_python(card["task"]) if card.get("task") else None
    except ValidationError as error:
        raise FileError("the card names a task that this code does not know") from error
