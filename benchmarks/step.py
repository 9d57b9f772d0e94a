"""Subject `step`: how long a training step takes, and how much of the machine's arithmetic it uses.

The arithmetic of a step is that of its products of matrices, forward and backward, 2 a b c operations for (a × b) by
(b × c), counted by torch as they run.  The machine's rate is that of one large product, on as many threads as a trial
has.  docs/benchmarks.md has the count as a formula.
"""

from torch.utils.flop_counter import FlopCounterMode

from benchmarks.figures import Figure
from benchmarks.shapes import SHAPES
from benchmarks.training import PRODUCT_SIZE, THREADS, examples_of, reduced, rounds
from fut.backbones import build
from fut.config import TrialConfig
from fut.transformer import Transformer

ABOUT = f"a training step on {THREADS} thread, and its share of the rate of large matrix products"
MACHINE = f"product of {PRODUCT_SIZE} × {PRODUCT_SIZE} matrices"


def operations(config: TrialConfig) -> int:
    """Floating-point operations in the products of matrices of one training step."""
    batch = examples_of(reduced(config, config.training.batch_size))["train"]
    model = Transformer(config, build(config.recipe))
    with FlopCounterMode(display=False) as counter:
        config.task.loss(model(batch.inputs), batch.labels).backward()
    return counter.get_total_flops()


def measure() -> list[Figure]:
    """Step time by the Trainer, arithmetic, rate and share, for each shape."""
    figures = []
    found = rounds()
    for name, config in SHAPES:
        work = operations(config)
        times, rates = [each.step for each in found[name]], [each.rate for each in found[name]]
        reached = [work / time for time in times]
        figures += [
            Figure(row=name, column="step", unit="ms", samples=[1e3 * time for time in times], better="lower"),
            Figure(row=name, column="products", unit="MFLOP", samples=[work / 1e6]),
            Figure(row=name, column="rate", unit="GFLOP/s", samples=[each / 1e9 for each in reached]),
            Figure(
                row=name,
                column="share",
                unit="%",
                samples=[100 * each / rate for each, rate in zip(reached, rates, strict=True)],
            ),
        ]
    rates = [each.rate / 1e9 for each in found[SHAPES[0].name]]
    return [*figures, Figure(row=MACHINE, column="rate", unit="GFLOP/s", samples=rates, better="higher")]
