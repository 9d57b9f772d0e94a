"""One machine, many programs: two trained targets, compiled into one frozen random backbone.

A small `dyck` target and a small `khop` target are trained, both with residual connections and of one shape.  Their
programs are computed for the same backbone, whose digest never changes: what it does is what is written into its
embedding.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fut.backbones import Random, Shape, Trained, build
from fut.backbones.files import save as save_backbone
from fut.compiler import Report, Target, compile_program
from fut.config import TrialConfig
from fut.machine import Machine, save_compiled, save_target, target_of
from fut.stack import stack_of
from fut.tasks.base import Arrays
from fut.tasks.dyck import Dyck
from fut.tasks.khop import Khop
from fut.theory import sufficient_width
from fut.training import train
from fut.training_plan import Training
from fut.transformer import Transformer

HEADS, LAYERS, DIM = 2, 2, 16  # of targets and machine
QK_DIM = DIM // HEADS
TRAINING = Training(steps=1_000, batch_size=64)
LEARNING_RATE = 3e-3
TASKS = (Dyck(max_length=16, train_size=20_000, test_size=1_000), Khop(train_size=20_000, test_size=1_000))
SEQUENCES = 100  # at a time: bounds the memory


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
        config = TrialConfig(
            task=task,
            backbone=Trained(),
            components="residual",
            heads=HEADS,
            layers=LAYERS,
            width=DIM,
            training=TRAINING,
            learning_rate=LEARNING_RATE,
            seed=seed,
        )
        say(f"{task.name}: training a target of dimension {DIM}")
        arrays = task.generate()
        model = Transformer(config, build(config.recipe))
        outcome = train(config, model, task.examples(arrays, HEADS, LAYERS, seed))
        target = target_of(config, {name: tensor.numpy() for name, tensor in model.program().items()})
        spare = out_dim - task.out_dim  # answers that this task does not have
        target = replace(target, unembedding=np.pad(target.unembedding, [(0, 0), (0, spare)]))
        save_target(folder / f"{task.name}.target.safetensors", target, task)
        say(f"{task.name}: compiling it into the machine")
        program, report = compile_program(target, machine)
        program_path = folder / f"{task.name}.program.safetensors"
        save_compiled(program_path, program, target, task, machine)
        loaded = Machine.load(path, program_path)
        double, single = _agreement(target, loaded, arrays)
        found.append(
            Swapped(
                task.name,
                outcome.test["accuracy"] or 0.0,
                report,
                double,
                single,
                loaded.backbone.digest,
                path,
                program_path,
            )
        )
    return found


def _agreement(target: Target, machine: Machine, arrays: Arrays) -> tuple[float, float]:
    """Over the asked positions of the test split, with the machine in float64 and in float32."""
    same, single, asked = 0, 0, 0
    stack, classes = stack_of(machine.backbone), machine.task.out_dim
    for start in range(0, len(arrays["test/inputs"]), SEQUENCES):
        tokens = arrays["test/inputs"][start : start + SEQUENCES]
        where = arrays["test/labels"][start : start + SEQUENCES] >= 0
        wanted = target(tokens)[where][:, :classes].argmax(-1)
        same += int((machine.outputs(tokens)[where][:, :classes].argmax(-1) == wanted).sum())
        states = machine.token_embedding[tokens] + machine.position_embedding[: tokens.shape[1]]
        outputs = stack.run(states.astype(np.float32), machine.residual) @ machine.unembedding.astype(np.float32)
        single += int((outputs[where][:, :classes].argmax(-1) == wanted).sum())
        asked += len(wanted)
    return same / asked, single / asked
