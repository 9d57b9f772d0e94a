"""How long trials will take, from the records so far."""

from collections import defaultdict
from collections.abc import Iterable
from statistics import median
from typing import Any

from fut.config import TrialConfig
from fut.record import Record

OVERHEAD = 20_000_000  # multiplications that would take as long as a step's small operations in a layer, on one core
COMPILING = 10_000_000_000  # the same, of a program that is compiled
Group = tuple[str, ...]  # (method, task, kind of backbone, components), or a shorter, coarser one


class Estimator:
    """Core-seconds a training step: the median over the records of the finest group that has any.

    Groups are (method, task, kind of backbone, components), then without the last of these, then without the last two.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        costs: dict[Group, list[float]] = defaultdict(list)
        for record in records:
            result = record["result"]
            cost = result["train_seconds"] * record["environment"]["threads"] / max(1, result["steps"])
            for group in _groups(record["config"]):
                costs[group].append(cost)  # of a compiled program, which takes no steps, the whole
        self._costs = {group: median(values) for group, values in costs.items()}

    def core_seconds(self, trial: TrialConfig) -> float | None:
        """Core-seconds that a trial takes with its whole budget of steps; None: nothing like it has run yet."""
        config = {
            "task": {"name": trial.task.name},
            "backbone": {"kind": trial.backbone.kind},
            "components": trial.components,
            "method": trial.method,
        }
        cost = next((self._costs[group] for group in _groups(config) if group in self._costs), None)
        return None if cost is None else cost * (1 if trial.method == "compiled" else trial.training.steps)


def _groups(config: dict[str, Any]) -> list[Group]:
    """The groups of a configuration, the finest first."""
    finest = (config.get("method", "learned"), config["task"]["name"], config["backbone"]["kind"], config["components"])
    return [finest[:length] for length in (4, 3, 2)]


def effort(trial: TrialConfig) -> float:
    """A trial's work next to another's, in multiplications: good enough to start the long ones first.

    Products with the width's square count where there are any; a sparse backbone has none.  A small layer takes as long
    as its many small operations do.
    """
    if trial.method == "compiled":
        return COMPILING + 10.0 * trial.width**3
    recipe, plan, n = trial.recipe, trial.training, trial.task.positions
    copies = trial.heads if recipe.values == "full" else 1
    products = (
        0 if recipe.kind == "sparse" else (2 * trial.heads * recipe.qk_dim + 2 * copies * trial.width) * trial.width
    )
    mixing = n * (trial.heads * recipe.qk_dim + copies * trial.width + 10 * trial.heads)
    mlp = 8 * trial.width**2 if trial.has("mlp") else 0
    return float(plan.steps * trial.layers * (OVERHEAD + plan.batch_size * n * (products + mixing + mlp)))
