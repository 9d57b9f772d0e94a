"""What a running sweep says: a live line on a terminal, plain lines elsewhere, and a line for each finished cell."""

import statistics
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ray.tune import Callback
from rich.console import Console
from rich.status import Status

from pipeline.grid import Cell
from pipeline.store import StoreError
from pipeline.worker import Told

PLAIN_EVERY = 60.0  # seconds between two lines of progress where there is no terminal


def duration(seconds: float) -> str:
    """Seconds in words.

    >>> [duration(s) for s in (7.4, 75, 3_700)]
    ['7s', '1m 15s', '1h 01m']
    """
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60}h {minutes % 60:02d}m"
    return f"{minutes}m {rest:02d}s" if minutes else f"{rest}s"


class Progress(Callback):
    """Follows the trials of a study from Ray Tune's driver.

    Args:
        study: its name.
        cells: all cells of the study.
        results: the results of trials that the store held already, by trial id.
        costs: expected cost of each missing trial, in any one unit, by trial id, in the order of Tune's numbers
            (`trial.config["trial"]`); for the time left.
        console: where to write.
    """

    def __init__(
        self,
        study: str,
        cells: Iterable[Cell],
        results: Mapping[str, dict[str, Any]],
        costs: Mapping[str, float],
        console: Console,
    ) -> None:
        self.study, self.console, self.costs = study, console, costs
        self.missing = list(costs)
        self.results = dict(results)
        self.cells = {trial.id: cell for cell in cells for trial in cell.trials}
        self.running: set[str] = set()
        self.failed: set[str] = set()
        self.unusable: str | None = None
        self.said_already: set[str] = set()
        self.started = self.said = time.monotonic()
        self.status: Status | None = console.status(self.line()) if console.is_terminal else None

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return Callback, ()  # Tune writes itself down for a restore that we never ask for; a console cannot be

    def __enter__(self) -> "Progress":
        if self.status:
            self.status.start()
        return self

    def __exit__(self, *failure: object) -> None:
        if self.status:
            self.status.stop()
        self.console.print(self.line(), highlight=False)

    def line(self) -> str:
        """Done of expected, running, failed, elapsed, time left."""
        parts = [
            f"{self.study}: {len(self.results)}/{len(self.cells)} trials done",
            f"{len(self.running)} running",
            f"{len(self.failed)} failed",
            f"elapsed {duration(time.monotonic() - self.started)}",
        ]
        if (left := self.seconds_left()) is not None:
            parts.append(f"about {duration(left)} left")
        return ", ".join(parts)

    def seconds_left(self) -> float | None:
        """From the cost of what has been done here so far; None before anything has.

        A failed trial tells nothing: it may have ended at once, whatever it would have cost.
        """
        done = sum(cost for trial, cost in self.costs.items() if trial in self.results)
        left = sum(cost for trial, cost in self.costs.items() if trial not in self.results and trial not in self.failed)
        return (time.monotonic() - self.started) * left / done if done else None

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial has been given to a worker."""
        self.running.add(trial.trial_id)
        self._tell()

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        """A trial has told how it went."""
        if "told" in result:
            self._hear(Told(**result["told"]))

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial has left its worker."""
        self.running.discard(trial.trial_id)
        self._tell()

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial has lost its worker, and waits for another."""
        self.running.discard(trial.trial_id)
        lost = self.missing[trial.config["trial"]]
        self._say_once(f"{self.study}: trial {lost[:12]} lost its worker (killed, or out of memory); it runs once more")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial has lost its second worker too."""
        self.running.discard(trial.trial_id)
        lost = self.missing[trial.config["trial"]]
        self.failed.add(lost)
        reason = Path(trial.error_file).read_text().rstrip() if trial.error_file else "Ray does not say why"
        self._say_once(f"{self.study}: trial {lost[:12]} lost its worker again:", reason)
        self._tell()

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Tune's loop has gone round once more.

        Raises:
            StoreError: a trial has found that no record can be kept any more.
        """
        if self.unusable:
            raise StoreError(self.unusable)
        if self.status:
            self.status.update(self.line())
        elif time.monotonic() - self.said > PLAIN_EVERY:
            self._tell(even_plain=True)

    def _hear(self, told: Told) -> None:
        """What a worker says of its trial; the same trouble of many trials is said once."""
        self.unusable = self.unusable or told.unusable
        for notice in told.notices:
            self._say_once(f"{self.study}: {notice}")
        if told.failure:
            self.failed.add(told.trial)
            self._say_once(f"{self.study}: trial {told.trial[:12]} failed:", told.failure.rstrip())
        if told.result is not None:
            self.results[told.trial] = told.result
            self._tell_cell(self.cells[told.trial])

    def _say_once(self, *texts: str) -> None:
        """Print some texts, unless the last of them has been printed before."""
        if texts[-1] not in self.said_already:
            self.said_already.add(texts[-1])
            self.console.print("\n".join(texts), highlight=False, markup=False)

    def _tell(self, even_plain: bool = False) -> None:
        if self.status:
            self.status.update(self.line())
        elif even_plain:
            self.said = time.monotonic()
            self.console.print(self.line(), highlight=False)

    def _tell_cell(self, cell: Cell) -> None:
        """A line for a cell whose trials are all done."""
        if all(trial.id in self.results for trial in cell.trials):
            self.console.print(f"  {describe(cell)}: {self._scores(cell)}", highlight=False)

    def _scores(self, cell: Cell) -> str:
        name = "test_accuracy" if cell.first.task.metric == "accuracy" else "nmse"
        texts = []
        for rate in cell.learning_rates:
            found = [self.results[trial.id] for trial in cell.trials if trial.learning_rate == rate]
            values = [result[name] for result in found if result[name] is not None]
            value = f"{statistics.mean(values):.4g}" if values else "unknown"
            seeds = f"{len(values)} seed" if len(values) == 1 else f"{len(values)} seeds"
            lost = f", {len(found) - len(values)} diverged" if len(values) < len(found) else ""
            rates = f", learning rate {rate:g}" if rate is not None and len(cell.learning_rates) > 1 else ""
            texts.append(f"{name.removeprefix('test_')} {value} ({seeds}{lost}{rates})")
        return "; ".join(texts)


def describe(cell: Cell) -> str:
    """A cell in a few words: task, backbone, components and shape."""
    config = cell.first
    symbol, field = {"khop": ("k", "hops"), "simulate": ("d", "target_dim")}.get(config.task.name, ("", ""))
    name = f"{config.task.name} {symbol}={getattr(config.task, field)}" if field else config.task.name
    trains = "" if config.trainable in ("program", "all") else f", only the {config.trainable} trains"
    shape = f"H{config.heads} L{config.layers} m{config.width}"
    kind = f"pretrained on {config.source.task.name}" if config.source else config.backbone.kind
    compiled = ", compiled" if config.method == "compiled" else ""
    warm = f", from compiled with noise {config.init_noise:g}" if config.init == "compiled" else ""
    return f"{name}, {kind}, {config.components}, {shape}{trains}{compiled}{warm}"
