"""Splits by hash: disjoint, of the stated shares, and a function of the sequence alone."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from fut.tasks.rules import rule_accuracy
from fut.tasks.splits import draw_splits, repeats, row_hash, split_of


def slow_hash(data):
    """The hash of one row's bytes in plain integers."""

    def mixed(x):
        x = (x + 0x9E3779B97F4A7C15) % 2**64
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
        return x ^ (x >> 31)

    state = mixed(len(data))
    for start in range(0, len(data), 8):
        state = mixed(state ^ int.from_bytes(data[start : start + 8], "little"))
    return state


def test_mixing_is_splitmix64():
    # the first output of SplitMix64 with seed 0, as published with the generator: what a row of no bytes hashes to
    assert int(row_hash(np.empty((1, 0), dtype=np.uint8))[0]) == 0xE220A8397B1DCDAF


@given(st.lists(st.binary(min_size=13, max_size=13), min_size=1, max_size=5))
def test_hash_equals_plain_integers(rows):
    array = np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(len(rows), 13)
    assert row_hash(array).tolist() == [slow_hash(row) for row in rows]


def test_hash_sees_every_byte_and_the_length():
    row = np.arange(20, dtype=np.uint8)
    hashes = {int(row_hash(row[None])[0])}
    for position in range(20):
        changed = row.copy()
        changed[position] ^= 1
        hashes.add(int(row_hash(changed[None])[0]))
    hashes.update(int(row_hash(np.zeros((1, n), dtype=np.uint8))[0]) for n in range(1, 9))
    assert len(hashes) == 29


def test_hash_depends_neither_on_layout_nor_on_byte_order():
    rows = np.random.default_rng(0).standard_normal((6, 3, 2)).astype(np.float32)
    expected = row_hash(rows)
    assert np.array_equal(row_hash(np.asfortranarray(rows)), expected)
    assert np.array_equal(row_hash(rows.astype(">f4")), expected)
    assert np.array_equal(row_hash(rows[::2]), expected[::2])
    assert row_hash(rows[:0]).shape == (0,)


def test_splits_have_the_stated_shares():
    rows = np.arange(50_000, dtype=np.uint32)[:, None]
    assert chisquare(np.bincount(split_of(rows)), [40_000, 5_000, 5_000]).pvalue > 1e-3


def test_drawn_splits_are_full_disjoint_and_sorted_by_hash():
    rng = np.random.default_rng(0)
    sizes = {"train": 900, "val": 300, "test": 7}
    splits = draw_splits(lambda count: rng.integers(0, 30, (count, 2), dtype=np.uint8), sizes)
    assert {split: len(rows) for split, rows in splits.items()} == sizes
    for index, split in enumerate(("train", "val", "test")):
        assert set(split_of(splits[split]).tolist()) == {index}
    found = [{tuple(row) for row in rows.tolist()} for rows in splits.values()]
    assert len(set.union(*found)) == sum(map(len, found))


def test_a_split_of_size_zero_stays_empty():
    splits = draw_splits(lambda count: np.zeros((count, 2), dtype=np.uint8), dict.fromkeys(("train", "val", "test"), 0))
    assert all(rows.shape == (0, 2) for rows in splits.values())


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=12))
def test_repeats_are_rows_seen_before(rows):
    seen, copies = Counter(), 0
    for row in rows:
        copies += seen[row] > 0
        seen[row] += 1
    assert repeats(np.array(rows, dtype=np.uint8).reshape(-1, 2)) == copies


@given(*[st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=20)] * 2)
def test_best_rule_by_hand(train, test):
    def most(answers):
        return min(set(answers), key=lambda answer: (-answers.count(answer), answer))

    right = 0
    for seen, answer in test:
        right += answer == most([a for s, a in train if s == seen] or [a for _, a in train])
    assert rule_accuracy(*np.array(train).T, *np.array(test).T) == right / len(test)
