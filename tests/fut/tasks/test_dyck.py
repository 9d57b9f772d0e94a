"""dyck against a stack, and its draws against enumeration."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.stats import chisquare

from fut.tasks.base import SPLITS
from fut.tasks.dyck import DRAWS, NEGATIVES, Dyck, balanced_rows, is_balanced, word_count
from fut.tasks.splits import split_of

SMALL = {"train_size": 2_000, "val_size": 400, "test_size": 601}


def by_stack(text):
    """Every closing parenthesis takes the opening one that lies on top."""
    stack = []
    for character in text:
        if character == "(":
            stack.append(character)
        elif not stack:
            return False
        else:
            stack.pop()
    return not stack


def text_of(row):
    return "".join("()"[token] for token in row if token < 2)


def words_of(length):
    return ["".join(word) for word in product("()", repeat=length)]


@given(st.text("()", max_size=30))
def test_is_balanced_equals_a_stack(text):
    assert is_balanced(text) == by_stack(text)


def test_balanced_rows_equal_a_stack_on_every_word_of_length_10():
    words = words_of(10)
    rows = np.array([["()".index(c) for c in word] for word in words], dtype=np.uint8)
    assert balanced_rows(rows).tolist() == [by_stack(word) for word in words]
    assert sum(map(by_stack, words)) == word_count(10) == 42


def test_empty_text_is_balanced_and_other_characters_are_refused():
    assert is_balanced("") is True
    for text in ("(a)", ")x", "( )", "[]", "())x"):
        with pytest.raises(ValueError, match="only"):
            is_balanced(text)


def expected_distribution(kind, length):
    """The probability of every word of a kind, by enumeration."""
    words = words_of(length)
    dyck = [word for word in words if by_stack(word)]
    if kind == "balanced":
        return dict.fromkeys(dyck, 1 / len(dyck))
    if kind in ("random", "negative_prefix"):
        kept = [w for w in words if not by_stack(w) and (kind == "random" or w.count("(") == length // 2)]
        return dict.fromkeys(kept, 1 / len(kept))
    chances = Counter()
    for word in dyck:
        changed = []
        if kind == "flip":
            changed = [word[:i] + ("(" if word[i] == ")" else ")") + word[i + 1 :] for i in range(length)]
        else:
            for i in range(length):
                for j in range(i + 1, length):
                    swapped = word[:i] + word[j] + word[i + 1 : j] + word[i] + word[j + 1 :]
                    if not by_stack(swapped):
                        changed.append(swapped)
        for result in changed:
            chances[result] += 1 / len(dyck) / len(changed)
    return chances


@pytest.mark.parametrize("length", [2, 8])
@pytest.mark.parametrize("kind", DRAWS)
def test_draws_have_exactly_the_stated_distribution(kind, length):
    drawn = Counter(map(text_of, DRAWS[kind](np.random.default_rng(4), 20_000, length).tolist()))
    expected = expected_distribution(kind, length)
    assert set(drawn) <= set(expected)
    assert sum(expected.values()) == pytest.approx(1)
    if len(expected) > 1:
        words = sorted(expected)
        assert chisquare([drawn[w] for w in words], [20_000 * expected[w] for w in words]).pvalue > 1e-3


@pytest.mark.parametrize("kind", DRAWS)
def test_long_draws_are_of_their_kind(kind):
    for row in DRAWS[kind](np.random.default_rng(5), 300, 60).tolist():
        text = text_of(row)
        assert len(text) == 60
        assert by_stack(text) == (kind == "balanced")
        if kind in ("swap", "negative_prefix"):
            assert text.count("(") == 30
        if kind == "flip":
            assert abs(text.count("(") - 30) == 1


def test_dataset_is_encoded_balanced_and_right():
    task = Dyck(min_length=12, max_length=16, **SMALL)
    data = task.generate()
    for split in SPLITS:
        inputs, labels = data[f"{split}/inputs"], data[f"{split}/labels"]
        assert (inputs.shape, inputs.dtype, labels.dtype) == ((task.sizes[split], 17), np.uint8, np.int8)
        answers = Counter()
        for row, asked in zip(inputs.tolist(), labels.tolist(), strict=True):
            text = text_of(row)
            assert len(text) in (12, 14, 16)
            assert row[len(text) :] == [2] + [3] * (16 - len(text))
            assert asked == [-1] * len(text) + [int(by_stack(text))] + [-1] * (16 - len(text))
            answers[len(text), by_stack(text)] += 1
        positives = sum(count for (_, balanced), count in answers.items() if balanced)
        assert positives == task.sizes[split] - task.sizes[split] // 2
        # a length says nothing about the class: both have it equally often, to one string
        assert all(abs(answers[length, True] - answers[length, False]) <= 1 for length in (12, 14, 16))


@pytest.mark.parametrize("length", [12, 14])
def test_every_split_has_words_of_the_shortest_lengths(length):
    words = np.array([["()".index(c) for c in word] for word in words_of(length) if by_stack(word)], dtype=np.uint8)
    assert np.bincount(split_of(words), minlength=3).min() >= 5


def test_a_string_has_one_split_in_every_dataset():
    where = {}
    other = Dyck(max_length=20, data_seed=1, share_flip=0.0, share_random=0.4, **SMALL)
    for task in (Dyck(max_length=14, **SMALL), other):
        data = task.generate()
        for split in SPLITS:
            for row in data[f"{split}/inputs"].tolist():
                assert where.setdefault(text_of(row), split) == split


def test_plan_has_the_stated_shares():
    plan = Dyck().plan(4_000)
    assert {kind: int(counts.sum()) for kind, counts in plan.items()} == {
        "balanced": 2_000,
        "random": 400,
        "flip": 400,
        "swap": 600,
        "negative_prefix": 600,
    }
    assert all(counts.max() - counts.min() <= 1 for counts in plan.values())


def test_a_kind_with_share_zero_does_not_occur():
    shares = {f"share_{kind}": 0.0 for kind in NEGATIVES} | {"share_flip": 1.0}
    task = Dyck(**shares, **SMALL)
    data = task.generate()
    card = task.card(data)
    assert card["splits"]["val"]["negatives"] == {"random": 0, "flip": 200, "swap": 0, "negative_prefix": 0}
    # a flipped word never opens as often as it closes, so that counting is enough
    assert task.references(data)["reference_counting"] == 1


def test_references_agree_with_counting_by_hand():
    task = Dyck(**SMALL)
    data = task.generate()
    votes, overall = {}, Counter()
    for row, asked in zip(data["train/inputs"].tolist(), data["train/labels"].tolist(), strict=True):
        votes.setdefault((row.count(0), row.count(1)), Counter())[max(asked)] += 1
        overall[max(asked)] += 1
    right = Counter()
    most = min(overall, key=lambda c: (-overall[c], c))
    for row, asked in zip(data["test/inputs"].tolist(), data["test/labels"].tolist(), strict=True):
        counts = votes.get((row.count(0), row.count(1)), overall)
        right["counting"] += min(counts, key=lambda c: (-counts[c], c)) == max(asked)
        right["majority"] += most == max(asked)
    references = task.references(data)
    assert references == {f"reference_{name}": pytest.approx(right[name] / 601) for name in ("majority", "counting")}


def test_no_counting_rule_scores_high_by_default():
    # equal counts: all positives, and 60 % of the negatives and some random ones
    task = Dyck()
    references = task.references(task.generate())
    assert 0.65 < references["reference_counting"] <= 0.70
    assert references["reference_majority"] == 0.5


def test_card_counts_what_is_there():
    task = Dyck(min_length=12, max_length=12, **SMALL)
    data = task.generate()
    train = task.card(data)["splits"]["train"]
    assert train["repeats"] == 2_000 - len({tuple(row) for row in data["train/inputs"].tolist()}) > 800
    assert train["class_balance"] == {"unbalanced": 0.5, "balanced": 0.5}
    assert train["lengths"] == {"12": 2_000}
    assert train["answers"] == train["sequences"] == 2_000


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"min_length": 10}, "min_length: there are only 42 Dyck words of length 10, and 100 .* use 12 or more"),
        ({"min_length": 2, "max_length": 10}, "max_length|min_length.*12"),
        ({"min_length": 13}, "min_length: 13 is odd.*use 14"),
        ({"max_length": 23}, "max_length: 23 is odd.*use 24"),
        ({"min_length": 16, "max_length": 14}, "max_length: 14 is less than min_length 16: use 16"),
        ({"share_flip": 0.3}, "share_random, .* add up to 1.1: make them add up to 1"),
        ({"val_size": 1}, "val_size: 1 sequence .* use 2"),
    ],
)
def test_impossible_parameters_are_refused_with_what_would_do(parameters, message):
    with pytest.raises(ValueError, match=message):
        Dyck(**parameters).generate()


def test_all_problems_are_listed_and_the_defaults_have_none():
    assert Dyck().problems() == []
    assert Dyck(min_length=12, max_length=12, train_size=2, val_size=2, test_size=2).problems() == []
    assert len(Dyck(min_length=10, max_length=15, share_flip=1.0, test_size=1).problems()) == 4


@pytest.mark.parametrize(
    "wrong",
    [
        {"min_len": 12},
        {"min_length": 12.0},
        {"share_flip": 1.5},
        {"share_swap": "0.3"},
        {"share_flip": float("nan")},
        {"max_length": None},
    ],
)
def test_parameters_are_validated(wrong):
    with pytest.raises(ValidationError):
        Dyck(**wrong)


def test_smallest_splits_are_filled():
    data = Dyck(train_size=2, val_size=3, test_size=2).generate()
    assert [data[f"{split}/labels"].max(axis=1).sum() for split in SPLITS] == [1, 2, 1]


def test_only_the_query_counts():
    task = Dyck(max_length=12)
    labels = torch.full((2, 13), -1)
    labels[:, 12] = torch.tensor([1, 0])
    outputs = torch.zeros(2, 13, 2)
    outputs[:, :12, 0] = 50.0  # elsewhere, whatever the model says
    outputs[:, 12, 1] = 1.0
    assert task.measure(outputs, labels) == {"accuracy": 0.5}
    assert float(task.loss(outputs, labels)) == pytest.approx(np.log(1 + np.e) - 0.5, rel=1e-6)
