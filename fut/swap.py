"""One machine, many programs: two trained targets, compiled into one frozen random backbone.

A small `dyck` target and a small `khop` target are trained, both with residual connections and of one shape.  Their
programs are computed for the same backbone, whose digest never changes: what it does is what is written into its
embedding.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from fut.backbones import Random, Shape, build
from fut.backbones.files import save as save_backbone
from fut.compiler import Report, compile_program
from fut.machine import Machine, save_compiled, save_target
from fut.stack import stack_of
from fut.tasks.dyck import Dyck
from fut.tasks.khop import Khop
from fut.theory import sufficient_width
from fut.training_plan import Training
from fut.transfer import train_target

HEADS, LAYERS, DIM = 2, 2, 16  # of targets and machine
QK_DIM = DIM // HEADS
TRAINING = Training(steps=1_000, batch_size=64)
LEARNING_RATE = 3e-3
TASKS = (Dyck(max_length=16, train_size=20_000, test_size=1_000), Khop(train_size=20_000, test_size=1_000))


@dataclass(frozen=True)
class Swapped:
    """One of the two programs: how good its target is, and how well the machine does what the target does."""

    task: str
    accuracy: float  # of the target, on test
    report: Report
    agreement: float  # share of the asked test positions at which machine and target give the same answer, in float64
    agreement_single: float  # the same, the machine in float32
    backbone_digest: str  # of the machine that ran it
    machine: Path
    program: Path


def swap(folder: Path, seed: int = 0, say: Callable[[str], None] = lambda text: None) -> list[Swapped]:
    """Train the targets, build the machine, compile both programs, write all of it, and run one after the other.

    Args:
        folder: receives the targets, the machine and the programs, each with its card.
        seed: of the targets' training and of the machine.
        say: told what is going on.
    """
    out_dim = max(task.out_dim for task in TASKS)
    width = sufficient_width(HEADS, LAYERS, QK_DIM, out_dim, residual=True)
    shape = Shape(HEADS, LAYERS, width, mlp=False, out_dim=out_dim, target_qk_dim=QK_DIM, fixed_unembedding=True)
    machine = build(Random().recipe(shape, seed))
    path = save_backbone(machine, folder)
    say(f"one machine: random, H = {HEADS}, L = {LAYERS}, m = {width}, digest {machine.digest[:16]}… ({path})")
    found = []
    for task in TASKS:
        say(f"{task.name}: training a target of dimension {DIM}")
        trained = train_target(task, HEADS, LAYERS, DIM, TRAINING, LEARNING_RATE, seed)
        spare = out_dim - task.out_dim  # answers that this task does not have
        own = trained.target
        target = replace(own, unembedding=np.pad(own.unembedding, [(0, 0), (0, spare)]))
        save_target(folder / f"{task.name}.target.safetensors", target, task)
        say(f"{task.name}: compiling it into the machine")
        program, report = compile_program(target, machine)
        program_path = folder / f"{task.name}.program.safetensors"
        save_compiled(program_path, program, target, task, machine)
        loaded = Machine.load(path, program_path)
        answers, in_single = (trained.answers_of(compute) for compute in (loaded.outputs, partial(_single, loaded)))
        found.append(
            Swapped(
                task.name,
                trained.accuracy,
                report,
                trained.agreement(answers),
                trained.agreement(in_single),
                loaded.backbone.digest,
                path,
                program_path,
            )
        )
    return found


def _single(machine: Machine, tokens: np.ndarray) -> np.ndarray:
    """Outputs [B, n, p] of tokens [B, n], the machine in float32."""
    states = machine.token_embedding[tokens] + machine.position_embedding[: tokens.shape[1]]
    outputs = stack_of(machine.backbone).run(states.astype(np.float32), machine.residual)
    return outputs @ machine.unembedding.astype(np.float32)
