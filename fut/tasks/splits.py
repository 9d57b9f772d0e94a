"""Which split a sequence belongs to: a function of the sequence alone.

A sequence's 64-bit hash names its split, 80 % train, 10 % val and 10 % test.  So no two splits share a sequence,
whatever the seed and the sizes, and a sequence has the same split in every dataset of its kind.

>>> words = np.array([[0, 1, 0, 1], [0, 0, 1, 1], [0, 1, 0, 1]], dtype=np.uint8)
>>> split = split_of(words)
>>> bool(split[0] == split[2])
True
"""

from collections.abc import Callable, Mapping

import numpy as np

SPLITS = ("train", "val", "test")
SHARES = {"train": 0.8, "val": 0.1, "test": 0.1}  # of the space of hashes
_SPLIT_OF_TENTH = np.array([0, 0, 0, 0, 0, 0, 0, 0, 1, 2])
_MOST_ROWS = 1 << 14  # drawn at once: enough to hide NumPy's call costs, small enough for the cache


def row_hash(rows: np.ndarray) -> np.ndarray:
    """A 64-bit hash of the bytes of each row: array (B, …) → uint64 array (B,).

    The rows' bytes are read as little-endian 64-bit words, the last one filled up with zeros; each is mixed in by the
    finaliser of SplitMix64 (Steele, Lea, Flood, 2014).  The number of bytes starts the hash, so that sequences that
    differ in trailing zeros only have hashes of their own.
    """
    little = np.ascontiguousarray(rows).astype(rows.dtype.newbyteorder("<"), copy=False)
    count = len(little)
    size = little.dtype.itemsize * int(np.prod(little.shape[1:]))
    padded = np.zeros((count, -(-size // 8) * 8), dtype=np.uint8)
    if count and size:
        padded[:, :size] = little.reshape(count, -1).view(np.uint8)
    state = _mixed(np.full(count, size, dtype=np.uint64))
    for word in padded.view("<u8").astype(np.uint64, copy=False).T:
        state = _mixed(state ^ word)
    return state


def _mixed(values: np.ndarray) -> np.ndarray:
    """SplitMix64's step and finaliser, a bijection of the 64-bit integers."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def split_of(rows: np.ndarray) -> np.ndarray:
    """The split of each row, as an index into `SPLITS`: array (B, …) → integer array (B,)."""
    tenths = (row_hash(rows) % np.uint64(10)).astype(np.intp)
    return np.asarray(_SPLIT_OF_TENTH[tenths])


def draw_splits(draw: Callable[[int], np.ndarray], sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Draws rows until every split has its size; a row goes where its hash says, or nowhere when that split is full.

    Args:
        draw: draws a given number of rows, independent of each other; array (B, …).
        sizes: rows wanted of each split.  The caller sees to it that each split can occur.
    """
    parts: dict[str, list[np.ndarray]] = {split: [draw(0)] for split in SPLITS}
    missing = dict(sizes)
    while any(missing.values()):
        rows = draw(_enough(missing))
        index = split_of(rows)
        for number, split in enumerate(SPLITS):
            kept = rows[index == number][: missing[split]]
            parts[split].append(kept)
            missing[split] -= len(kept)
    return {split: np.concatenate(parts[split]) for split in SPLITS}


def _enough(missing: Mapping[str, int]) -> int:
    """Rows to draw next: what the neediest split asks for, and a little more."""
    return min(_MOST_ROWS, 32 + int(1.1 * max(missing[split] / SHARES[split] for split in SPLITS)))


def repeats(rows: np.ndarray) -> int:
    """How many rows are copies of an earlier row."""
    flat = np.ascontiguousarray(rows).reshape(len(rows), int(np.prod(rows.shape[1:])))
    whole = flat.view(np.dtype((np.void, flat.dtype.itemsize * flat.shape[1])))
    return len(rows) - len(np.unique(whole))
