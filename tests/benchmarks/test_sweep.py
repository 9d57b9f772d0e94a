"""A sweep's core-seconds are split without a remainder."""

import pytest

from benchmarks.process import Ran
from benchmarks.sweep import Span, idle, split


def trial(process: int, began: float, ended: float, training: float) -> dict[str, object]:
    """What a worker notes of a trial that spends a second in `run_trial` besides training, and one outside of it."""
    times = {"began": began, "ended": ended, "imports": 3.0, "run": ended - began - 1, "training": training}
    return {"what": "trial", "process": process, **times}


def test_every_core_second_has_one_place() -> None:
    noted = [
        {"what": "driver", "process": 1, "imported": 104.0},
        trial(2, 110, 120, 8),  # first core: waits 10 s, then a pause of 1 s
        trial(2, 121, 131, 8),
        trial(3, 112, 126, 12),  # second core: waits 12 s, and has nothing to do after 126
    ]
    parts = split(Ran(began=100.0, seconds=33.0, peak_bytes=0), noted, cores=2)
    assert parts == {
        "imports": 2 * 4 + 2 * 3,
        "start": 10 + 12 - 14,
        "training": 28,
        "around training": 3,
        "records": 3,
        "between trials": 1,
        "tail": 5,
        "end": 2 * 2,
    }
    assert sum(parts.values()) == 2 * 33


def test_a_sweep_with_fewer_trials_than_cores_has_idle_cores_in_its_tail() -> None:
    noted = [{"what": "driver", "process": 1, "imported": 1.0}, trial(2, 10, 20, 8)]
    parts = split(Ran(began=0.0, seconds=21.0, peak_bytes=0), noted, cores=4)
    assert parts["tail"] == 3 * 10 and sum(parts.values()) == pytest.approx(4 * 21)


def test_idle_time_counts_the_cores_without_a_trial() -> None:
    assert idle([Span(0, 4), Span(1, 9)], cores=2, since=2, until=6) == 2
