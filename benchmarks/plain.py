"""The plain loops beside which the generators are timed.

They go string by string and character by character, as scripts that accompany papers do.
"""

import math
import random
from collections.abc import Callable

import numpy as np

from fut.tasks.simulate import Target


def khop_string(draw: random.Random, length: int, alphabet: int) -> list[int]:
    """A uniform string without equal neighbours."""
    string = [draw.randrange(alphabet)]
    while len(string) < length:
        character = draw.randrange(alphabet)
        if character != string[-1]:
            string.append(character)
    return string


def khop_answers(string: list[int], hops: int) -> list[int]:
    """The character reached from each position, −1 where a hop fails."""
    return [_follow(string, position, hops) for position in range(len(string))]


def _follow(string: list[int], position: int, hops: int) -> int:
    for _ in range(hops):
        for before in range(position - 1, -1, -1):
            if string[before] == string[position]:
                position = before + 1
                break
        else:
            return -1
    return string[position]


def dyck_word(draw: random.Random, length: int) -> list[int]:
    """A uniform Dyck word, 0 opens and 1 closes (Arnold, Sleep, 1980)."""
    word, height = [], 0
    for left in range(length, 0, -1):
        closes = draw.random() < height * (left + height + 2) / (2 * left * (height + 1))
        word.append(int(closes))
        height += -1 if closes else 1
    return word


def is_word(string: list[int]) -> bool:
    """Whether a string of 0 and 1 is balanced."""
    height = 0
    for character in string:
        height += -1 if character else 1
        if height < 0:
            return False
    return height == 0


def random_string(draw: random.Random, length: int) -> list[int]:
    """A string that is not balanced, drawn until it is not."""
    return _until_unbalanced(lambda: [draw.randrange(2) for _ in range(length)])


def flipped_word(draw: random.Random, length: int) -> list[int]:
    """A Dyck word with one character flipped."""
    word = dyck_word(draw, length)
    word[draw.randrange(length)] ^= 1
    return word


def swapped_word(draw: random.Random, length: int) -> list[int]:
    """A Dyck word with two characters swapped, drawn until it is not balanced."""
    word = dyck_word(draw, length)

    def swapped() -> list[int]:
        one, other = draw.sample(range(length), 2)
        copy = list(word)
        copy[one], copy[other] = word[other], word[one]
        return copy

    return _until_unbalanced(swapped)


def shuffled_string(draw: random.Random, length: int) -> list[int]:
    """As many of each character, shuffled until they are not balanced."""
    return _until_unbalanced(lambda: draw.sample([0, 1] * (length // 2), length))


def _until_unbalanced(make: Callable[[], list[int]]) -> list[int]:
    string = make()
    while is_word(string):
        string = make()
    return string


WORDS = {
    "balanced": dyck_word,
    "random": random_string,
    "flip": flipped_word,
    "swap": swapped_word,
    "negative_prefix": shuffled_string,
}


def target_outputs(target: Target, inputs: np.ndarray) -> np.ndarray:
    """Outputs (n, p) of a target for one sequence (n, d), head by head and position by position."""
    state = inputs.astype(np.float64)
    for layer in range(len(target.query)):
        following = np.zeros_like(state)
        for query, key, value in zip(target.query[layer], target.key[layer], target.value[layer], strict=True):
            queries, keys, values = state @ query, state @ key, state @ value
            for position in range(len(state)):
                scores = keys[: position + 1] @ queries[position] / math.sqrt(query.shape[1])
                weights = np.exp(scores - scores.max())
                following[position] += weights / weights.sum() @ values[: position + 1]
        state = following
    return state @ target.unembedding
