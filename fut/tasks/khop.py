"""k-hop induction heads: follow a chain of "where did I last see this character?" (Sanford, Hsu, Telgarsky, 2024).

Claim: a depth of about log₂ k is enough for a transformer to follow k hops and, under a common conjecture, needed.

Input: a string over an alphabet in which no two neighbours are equal, one token a character.  One *hop* takes
position i to j + 1, where j is the last position before i that has the same character as i.  The answer at position i
is the character at the position reached after k hops.  If a hop finds no such j, there is no answer (−1): the position
carries no loss and counts in no accuracy.  Every position is asked.

Traced, k = 1, the string a b a c a b:

    position  0  1  2  3  4  5
    string    a  b  a  c  a  b
    2 (a): a was last seen at 0, so the hop reaches 1, a b
    4 (a): a was last seen at 2, so the hop reaches 3, a c
    5 (b): b was last seen at 1, so the hop reaches 2, an a
    0, 1, 3: the first of their kind, no answer

>>> def show(text, hops):
...     tokens = np.array([["abc".index(character) for character in text]])
...     return "".join("abc-"[answer] for answer in hop_targets(tokens, hops)[0])
>>> show("abacab", 1)
'--b-ca'

With k = 2 the next hop starts where the last one arrived, and looks only left of there: from 5 to 2 and on to 1, a b.
From 4 the first hop reaches 3, the first c, and the chain ends.

>>> show("abacab", 2)
'-----b'
>>> show("abacab", 0)
'abacab'
"""

from functools import cache
from typing import Any, Literal

import numpy as np
from pydantic import Field

from fut.seeds import generator
from fut.tasks.base import Arrays, TokenTask
from fut.tasks.rules import rule_accuracy
from fut.tasks.splits import SPLITS, draw_splits

MOST_CHARACTERS = 128  # labels are int8
FEWEST_STRINGS = 1_000  # a smaller world leaves splits of a few strings, that training sees over and over
FEWEST_ANSWERS = 0.01  # share of positions
_SEARCHED_LENGTHS = (64, 256, 1024)
_BLOCK_CELLS = 1 << 17  # characters scanned together: their pointers stay near the processor


class Khop(TokenTask):
    """Parameters of a k-hop dataset."""

    name: Literal["khop"] = "khop"
    hops: int = Field(1, ge=0, description="hops k; 0 asks for the character itself")
    alphabet: int = Field(4, ge=2, le=MOST_CHARACTERS, description="number of characters")
    length: int = Field(16, ge=2, description="characters of a string")

    @property
    def positions(self) -> int:
        """Length n of the sequences that the transformer reads."""
        return self.length

    @property
    def vocabulary(self) -> int:
        """One token a character."""
        return self.alphabet

    @property
    def out_dim(self) -> int:
        """One class a character."""
        return self.alphabet

    def problems(self) -> list[str]:
        """What makes these parameters impossible, each with the value that would do."""
        strings = string_count(self.alphabet, self.length)
        if strings < FEWEST_STRINGS:
            return [
                f"length: alphabet {self.alphabet} and length {self.length} make only {strings} strings without "
                f"equal neighbours, and {FEWEST_STRINGS:,} are needed to split them: {self._larger_worlds()}"
            ]
        searched = min(self.length, _SEARCHED_LENGTHS[-1])  # later positions are more likely to have an answer
        if answered_shares(self.hops, self.alphabet, searched)[-1] < FEWEST_ANSWERS:
            fitting = _answered_length(self.hops, self.alphabet)
            remedy = f"use length {fitting} or more" if fitting else "use fewer hops or a smaller alphabet"
            return [
                f"length: fewer than {FEWEST_ANSWERS:.0%} of the positions of strings of length {self.length} over "
                f"alphabet {self.alphabet} have an answer after {self.hops} hops: {remedy}"
            ]
        return []

    def _larger_worlds(self) -> str:
        """The smallest length that fits this alphabet, and the smallest alphabet that fits this length."""
        letters = self.alphabet
        while string_count(letters, self.length) < FEWEST_STRINGS:
            letters += 1
        if self.alphabet == 2:  # a b a b … and b a b a …, however long
            return f"no length will do; use alphabet {letters} or more"
        length = self.length
        while string_count(self.alphabet, length) < FEWEST_STRINGS:
            length += 1
        return f"use length {length} or more, or alphabet {letters} or more"

    def generate(self) -> Arrays:
        """Uniform strings and their answers, uint8 inputs and int8 labels (N, n); ValueError where impossible."""
        self.require_possible()
        rng = generator(self.data_seed, "data", "khop")
        strings = draw_splits(lambda count: draw_strings(rng, count, self.length, self.alphabet), self.sizes)
        arrays: Arrays = {}
        for split in SPLITS:
            labels = hop_targets(strings[split], self.hops).astype(np.int8)
            if not (labels >= 0).any():
                raise ValueError(f"{split}_size: no position of {len(labels)} sequences has an answer: make it larger")
            arrays |= {f"{split}/inputs": strings[split], f"{split}/labels": labels}
        return arrays

    def card(self, arrays: Arrays) -> dict[str, Any]:
        """Sizes, class balance, repeats and the share of positions without an answer, for each split."""
        card = self.common_card(arrays, [str(character) for character in range(self.alphabet)])
        card["distinct_strings"] = string_count(self.alphabet, self.length)
        for split in SPLITS:
            card["splits"][split]["undefined_share"] = float(np.mean(arrays[f"{split}/labels"] < 0))
        return card

    def references(self, arrays: Arrays) -> dict[str, float]:
        """Accuracy of the most frequent answer, and of the best rules that see the last 1, 2 and 3 tokens.

        The position's own token is the last one.  A rule sees where the string starts, and nothing else of positions.
        """
        names = ("reference_majority", "reference_one_token", "reference_two_tokens", "reference_three_tokens")
        asked = {split: arrays[f"{split}/labels"] >= 0 for split in ("train", "test")}
        answers = {split: arrays[f"{split}/labels"][where] for split, where in asked.items()}
        seen = {split: np.zeros(where.shape, dtype=np.int64) for split, where in asked.items()}
        accuracies = {}
        for back, name in enumerate(names):  # each rule sees one token more than the last, from 0 on
            accuracies[name] = rule_accuracy(
                seen["train"][asked["train"]], answers["train"], seen["test"][asked["test"]], answers["test"]
            )
            for split in seen:
                tokens = np.zeros_like(seen[split])  # 0: before the start
                tokens[:, back:] = arrays[f"{split}/inputs"][:, : self.length - back].astype(np.int64) + 1
                seen[split] = seen[split] * (self.alphabet + 1) + tokens
        return accuracies


def string_count(alphabet: int, length: int) -> int:
    """Number of strings without equal neighbours: a (a − 1)ⁿ⁻¹.

    >>> string_count(4, 3)
    36
    """
    return int(alphabet * (alphabet - 1) ** (length - 1))


def draw_strings(rng: np.random.Generator, count: int, length: int, alphabet: int) -> np.ndarray:
    """Uniform strings without equal neighbours: uint8 array (count, length).

    The first character is uniform, and each next one uniform over the others: it lies 1 … a − 1 further, modulo a.
    """
    tokens = np.empty((length, count), dtype=np.uint8)
    tokens[0] = rng.integers(0, alphabet, count, dtype=np.uint8)
    tokens[1:] = rng.integers(1, alphabet, (length - 1, count), dtype=np.uint8)
    for position in range(1, length):
        tokens[position] += tokens[position - 1]  # below 2 · 128: no overflow
        np.subtract(tokens[position], alphabet, out=tokens[position], where=tokens[position] >= alphabet)
    return np.ascontiguousarray(tokens.T)


def hop_targets(tokens: np.ndarray, hops: int) -> np.ndarray:
    """The character at the position reached after k hops, or −1 where a hop fails.

    Args:
        tokens: characters, integers ≥ 0, array (B, n); equal neighbours are allowed.
        hops: number k ≥ 0 of hops.

    Returns:
        int64 array (B, n).

    Raises:
        ValueError: for another shape, another type, negative characters or negative hops.
    """
    tokens = np.asarray(tokens)
    if tokens.ndim != 2 or not np.issubdtype(tokens.dtype, np.integer):
        raise ValueError(f"tokens: an integer array (B, n) is needed, not {tokens.dtype} {tokens.shape}")
    if hops < 0:
        raise ValueError(f"hops: {hops} is negative")
    if tokens.size == 0:
        return np.empty(tokens.shape, dtype=np.int64)
    if tokens.min() < 0:
        raise ValueError("tokens: characters are numbers from 0 on")
    answers = np.empty(tokens.shape, dtype=np.int64)
    if tokens.max() >= MOST_CHARACTERS:  # keeps the last-seen table small, whatever the numbers
        characters, dense = np.unique(tokens, return_inverse=True)
        dense = dense.reshape(tokens.shape)
    else:
        characters, dense = None, tokens
    rows = max(1, _BLOCK_CELLS // tokens.shape[1])
    for start in range(0, len(tokens), rows):
        block = _hop_targets(dense[start : start + rows].T, hops).T
        answers[start : start + rows] = block if characters is None else np.where(block < 0, -1, characters[block])
    return answers


def _hop_targets(tokens: np.ndarray, hops: int) -> np.ndarray:
    """`hop_targets` of one block, positions first: (n, B) → (n, B).

    Pointers are flat indices into (n, B).  A hop always arrives at position 1 or later, so that a pointer to position 0
    can mean "no such position"; it leads to itself.
    """
    length, count = tokens.shape
    lanes = np.arange(count)
    cells = tokens.astype(np.intp) * count + lanes  # of the last-seen table (alphabet, B)
    after_last_seen = np.tile(lanes, int(tokens.max()) + 1)
    pointers = np.empty((length, count), dtype=np.intp)
    for position in range(length):
        cell = cells[position]
        pointers[position] = after_last_seen.take(cell)
        lanes = lanes + count  # now the pointers to position + 1
        after_last_seen[cell] = lanes
    answers = tokens.astype(np.int8 if tokens.max() < MOST_CHARACTERS else np.int64, order="C")
    if hops:
        answers[0] = -1
    for _ in range(min(hops, length)):  # a hop leads left or stays, so that more hops change nothing
        answers = answers.take(pointers)
    return answers


@cache
def answered_shares(hops: int, alphabet: int, length: int) -> np.ndarray:
    """Share of the positions that have an answer in strings of length 1 … `length`: array (length,).

    Estimated on 1,000 strings, always the same ones.
    """
    if length < hops + 2:  # without equal neighbours every hop leads left, and the last one to position 1 at least
        return np.zeros(length)
    strings = draw_strings(np.random.default_rng(0), 1_000, length, alphabet)
    by_position = np.mean(hop_targets(strings, hops) >= 0, axis=0)
    return np.asarray(by_position.cumsum() / np.arange(1, length + 1))


def _answered_length(hops: int, alphabet: int) -> int | None:
    """The smallest length at which enough positions have an answer, or None if that is longer than any searched."""
    for length in _SEARCHED_LENGTHS:
        if (fitting := np.flatnonzero(answered_shares(hops, alphabet, length) >= FEWEST_ANSWERS)).size:
            return int(fitting[0]) + 1
    return None
