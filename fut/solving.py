"""Solving E Φ = T: the embedding of least squares, and the singular values that say how well Φ determines it.

Φ comes in one of the two forms of `fut.stack`: a matrix [m, N], or, of a sparse backbone, the N slots that it selects.
"""

from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse.linalg

from fut.stack import NOWHERE

ZERO_BELOW = 1e-10  # times the largest singular value: a smallest one that counts as zero
DENSE_UP_TO = 1_000  # singular values are all computed; of more, the two extreme ones are


class Spectrum(NamedTuple):
    """The extreme singular values of a matrix of N columns; the last is that of the N-th, 0 where there are more."""

    first: float
    last: float

    @property
    def margin(self) -> float:
        """The last, 0 where it is rounding."""
        return self.last if self.last >= ZERO_BELOW * self.first else 0.0

    @property
    def condition_number(self) -> float:
        """Of a matrix whose columns are independent; else infinite."""
        return self.first / self.last if self.margin else np.inf


def least_squares(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The smallest x of the least ‖matrix x − right‖."""
    return scipy.linalg.lstsq(matrix, right, cond=ZERO_BELOW, lapack_driver="gelsy", check_finite=False)[0]


def solve(phi: np.ndarray, conditions: np.ndarray, width: int) -> np.ndarray:
    """The smallest E [d, m] of the least ‖E Φ − T‖; of slots, the mean of what is asked of each, read off."""
    if phi.ndim == 2:
        return np.ascontiguousarray(least_squares(phi.T, conditions.T).T)
    there = phi != NOWHERE
    embedding = np.zeros((len(conditions), width))
    np.add.at(embedding.T, phi[there], conditions.T[there])
    return embedding / np.maximum(np.bincount(phi[there], minlength=width), 1)


def spectrum_of(phi: np.ndarray) -> Spectrum:
    """The extreme singular values of Φ."""
    if phi.ndim == 1:
        _, asked = np.unique(phi[phi != NOWHERE], return_counts=True)
        return Spectrum(float(np.sqrt(asked.max(initial=0))), float(len(asked) == len(phi)))
    width, count = phi.shape
    if min(width, count) <= DENSE_UP_TO:
        values = np.linalg.svd(phi, compute_uv=False)
        return Spectrum(float(values[0]), float(values[-1]) if width >= count else 0.0)
    first = float(scipy.sparse.linalg.svds(phi, k=1, return_singular_vectors=False, random_state=0)[0])
    if width < count:
        return Spectrum(first, 0.0)
    triangle = scipy.linalg.qr(phi, mode="r", check_finite=False)[0][:count]
    if (np.abs(np.diag(triangle)) < ZERO_BELOW * first).any():
        return Spectrum(first, 0.0)

    def inverse(vector: np.ndarray, transposed: int) -> np.ndarray:
        return scipy.linalg.solve_triangular(triangle, vector, trans=transposed, check_finite=False)

    inverted = scipy.sparse.linalg.LinearOperator(
        triangle.shape, matvec=lambda v: inverse(v, 0), rmatvec=lambda v: inverse(v, 1), dtype=np.float64
    )
    last = 1 / float(scipy.sparse.linalg.svds(inverted, k=1, return_singular_vectors=False, random_state=0)[0])
    return Spectrum(first, last)


def apply(embedding: np.ndarray, phi: np.ndarray) -> np.ndarray:
    """E Φ."""
    if phi.ndim == 2:
        return embedding @ phi
    return np.where(phi == NOWHERE, 0.0, embedding[:, phi])


def share(part: np.ndarray, whole: np.ndarray) -> float:
    """‖part‖ / ‖whole‖, 0 where both are zero."""
    size, of = float(np.linalg.norm(part)), float(np.linalg.norm(whole))
    return size / of if of else np.inf if size else 0.0
