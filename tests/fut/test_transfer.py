"""Trained targets in machines of several kinds and widths: exact where theory says, and nowhere else."""

from collections import Counter

import numpy as np
import pytest

import fut.transfer
from fut.tasks.dyck import Dyck
from fut.tasks.khop import Khop
from fut.tasks.simulate import Simulate
from fut.training_plan import Training
from fut.transfer import TrainedTarget, Transfer, train_target, transfer

KHOP = Khop(length=7, train_size=60, val_size=20, test_size=30)
CONFIG = Transfer(
    tasks=[KHOP],
    layers=1,
    target_dim=4,
    seeds=[3, 4],
    times_sufficient=[0.75, 1, 1.5],
    training=Training(steps=20, steps_per_epoch=10, batch_size=16, warmup_steps=5),
)
N = 20  # H = 2, L = 1, k = 2, p = 4, three letters: 2·2·2 + 4·3


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    """The rows of a target that has hardly been trained."""
    return list(transfer(CONFIG))


def universal(row: dict) -> bool:
    return row["backbone"] != "control" and row["width"] >= N


def test_there_is_a_row_for_each_width_kind_of_backbone_and_seed(rows) -> None:
    found = Counter((row["backbone"], row["control"], row["seed"], row["width"]) for row in rows)
    drawn = [("random", None), ("control", "identical_heads"), ("control", "low_rank")]
    expected = [("sparse", None, None, width) for width in (15, 20, 30)]
    expected += [(*kind, seed, width) for kind in drawn for seed in (3, 4) for width in (15, 20, 30)]
    assert found == Counter(expected) and len(rows) == 21
    assert {row["sufficient_width"] for row in rows} == {N}
    assert {row["layout"] for row in rows if row["backbone"] == "sparse"} == {"residual"}
    assert all(row["residual"] and (row["qk_dim"], row["out_dim"]) == (2, 4) for row in rows)


def test_programs_are_exact_in_universal_machines_from_n_on_and_nowhere_else(rows) -> None:
    for row in rows:
        assert row["exact"] == universal(row), row
        assert (row["relative_error"] < 1e-8) == universal(row)
        if row["exact"]:
            assert row["agreement"] == 1 and row["compiled_accuracy"] == row["target_accuracy"]


def test_the_margin_is_positive_where_programs_are_exact_and_zero_elsewhere(rows) -> None:
    for row in rows:
        assert (row["margin"] > 0) == (row["condition_number"] is not None) == universal(row), row
        if row["backbone"] == "sparse":
            assert row["margin"] == universal(row)


def test_one_target_is_compiled_into_all_and_each_machine_is_another(rows) -> None:
    assert len({row["target_digest"] for row in rows}) == 1
    machines = {row["backbone_digest"] for row in rows}
    assert len(machines) == len(rows)


def test_the_same_configuration_gives_the_same_rows(rows) -> None:
    again = list(transfer(CONFIG.model_copy(update={"times_sufficient": [1]})))
    assert again == [row for row in rows if row["width"] == N]


def test_the_first_seed_is_that_of_the_targets(rows) -> None:
    trained = train_target(KHOP, 2, 1, 4, CONFIG.training, CONFIG.learning_rate, seed=3)
    row = rows[0]
    assert (trained.accuracy, trained.constant_agreement) == (row["target_accuracy"], row["constant_agreement"])


@pytest.mark.parametrize("at_a_time", [1, 100])
def test_answers_are_those_of_the_asked_test_positions_in_the_tasks_own_classes(monkeypatch, at_a_time: int) -> None:
    monkeypatch.setattr(fut.transfer, "SEQUENCES", at_a_time)
    arrays = {
        "test/inputs": np.array([[0, 1, 2], [2, 1, 0]], np.uint8),
        "test/labels": np.array([[-1, 1, 0], [2, -1, -1]], np.int8),
    }
    outputs = np.c_[np.eye(4), 9 * np.ones((4, 2))]  # says what it reads; two columns are another task's
    trained = TrainedTarget(KHOP, lambda tokens: outputs[tokens], arrays)
    assert trained.answers.tolist() == [1, 2, 2]
    assert trained.accuracy == trained.constant_agreement == 2 / 3
    other = trained.answers_of(lambda tokens: outputs[(tokens + 1) % 3])
    assert other.tolist() == [2, 0, 0] and trained.agreement(other) == 0 and trained.accuracy_of(other) == 1 / 3
    assert trained.agreement(np.array([1, 2, 0])) == 2 / 3


def test_widths_are_multiples_of_n_rounded_up_without_floating_point() -> None:
    assert 1.1 * 100 > 110  # 110.00000000000001
    changes = {"layers": 2, "target_dim": 8, "times_sufficient": [1.1, 0.765, 2]}
    config = CONFIG.model_copy(update=changes)  # k = 4
    assert config.widths(KHOP) == [110, 77, 200]  # p = 4: N = 2·2·4·(1 + 3) + 4·9 = 100
    assert config.widths(Dyck()) == [91, 63, 164]  # p = 2: N = 64 + 18 = 82, 1.1 N = 90.2, 0.765 N = 62.73


def test_the_usual_configuration_is_possible_and_lies_on_both_sides_of_n() -> None:
    usual = Transfer()
    assert usual.problems() == []
    for task in usual.tasks:
        enough = usual.sufficient_width(task)
        assert enough in usual.widths(task)
        assert min(usual.widths(task)) < enough < max(usual.widths(task))


@pytest.mark.parametrize(
    ("changes", "place", "said"),
    [
        ({"tasks": []}, ("tasks",), "is empty"),
        ({"tasks": [KHOP, KHOP]}, ("tasks", 1), "given twice"),
        ({"tasks": [Simulate()]}, ("tasks", 0), "reads vectors"),
        ({"tasks": [Dyck(max_length=15)]}, ("tasks", 0, "max_length"), "is odd"),
        ({"tasks": [Dyck(share_flip=0.9)]}, ("tasks", 0), "make them add up to 1"),
        ({"target_dim": 5}, ("target_dim",), "write 4"),
        ({"times_sufficient": [0.4]}, ("times_sufficient", 0), "take at least 12"),  # of 8 + 4: the tree's own leaves
        ({"times_sufficient": [1, 1.001, 1.002]}, ("times_sufficient", 2), "as times_sufficient[1] does"),
        ({"times_sufficient": [100.0, 300.0]}, ("times_sufficient", 1), "at most 4,096"),
        ({"seeds": list(range(2_000))}, (), "comes to 18,003 programs"),  # 3 widths × (1 + 3 · 2,000)
    ],
)
def test_what_is_impossible_is_said_with_its_place_before_anything_is_trained(changes, place, said) -> None:
    ((found, text),) = CONFIG.model_copy(update=changes).problems()
    assert found == place and said in text
