"""Named random streams: one seed fixes several independent draws.

A trial has one seed.  What it draws comes from streams with names of their own, so that a change in how many numbers
one part draws never moves another part's.  All draws go through NumPy generators, whose values do not depend on the
number of threads or the processor's vector instructions.
"""

import hashlib
from typing import Literal

import numpy as np

Stream = Literal["backbone", "unembedding", "mlp", "program", "batches", "target", "data"]


def generator(seed: int, stream: Stream, *names: str | int) -> np.random.Generator:
    """A generator for one named stream of a seed.

    >>> a, b = generator(0, "backbone"), generator(0, "program")
    >>> bool(a.random() == b.random())
    False
    >>> bool(generator(3, "data", "train").random() == generator(3, "data", "train").random())
    True
    """
    text = ":".join(["fut", stream, str(seed), *map(str, names)])
    return np.random.default_rng(list(hashlib.sha256(text.encode()).digest()))
