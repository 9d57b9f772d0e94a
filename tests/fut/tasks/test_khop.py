"""khop against the definition, read off with nested loops."""

from itertools import pairwise, product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pydantic import ValidationError
from scipy.stats import chisquare

from fut.tasks.base import SPLITS
from fut.tasks.khop import Khop, answered_shares, draw_strings, hop_targets, string_count

SMALL = {"train_size": 3_000, "val_size": 400, "test_size": 600}


def slow_targets(string, hops):
    """The definition: j is the last position before i with i's character, and a hop leads from i to j + 1."""
    answers = []
    for position in range(len(string)):
        for _ in range(hops):
            earlier = [j for j in range(position) if string[j] == string[position]]
            if not earlier:
                position = None
                break
            position = earlier[-1] + 1
        answers.append(-1 if position is None else string[position])
    return answers


@given(
    arrays(
        st.sampled_from([np.int64, np.uint8, np.int32]),
        st.tuples(st.integers(1, 4), st.integers(1, 24)),
        elements=st.integers(0, 4),
    ),
    st.integers(0, 6),
)
def test_equals_the_definition_also_with_equal_neighbours(tokens, hops):
    assert hop_targets(tokens, hops).tolist() == [slow_targets(row, hops) for row in tokens.tolist()]


@pytest.mark.parametrize(("alphabet", "length", "hops"), [(4, 98, 4), (3, 40, 7), (26, 60, 1), (128, 300, 1)])
def test_equals_the_definition_on_drawn_strings(alphabet, length, hops):
    tokens = draw_strings(np.random.default_rng(1), 30, length, alphabet)
    assert hop_targets(tokens, hops).tolist() == [slow_targets(row, hops) for row in tokens.tolist()]


def test_blocks_join_without_a_seam():
    # 2¹⁷ characters are one block: 5,000 strings of 60 are three
    tokens = draw_strings(np.random.default_rng(2), 5_000, 60, 4)
    assert np.array_equal(hop_targets(tokens, 2), np.concatenate([hop_targets(row[None], 2) for row in tokens]))


def test_large_and_sparse_characters_are_allowed():
    tokens = np.array([[0, 7, 0, 200, 0, 7]]) * 10**9
    assert hop_targets(tokens, 1).tolist() == [[-1, -1, 7 * 10**9, -1, 200 * 10**9, 0]]


def test_every_character_of_a_wide_alphabet_has_an_answer():
    tokens = np.tile(np.arange(128), 2)[None]  # the second half: each hop leads to the next character of the first half
    assert hop_targets(tokens, 1)[0].tolist() == [-1] * 128 + [*range(1, 128), 0]


@pytest.mark.parametrize("tokens", [np.zeros(3, dtype=int), np.zeros((2, 2)), np.array([[0, -1]])])
def test_refuses_what_is_no_batch_of_strings(tokens):
    with pytest.raises(ValueError, match="tokens"):
        hop_targets(tokens, 1)


def test_refuses_negative_hops_and_keeps_empty_batches():
    with pytest.raises(ValueError, match="hops"):
        hop_targets(np.zeros((1, 2), dtype=int), -1)
    assert hop_targets(np.zeros((0, 5), dtype=int), 1).shape == (0, 5)


def test_strings_are_uniform_over_those_without_equal_neighbours():
    strings = draw_strings(np.random.default_rng(3), 24_000, 4, 3)
    possible = [word for word in product(range(3), repeat=4) if all(a != b for a, b in pairwise(word))]
    assert len(possible) == string_count(3, 4) == 24
    seen = [tuple(row) for row in strings.tolist()]
    counts = [seen.count(word) for word in possible]
    assert sum(counts) == len(seen)  # nothing else occurs
    assert chisquare(counts).pvalue > 1e-3


def test_dataset_holds_strings_with_their_answers():
    task = Khop(hops=2, alphabet=5, length=12, **SMALL)
    data = task.generate()
    for split in SPLITS:
        inputs, labels = data[f"{split}/inputs"], data[f"{split}/labels"]
        assert (inputs.shape, inputs.dtype, labels.dtype) == ((task.sizes[split], 12), np.uint8, np.int8)
        assert inputs.max() == 4
        assert (inputs[:, 1:] != inputs[:, :-1]).all()
        assert labels[:200].tolist() == [slow_targets(row, 2) for row in inputs[:200].tolist()]


def test_one_token_rule_on_two_hops_scores_54_percent():
    task = Khop(hops=2, alphabet=4, length=16)
    references = task.references(task.generate())
    assert references["reference_one_token"] == pytest.approx(0.54, abs=0.01)
    assert references["reference_majority"] == pytest.approx(0.25, abs=0.01)


def test_references_agree_with_counting_by_hand():
    task = Khop(hops=1, alphabet=4, length=9, **SMALL)
    data = task.generate()
    names = ["reference_majority", "reference_one_token", "reference_two_tokens", "reference_three_tokens"]
    expected = {}
    for back, name in enumerate(names):
        votes, overall = {}, {}
        for split in ("train", "test"):
            right = total = 0
            for row, answers in zip(data[f"{split}/inputs"].tolist(), data[f"{split}/labels"].tolist(), strict=True):
                for position, answer in enumerate(answers):
                    if answer < 0:
                        continue
                    seen = tuple(row[max(0, position - back + 1) : position + 1]) if back else ()
                    if split == "train":
                        counts = votes.setdefault(seen, {})
                        counts[answer] = counts.get(answer, 0) + 1
                        overall[answer] = overall.get(answer, 0) + 1
                    else:
                        counts = votes.get(seen, overall)
                        right += min(counts, key=lambda choice: (-counts[choice], choice)) == answer
                        total += 1
        expected[name] = right / total
    assert task.references(data) == pytest.approx(expected, abs=1e-12)


def test_zero_hops_ask_for_the_token_itself():
    task = Khop(hops=0, **SMALL)
    data = task.generate()
    assert np.array_equal(data["test/inputs"], data["test/labels"])
    assert task.references(data)["reference_one_token"] == 1


def test_card_counts_what_is_there():
    task = Khop(hops=1, alphabet=4, length=7, train_size=4_000, val_size=300, test_size=300)  # 2,916 strings
    data = task.generate()
    card = task.card(data)
    rows = [tuple(row) for row in data["train/inputs"].tolist()]
    train = card["splits"]["train"]
    assert train["sequences"] == 4_000
    assert train["repeats"] == 4_000 - len(set(rows)) > 0
    undefined = sum(answer < 0 for row in data["train/labels"].tolist() for answer in row)
    assert train["undefined_share"] == pytest.approx(undefined / (4_000 * 7))
    assert train["answers"] == 4_000 * 7 - undefined
    assert sum(train["class_balance"].values()) == pytest.approx(1)
    assert card["distinct_strings"] == 4 * 3**6


@pytest.mark.parametrize(
    ("alphabet", "length", "fitting"),
    [
        (4, 3, {"length": 7, "alphabet": 11}),  # 4·3⁶ = 2,916 and 4·3⁵ = 972; 11·10² = 1,100 and 10·9² = 810
        (4, 6, {"length": 7, "alphabet": 5}),
        (2, 16, {"alphabet": 3}),  # two strings at any length
    ],
)
def test_too_few_strings_are_refused_with_the_sizes_that_fit(alphabet, length, fitting):
    task = Khop(hops=0, alphabet=alphabet, length=length)
    (problem,) = task.problems()
    for name, value in fitting.items():
        assert f"{name} {value} or more" in problem
        changed = task.model_copy(update={name: value})
        assert changed.problems() == []
        assert task.model_copy(update={name: value - 1}).problems() != []
    with pytest.raises(ValueError, match="strings"):
        task.generate()


def test_too_many_hops_are_refused_with_the_length_that_fits():
    (problem,) = Khop(hops=20, length=16).problems()
    length = int(problem.split("use length ")[1].split()[0])
    assert Khop(hops=20, length=length).problems() == []
    assert Khop(hops=20, length=length - 1).problems() != []
    # alternating strings need k + 2 characters for k hops; random ones need more
    assert length > 22


def test_hopeless_hops_are_refused_without_a_length():
    for hops in (1_000, 10**12):
        (problem,) = Khop(hops=hops, length=16).problems()
        assert "fewer hops" in problem


def test_hops_beyond_the_length_change_nothing():
    tokens = np.array([[0, 1, 0, 1, 1, 0]])  # at 4, equal to 3, a hop stays where it is
    assert hop_targets(tokens, 10**12).tolist() == [slow_targets(tokens[0].tolist(), 30)] == [[-1, -1, -1, -1, 1, -1]]


def test_share_of_one_hop_answers_follows_from_counting():
    # length 3, alphabet 4: only position 2 can have an answer, and does where it repeats position 0: 1 of 3 strings
    assert answered_shares(1, 4, 3)[-1] == pytest.approx(1 / 9, abs=0.01)


def test_very_long_strings_are_judged_by_their_beginning():
    assert Khop(length=10**6).problems() == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"hop": 1},
        {"hops": "1"},
        {"hops": -1},
        {"alphabet": 1},
        {"alphabet": 129},
        {"length": 1},
        {"train_size": 0},
        {"name": "dyck"},
        {"hops": 1.0},
    ],
)
def test_parameters_are_validated(wrong):
    with pytest.raises(ValidationError):
        Khop(**wrong)


def test_positions_without_an_answer_carry_no_loss_and_no_accuracy():
    task = Khop(alphabet=3)
    labels = torch.tensor([[-1, 0, 2]])
    outputs = torch.tensor([[[9.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]])
    assert task.measure(outputs, labels) == {"accuracy": 0.5}
    # −log softmax of (1, 0, 0): log(e + 2) − 1 for class 0, log(e + 2) for class 2
    expected = np.log(np.e + 2) - 0.5
    assert float(task.loss(outputs, labels)) == pytest.approx(expected, rel=1e-6)
    other = outputs.clone()
    other[0, 0] = torch.tensor([-5.0, 3.0, 1.0])
    assert torch.equal(task.loss(other, labels), task.loss(outputs, labels))
    assert float(task.loss(outputs, torch.full_like(labels, -1))) == 0


def test_outputs_that_are_not_finite_are_wrong():
    labels = torch.tensor([[0, 0, 0, 0]])
    outputs = torch.tensor([[[1.0, 0], [float("nan"), 0], [float("inf"), 0], [0, float("-inf")]]])
    assert Khop().measure(outputs, labels) == {"accuracy": 0.25}


def test_a_split_without_any_answer_is_refused_with_the_size_to_raise(monkeypatch):
    task = Khop(hops=1, length=8, train_size=400, val_size=20, test_size=20)
    assert not task.problems()  # which are kept, and must not be those of what follows
    monkeypatch.setattr("fut.tasks.khop.hop_targets", lambda tokens, hops: np.full(tokens.shape, -1))
    with pytest.raises(ValueError, match="train_size: no position of 400 sequences has an answer: make it larger"):
        task.generate()
