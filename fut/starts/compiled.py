"""The compiled program as a start: of training, or of nothing, where it is the result."""

import time
from typing import Any

import numpy as np
import torch

from fut.backbones.base import Backbone
from fut.compiler import Target, compile_program
from fut.config import TrialConfig
from fut.program import install
from fut.seeds import generator
from fut.tasks.simulate import Simulate
from fut.transformer import Transformer


def start(config: TrialConfig, backbone: Backbone, model: Transformer) -> dict[str, Any]:
    """Compile the trial's target into its backbone, and put the program into the model, in the model's precision.

    U is compiled too where it belongs to the program (`trainable: program`).  With `init_noise` ε, Gaussian noise is
    added to each matrix, of a standard deviation of ε times the root mean square of the matrix.

    Args:
        config: a trial that is `compilable`.
        backbone: its backbone.
        model: the transformer; its parameters are changed in place.

    Returns:
        Of the program without noise: its margin, condition number (None where infinite) and relative error, the
        compiler's verdict in words, and the seconds that it took.
    """
    assert isinstance(config.task, Simulate)
    began = time.perf_counter()
    target = Target(**vars(config.task.draw_target(config.heads, config.layers, config.seed)))
    program, report = compile_program(target, backbone, compile_unembedding=config.trainable == "program")
    matrices = {"token_embedding": program.embedding, "unembedding": program.unembedding}
    trained = {name for name, _ in model.named_parameters()}
    tensors = {name: torch.from_numpy(_noisy(config, name, matrices[name])) for name in matrices if name in trained}
    install(model, tensors)
    return {
        "margin": report.margin,
        "condition_number": report.condition_number if report.margin else None,
        "relative_error": report.relative_error,
        "verdict": report.words,
        "seconds": time.perf_counter() - began,
    }


def _noisy(config: TrialConfig, name: str, matrix: np.ndarray) -> np.ndarray:
    scale = config.init_noise * np.sqrt(np.mean(matrix**2))
    return matrix + scale * generator(config.seed, "program", "noise", name).standard_normal(matrix.shape)
