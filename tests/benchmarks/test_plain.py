"""The plain loops make what the generators make; a comparison of speed would mean nothing otherwise."""

import random
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from benchmarks import plain
from fut.tasks.dyck import DRAWS, balanced_rows
from fut.tasks.khop import hop_targets
from fut.tasks.simulate import Simulate


def test_strings_have_no_equal_neighbours_and_the_answers_of_the_generator() -> None:
    draw = random.Random(0)
    strings = [plain.khop_string(draw, 12, 3) for _ in range(50)]
    assert all(one != other for string in strings for one, other in pairwise(string))
    for hops in (0, 1, 2, 4):
        assert [plain.khop_answers(string, hops) for string in strings] == hop_targets(np.array(strings), hops).tolist()


def test_a_hop_by_hand() -> None:
    assert plain.khop_answers([0, 1, 0, 2, 0, 1], 1) == [-1, -1, 1, -1, 2, 0]  # a b a c a b


def test_dyck_words_are_uniform() -> None:
    draw = random.Random(0)
    counts = Counter(tuple(plain.dyck_word(draw, 6)) for _ in range(5_000))
    assert len(counts) == 5 and all(abs(count - 1_000) < 150 for count in counts.values())  # 5 standard deviations


@pytest.mark.parametrize("kind", DRAWS)
def test_words_of_every_kind_of_the_generator_are_balanced_or_not_as_theirs_are(kind: str) -> None:
    draw = random.Random(0)
    words = np.array([plain.WORDS[kind](draw, 12) for _ in range(100)], dtype=np.uint8)
    assert words.shape == (100, 12)
    assert balanced_rows(words).all() == (kind == "balanced") and balanced_rows(words).any() == (kind == "balanced")
    opens = 2 * (words == 0).sum(axis=1) - 12
    assert {"flip": set(opens) == {-2, 2}, "random": len(set(opens)) > 2}.get(kind, set(opens) == {0})


def test_labels_are_those_of_the_target() -> None:
    target = Simulate(target_dim=3).draw_target(heads=2, layers=2, seed=0)
    inputs = np.random.default_rng(0).standard_normal((4, 10, 3))
    for sequence, expected in zip(inputs, target(inputs), strict=True):
        np.testing.assert_allclose(plain.target_outputs(target, sequence), expected, rtol=1e-12, atol=1e-12)
