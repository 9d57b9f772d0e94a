"""Balanced parentheses: is every parenthesis of the string matched?

Claim: counting is not enough.  A string is balanced when it closes as often as it opens *and* no prefix closes more
than it opens.  By default more than half of the negatives meet the first condition and break the second.

Input: a string of even length, one token a character, then a query token, then padding up to the longest string.  The
one answer of a sequence is asked at the query token: 1 balanced, 0 not.

    string   (  (  )  )            tokens  0 0 1 1 2 3 3
    class    1                     labels  − − − − 1 − −      (− is stored as −1: no answer asked)

Traced: the height is the number of open parentheses after each character.

    (  (  )  (  )  )               (  )  )  (
    1  2  1  2  1  0  balanced     1  0 −1  0  not balanced: the third character closes nothing

>>> is_balanced("(()())"), is_balanced("())("), is_balanced("(()")
(True, False, False)
>>> tokens, labels = encode(np.array([[0, 0, 1, 1], [0, 1, 1, 0]], dtype=np.uint8), balanced=True, positions=7)
>>> tokens[0].tolist(), labels[0].tolist()
([0, 0, 1, 1, 2, 3, 3], [-1, -1, -1, -1, 1, -1, -1])

Positives are uniform over the balanced strings ("Dyck words") of each length.  Negatives have the same lengths and are
of four kinds: *random* strings; Dyck words with one character *flipped*; Dyck words with two characters *swapped*; and
strings that open and close equally often but have a *negative prefix*.
"""

from collections.abc import Callable, Mapping
from itertools import pairwise
from math import comb, isclose
from typing import Any, Literal

import numpy as np
from pydantic import Field

from fut.seeds import generator
from fut.tasks.base import Arrays, TokenTask
from fut.tasks.rules import rule_accuracy
from fut.tasks.splits import SPLITS, draw_splits

OPEN, CLOSE, QUERY, PAD = range(4)
POSITIVE = "balanced"
NEGATIVES = ("random", "flip", "swap", "negative_prefix")
FEWEST_WORDS = 100  # of a length; fewer cannot be split


class Dyck(TokenTask):
    """Parameters of a dataset of balanced and unbalanced strings."""

    name: Literal["dyck"] = "dyck"
    min_length: int = Field(12, ge=2, description="characters of the shortest strings, even")
    max_length: int = Field(24, ge=2, description="characters of the longest strings, even")
    share_random: float = Field(0.2, ge=0, le=1, description="of the negatives: random strings")
    share_flip: float = Field(0.2, ge=0, le=1, description="of the negatives: Dyck words with one character flipped")
    share_swap: float = Field(0.3, ge=0, le=1, description="of the negatives: Dyck words with two characters swapped")
    share_negative_prefix: float = Field(0.3, ge=0, le=1, description="of the negatives: equal counts, negative prefix")

    @property
    def positions(self) -> int:
        """The longest string and its query token."""
        return self.max_length + 1

    @property
    def vocabulary(self) -> int:
        """Opening, closing, query, padding."""
        return 4

    @property
    def out_dim(self) -> int:
        """Not balanced, balanced."""
        return 2

    @property
    def lengths(self) -> range:
        """The even lengths of the strings."""
        return range(self.min_length, self.max_length + 1, 2)

    @property
    def shares(self) -> dict[str, float]:
        """Share of the negatives of each kind."""
        return {kind: getattr(self, f"share_{kind}") for kind in NEGATIVES}

    def problems(self) -> list[str]:
        """What makes these parameters impossible, each with the value that would do."""
        found = [
            f"{name}: {value} is odd, and balanced strings have even lengths: use {value + 1}"
            for name, value in (("min_length", self.min_length), ("max_length", self.max_length))
            if value % 2
        ]
        fitting = _shortest_length()
        if self.min_length < fitting:
            found.append(
                f"min_length: there are only {word_count(self.min_length)} Dyck words of length "
                f"{self.min_length}, and {FEWEST_WORDS} are needed to split them: use {fitting} or more"
            )
        if self.max_length < self.min_length:
            found.append(
                f"max_length: {self.max_length} is less than min_length {self.min_length}: "
                f"use {max(self.min_length, fitting)} or more"
            )
        if not isclose(sum(self.shares.values()), 1, abs_tol=1e-9):
            names = ", ".join(f"share_{kind}" for kind in NEGATIVES)
            found.append(f"{names}: they add up to {sum(self.shares.values()):g}: make them add up to 1")
        found += [
            f"{split}_size: {size} sequence cannot hold both classes: use 2 or more"
            for split, size in self.sizes.items()
            if size < 2
        ]
        return found

    def plan(self, size: int) -> dict[str, np.ndarray]:
        """Strings of each kind, by length, in a split of a given size; integer arrays in the order of `lengths`.

        Half are positives.  Over both classes the lengths take turns, so that a string's length says nothing about its
        class; the kinds of negatives follow each other.
        """
        negatives = size // 2
        edges = np.rint(np.cumsum([0.0, *self.shares.values()]) * negatives).astype(int)
        ranges = {POSITIVE: (0, size - negatives)} | dict(zip(NEGATIVES, pairwise(edges), strict=True))
        count = len(self.lengths)
        return {
            kind: np.bincount(np.arange(first, last) % count, minlength=count) for kind, (first, last) in ranges.items()
        }

    def generate(self) -> Arrays:
        """Strings and classes, uint8 inputs and int8 labels (N, n), in random order; ValueError where impossible."""
        self.require_possible()
        plans = {split: self.plan(size) for split, size in self.sizes.items()}
        parts: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {split: [] for split in SPLITS}
        for kind in DRAWS:
            for index, length in enumerate(self.lengths):
                words = self._words(kind, length, {split: int(plans[split][kind][index]) for split in SPLITS})
                for split in SPLITS:
                    parts[split].append(encode(words[split], kind == POSITIVE, self.positions))
        arrays: Arrays = {}
        for split in SPLITS:
            order = generator(self.data_seed, "data", "dyck", "order", split).permutation(self.sizes[split])
            inputs, labels = (np.concatenate(part)[order] for part in zip(*parts[split], strict=True))
            arrays |= {f"{split}/inputs": inputs, f"{split}/labels": labels}
        return arrays

    def _words(self, kind: str, length: int, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
        """Words of one kind and length for each split."""
        rng = generator(self.data_seed, "data", "dyck", kind, length)
        return draw_splits(lambda count: DRAWS[kind](rng, count, length), sizes)

    def card(self, arrays: Arrays) -> dict[str, Any]:
        """Sizes, class balance, kinds of negatives, repeats and lengths, for each split."""
        card = self.common_card(arrays, ["unbalanced", "balanced"])
        for split in SPLITS:
            plan = self.plan(self.sizes[split])
            lengths = (arrays[f"{split}/inputs"] < QUERY).sum(axis=1)
            card["splits"][split] |= {
                "negatives": {kind: int(plan[kind].sum()) for kind in NEGATIVES},
                "lengths": {str(length): int((lengths == length).sum()) for length in self.lengths},
            }
        return card

    def references(self, arrays: Arrays) -> dict[str, float]:
        """Accuracy of the more frequent class, and of the best rule that sees how often a string opens and closes."""
        answers = {split: arrays[f"{split}/labels"].max(axis=1) for split in ("train", "test")}
        counts = {split: _counts(arrays[f"{split}/inputs"]) for split in answers}
        nothing = {split: np.zeros_like(counts[split]) for split in answers}
        return {
            name: rule_accuracy(seen["train"], answers["train"], seen["test"], answers["test"])
            for name, seen in (("reference_majority", nothing), ("reference_counting", counts))
        }


def _counts(rows: np.ndarray) -> np.ndarray:
    """How often each row opens and closes, as one number: (N, n) → (N,)."""
    return np.asarray((rows == OPEN).sum(axis=1) * (rows.shape[1] + 1) + (rows == CLOSE).sum(axis=1))


def is_balanced(text: str) -> bool:
    """Whether every parenthesis of a text is matched; the empty text is balanced.

    Raises:
        ValueError: for any character but ``(`` and ``)``.
    """
    if strange := sorted(set(text) - set("()")):
        raise ValueError(f"only '(' and ')' are allowed, not {', '.join(map(repr, strange))}")
    height = 0
    for character in text:
        height += 1 if character == "(" else -1
        if height < 0:
            return False
    return height == 0


def word_count(length: int) -> int:
    """Number of Dyck words of a length: the Catalan number of its half, 0 for odd lengths.

    >>> [word_count(length) for length in (2, 4, 6, 8, 10, 12)]
    [1, 2, 5, 14, 42, 132]
    """
    return 0 if length % 2 else comb(length, length // 2) // (length // 2 + 1)


def _shortest_length() -> int:
    """The shortest length that has enough Dyck words to split."""
    length = 2
    while word_count(length) < FEWEST_WORDS:
        length += 2
    return length


def encode(words: np.ndarray, balanced: bool, positions: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of tokens and labels: words (B, length) of one class → uint8 and int8 arrays (B, positions)."""
    count, length = words.shape
    tokens = np.full((count, positions), PAD, dtype=np.uint8)
    tokens[:, :length] = words
    tokens[:, length] = QUERY
    labels = np.full((count, positions), -1, dtype=np.int8)
    labels[:, length] = balanced
    return tokens, labels


def balanced_rows(words: np.ndarray) -> np.ndarray:
    """Whether each word is balanced: (B, length) of 0 and 1 → bool (B,)."""
    heights = _heights(words)
    return np.asarray((heights[:, -1] == 0) & (heights.min(axis=1) >= 0))


def _heights(words: np.ndarray) -> np.ndarray:
    """Opened minus closed after each character: (B, length) → int32 (B, length)."""
    return np.cumsum(1 - 2 * words.view(np.int8), axis=1, dtype=np.int32)


def draw_balanced(rng: np.random.Generator, count: int, length: int) -> np.ndarray:
    """Dyck words, exactly uniform: uint8 array (count, length).

    The cycle lemma (Dvoretzky, Motzkin, 1947): of the length + 1 rotations of a sequence with one closing parenthesis
    too many, exactly one is a Dyck word followed by a closing parenthesis.  It starts after the first lowest point.
    """
    sequences = _equal_counts(rng, count, length, extra=CLOSE)
    start = _heights(sequences).argmin(axis=1) + 1
    columns = start[:, None] + np.arange(length)
    columns -= (length + 1) * (columns > length)
    return np.take_along_axis(sequences, columns, axis=1)


def draw_random(rng: np.random.Generator, count: int, length: int) -> np.ndarray:
    """Strings that are not balanced, uniform: uint8 array (count, length)."""
    return _redrawn(lambda number: rng.integers(0, 2, (number, length), dtype=np.uint8), count)


def draw_flip(rng: np.random.Generator, count: int, length: int) -> np.ndarray:
    """Uniform Dyck words with one character, uniformly chosen, flipped: uint8 array (count, length)."""
    words = draw_balanced(rng, count, length)
    words[np.arange(count), rng.integers(0, length, count)] ^= 1
    return words


def draw_swap(rng: np.random.Generator, count: int, length: int) -> np.ndarray:
    """Uniform Dyck words with two characters swapped, uniform over the swaps that unbalance the word.

    Swapping an opening parenthesis at i with a closing one at j > i lowers the heights of i … j − 1 by 2.  So it
    unbalances the word when one of these heights is less than 2: for each j after the first such height from i on.
    No other swap unbalances.  Every word has such a swap: its first character with its last.
    Returns a uint8 array (count, length).
    """
    words = draw_balanced(rng, count, length)
    rows, positions = np.arange(count), np.arange(length, dtype=np.int32)
    low = np.where(_heights(words) < 2, positions, length)
    low = np.minimum.accumulate(low[:, ::-1], axis=1)[:, ::-1]  # the first low height from each position on
    closed = np.cumsum(words, axis=1, dtype=np.int32)
    partners = np.where(words == OPEN, length // 2 - np.take_along_axis(closed, low, axis=1), 0)
    swaps = np.cumsum(partners, axis=1, dtype=np.int32)
    choice = rng.integers(0, swaps[:, -1])
    opening = (swaps > choice[:, None]).argmax(axis=1)
    from_last = swaps[rows, opening] - choice - 1  # of the partners, counted from the end of the word
    closing = (closed >= (length // 2 - from_last)[:, None]).argmax(axis=1)
    words[rows, opening], words[rows, closing] = CLOSE, OPEN
    return words


def draw_negative_prefix(rng: np.random.Generator, count: int, length: int) -> np.ndarray:
    """Strings that open as often as they close but are not balanced, uniform: uint8 array (count, length)."""
    return _redrawn(lambda number: _equal_counts(rng, number, length), count)


def _equal_counts(rng: np.random.Generator, count: int, length: int, extra: int | None = None) -> np.ndarray:
    """Uniform arrangements of length / 2 characters of each kind, and one `extra`: uint8 array."""
    characters = np.repeat(np.array([OPEN, CLOSE], dtype=np.uint8), length // 2)
    if extra is not None:
        characters = np.append(characters, np.uint8(extra))
    return rng.permuted(np.tile(characters, (count, 1)), axis=1)


def _redrawn(draw: Callable[[int], np.ndarray], count: int) -> np.ndarray:
    """Rows of `draw`, those that are balanced drawn again until none is."""
    words = draw(count)
    pending = np.flatnonzero(balanced_rows(words))
    while pending.size:
        words[pending] = draw(pending.size)
        pending = pending[balanced_rows(words[pending])]
    return words


DRAWS: dict[str, Callable[[np.random.Generator, int, int], np.ndarray]] = {
    POSITIVE: draw_balanced,
    "random": draw_random,
    "flip": draw_flip,
    "swap": draw_swap,
    "negative_prefix": draw_negative_prefix,
}
