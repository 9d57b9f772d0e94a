"""The compiler: an embedding under which a frozen backbone computes what a target computes, found and not trained.

The target's attention matrices and outputs are those of the backbone if the embedding E meets conditions that are
linear in it, E Φ = T (`fut.theory` derives them, `fut.stack` finds their columns).  So compiling is solving linear
equations: exactly, for every target, where the N columns of Φ are independent, and in the sense of least squares
elsewhere.  All of it is done in float64.

>>> from fut.backbones import Random, Shape, build
>>> shape = Shape(heads=1, layers=1, width=6, mlp=False, out_dim=2, target_qk_dim=2, fixed_unembedding=True)
>>> target = draw_target(heads=1, layers=1, dim=2, seed=0)
>>> program, report = compile_program(target, build(Random().recipe(shape, seed=0)))
>>> program.embedding.shape, report.sufficient_width, report.exact
((2, 6), 6, True)
"""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import NamedTuple

import numpy as np
import psutil
import scipy.linalg
import scipy.sparse.linalg

from fut.backbones.base import Backbone
from fut.seeds import generator
from fut.stack import NOWHERE, Dense, Slots, Stack, stack_of
from fut.theory import sufficient_width

EXACT_WITHIN = 1e-8  # relative error of the outputs
ZERO_BELOW = 1e-10  # times the largest singular value: a smallest one that counts as zero
DENSE_UP_TO = 1_000  # columns whose singular values are all computed; of more, the two extreme ones are
CHECKED = (8, 12)  # fresh inputs: sequences, positions
COPIES = 5  # of Φ that solving holds at a time


class CompileError(ValueError):
    """A target that cannot be compiled into a backbone, and why."""


@dataclass(frozen=True, eq=False)
class Target:
    """A transformer to be simulated: attention only, or with residual connections.  Arrays in any precision.

    Raises:
        CompileError: shapes that do not fit each other, or weights that are not finite.
    """

    query: np.ndarray  # [L, H, d, k]
    key: np.ndarray  # [L, H, d, k]
    value: np.ndarray  # [L, H, d, d], W_VO = W_V W_O
    unembedding: np.ndarray  # [d, p]
    residual: bool = False
    token_embedding: np.ndarray | None = None  # [v, d]; None: the inputs are vectors
    position_embedding: np.ndarray | None = None  # [n, d]

    def __post_init__(self) -> None:
        if faults := self._faults():
            raise CompileError("this is no target: " + "; ".join(faults))

    def _faults(self) -> list[str]:
        arrays = {
            field.name: value for field in fields(self) if isinstance(value := getattr(self, field.name), np.ndarray)
        }
        dims = {"query": 4, "key": 4, "value": 4}
        faults = [
            f"{name} has {array.ndim} axes, not {dims.get(name, 2)}"
            for name, array in arrays.items()
            if array.ndim != dims.get(name, 2)
        ]
        faults += [f"{name} holds values that are not finite" for name, a in arrays.items() if not np.isfinite(a).all()]
        faults += [f"{name} is empty" for name, array in arrays.items() if not array.size]
        if faults:
            return faults
        layers, heads, d, _ = self.query.shape
        expected = {
            "key": self.query.shape,
            "value": (layers, heads, d, d),
            "unembedding": (d, self.unembedding.shape[1]),
        }
        faults += [
            f"{name} has shape {arrays[name].shape}, not {shape}"
            for name, shape in expected.items()
            if arrays[name].shape != shape
        ]
        faults += [
            f"{name} has {arrays[name].shape[1]} columns, not {d}"
            for name in ("token_embedding", "position_embedding")
            if name in arrays and arrays[name].shape[1] != d
        ]
        if (self.token_embedding is None) != (self.position_embedding is None):
            faults.append("token_embedding and position_embedding come together")
        return faults

    @property
    def layers(self) -> int:
        """L."""
        return self.query.shape[0]

    @property
    def heads(self) -> int:
        """H."""
        return self.query.shape[1]

    @property
    def dim(self) -> int:
        """The target's own embedding dimension d."""
        return self.query.shape[2]

    @property
    def qk_dim(self) -> int:
        """Columns k of W_Q and W_K of one head."""
        return self.query.shape[3]

    @property
    def out_dim(self) -> int:
        """Outputs p."""
        return self.unembedding.shape[1]

    @cached_property
    def tied(self) -> bool:
        """Whether all layers are the same."""
        return all((weights == weights[:1]).all() for weights in (self.query, self.key, self.value))

    def embed(self, inputs: np.ndarray) -> np.ndarray:
        """States [B, n, d] of vectors [B, n, d], or of tokens [B, n]."""
        if self.token_embedding is None or self.position_embedding is None:
            return inputs.astype(np.float64)
        return self.token_embedding.astype(np.float64)[inputs] + self.position_embedding[: inputs.shape[1]]

    def __call__(self, inputs: np.ndarray) -> np.ndarray:
        """Outputs [B, n, p] in float64."""
        return self.stack(self.qk_dim).run(self.embed(inputs), self.residual) @ self.unembedding.astype(np.float64)

    def stack(self, qk_dim: int) -> Dense:
        """The layers, with queries and keys padded to `qk_dim` columns.

        A padded score is divided by √k' in the place of √k; the factor (k'/k)^¼ in both W_Q and W_K makes up for it.
        """
        factor, missing = (qk_dim / self.qk_dim) ** 0.25, qk_dim - self.qk_dim
        query, key = (
            factor * np.pad(weights.astype(np.float64), [(0, 0)] * 3 + [(0, missing)])
            for weights in (self.query, self.key)
        )
        return Dense(query, key, self.value, None, self.layers)


class Program(NamedTuple):
    """What makes a backbone compute a target: float64 matrices."""

    embedding: np.ndarray  # E [d, m]
    unembedding: np.ndarray  # U [m, p]


@dataclass(frozen=True)
class Report:
    """How good a compiled program is."""

    sufficient_width: int  # N, or N_EU where the unembedding was compiled
    width: int  # m
    residual: float  # ‖E Φ − T‖ / ‖T‖
    condition_number: float  # σ_1 / σ_N of Φ, infinite where the columns are dependent
    margin: float  # see `universality_margin`
    largest_difference: float  # between the outputs on fresh inputs
    relative_error: float  # ‖difference‖ / ‖outputs‖ there

    @property
    def exact(self) -> bool:
        """Whether the outputs agree but for rounding."""
        return self.relative_error <= EXACT_WITHIN

    @property
    def words(self) -> str:
        """The report in a sentence."""
        if self.exact:
            return f"exact: relative error {self.relative_error:.1e} at width {self.width}"
        enough = self.width >= self.sufficient_width
        why = "its columns of conditions are dependent" if enough else f"{self.sufficient_width} would be sufficient"
        return (
            f"not exact: relative error {self.relative_error:.2g} at width {self.width} ({why}); this is the program "
            "of least squares, and nothing guarantees that it simulates the target"
        )


def draw_target(
    heads: int,
    layers: int,
    dim: int,
    seed: int,
    qk_dim: int | None = None,
    out_dim: int | None = None,
    residual: bool = False,
    tied: bool = False,
) -> Target:
    """A random target, drawn as the task `simulate` draws its own at a `target_qk_gain` of 1."""
    from fut.tasks.simulate import Simulate  # its torch takes seconds to import, and only this needs it

    task = Simulate(target_dim=dim, target_qk_dim=qk_dim, target_out_dim=out_dim, target_qk_gain=1.0)
    drawn = task.draw_target(heads, 1 if tied else layers, seed)
    stored = {name: getattr(drawn, name) for name in ("query", "key", "value")}
    if tied:
        stored = {name: np.repeat(weights, layers, axis=0) for name, weights in stored.items()}
    return Target(**stored, unembedding=drawn.unembedding, residual=residual)


def compile_program(target: Target, backbone: Backbone, compile_unembedding: bool = False) -> tuple[Program, Report]:
    """A program under which a backbone computes a target, and how well it does.

    At the sufficient width and above, generic backbones make it exact.  Below, it is the one of least squares, and the
    report says what error it has.

    Args:
        target: what to simulate.
        backbone: of any kind, without an MLP; with an unembedding of its own unless that is compiled too.
        compile_unembedding: whether U belongs to the program.

    Raises:
        CompileError: the target's shape is not the backbone's, its `qk_dim` exceeds the backbone's, its layers differ
            where the backbone's are tied and there are residual connections, or an MLP is in the way.
        MemoryError: the conditions need more memory than there is; nothing has been allocated then.
    """
    _refuse_misfits(target, backbone, compile_unembedding)
    recipe, residual = backbone.recipe, target.residual
    stack, wanted = stack_of(backbone), target.stack(recipe.qk_dim)
    words = recipe.tied and residual
    leaves = _leaves(stack, backbone, target.out_dim, compile_unembedding)
    _refuse_too_large(stack, _condition_count(target, recipe.qk_dim, words, leaves.shape[-1] > 0))
    phi = stack.conditions(leaves, residual, words)
    conditions = wanted.conditions(target.unembedding[:, : leaves.shape[-1]].astype(np.float64), residual, words)
    if isinstance(stack, Slots):
        embedding, spectrum = _read_off(phi, conditions, stack.width)
    else:
        embedding, spectrum = _solve(phi, conditions)
    missed = _norm(_apply(embedding, phi) - conditions) / _norm(conditions)
    if compile_unembedding:
        unembedding = _solve_unembedding(stack, wanted, target, embedding, words)
    else:
        unembedding = backbone.arrays["unembedding"].astype(np.float64)
    program = Program(embedding, unembedding)
    inputs = fresh_inputs(target)
    right = target(inputs)
    difference = run(program, stack, target.embed(inputs), residual) - right
    report = Report(
        sufficient_width=sufficient_width(
            target.heads,
            target.layers,
            recipe.qk_dim,
            target.out_dim,
            residual,
            recipe.tied,
            "compiled" if compile_unembedding else "fixed",
            target.dim,
        ),
        width=recipe.width,
        residual=missed,
        condition_number=spectrum.condition_number,
        margin=spectrum.margin,
        largest_difference=float(np.abs(difference).max()),
        relative_error=_norm(difference) / _norm(right),
    )
    return program, report


def run(program: Program, stack: Stack, states: np.ndarray, residual: bool) -> np.ndarray:
    """What a backbone's layers make of the states [B, n, d] of a target's inputs, under a program: [B, n, p]."""
    return stack.run(states @ program.embedding, residual) @ program.unembedding


def fresh_inputs(target: Target) -> np.ndarray:
    """Inputs that nothing has seen: Gaussian vectors, or uniform tokens."""
    rng = generator(0, "data", "compiler")
    sequences, positions = CHECKED
    if target.token_embedding is None or target.position_embedding is None:
        return rng.standard_normal((sequences, positions, target.dim))
    positions = min(positions, len(target.position_embedding))
    return rng.integers(0, len(target.token_embedding), (sequences, positions))


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


def universality_margin(backbone: Backbone, residual: bool = False, compile_unembedding: bool = False) -> float:
    """σ_N(Φ): how far a backbone is from one that lacks a program for some target; 0 where it is one.

    Zero where m < N, and where the N columns are dependent but for rounding (below 1e-10 of the first singular value).
    In the tied residual class equal words count once.
    """
    recipe, stack = backbone.recipe, stack_of(backbone)
    out_dim = recipe.unembedding or recipe.out_dim or 0
    phi = stack.conditions(_leaves(stack, backbone, out_dim, compile_unembedding), residual, recipe.tied and residual)
    return (_spectrum_of_slots(phi) if isinstance(stack, Slots) else _spectrum(phi)).margin


def _refuse_misfits(target: Target, backbone: Backbone, compile_unembedding: bool) -> None:
    recipe = backbone.recipe
    faults = [
        f"the target has {getattr(target, name)} {name}, the backbone {getattr(recipe, name)}"
        for name in ("heads", "layers")
        if getattr(target, name) != getattr(recipe, name)
    ]
    if target.qk_dim > recipe.qk_dim:
        faults.append(
            f"the target's qk_dim, {target.qk_dim}, exceeds the backbone's, {recipe.qk_dim}: scores of a higher rank "
            "cannot be matched; take a backbone of that qk_dim"
        )
    if recipe.mlp_gain is not None:
        faults.append("the backbone has an MLP, which the theory leaves open; build it without one")
    if recipe.tied and target.residual and not target.tied:
        faults.append(
            "the backbone's layers are tied and there are residual connections, but the target's layers differ: paths "
            "of equal words ask for different contents in one place; take a tied target, or an untied backbone"
        )
    if not compile_unembedding and "unembedding" not in backbone.arrays:
        faults.append("the backbone has no unembedding of its own; build it with one, or compile the unembedding too")
    elif not compile_unembedding and backbone.arrays["unembedding"].shape[1] != target.out_dim:
        faults.append(
            f"the target has {target.out_dim} outputs, the backbone's unembedding "
            f"{backbone.arrays['unembedding'].shape[1]}"
        )
    if faults:
        raise CompileError("; ".join(faults))


def _condition_count(target: Target, qk_dim: int, words: bool, leaves: bool) -> int:
    """Columns of Φ, with or without those of the leaves."""
    one, two, full = (
        sufficient_width(target.heads, target.layers, k, target.out_dim, target.residual, words) for k in (1, 2, qk_dim)
    )
    return full if leaves else qk_dim * (two - one)


def _refuse_too_large(stack: Stack, count: int) -> None:
    if isinstance(stack, Slots):
        return
    needed, there = COPIES * 8 * stack.width * max(count, stack.width), psutil.virtual_memory().available
    if needed > there:
        raise MemoryError(
            f"{count:,} conditions at width {stack.width:,} take {needed / 1e9:.1f} GB of memory, and "
            f"{there / 1e9:.1f} GB are free; take fewer heads or layers, or a smaller width"
        )


def _leaves(stack: Stack, backbone: Backbone, out_dim: int, compile_unembedding: bool) -> np.ndarray:
    """The conditions on the last state: the columns of the frozen unembedding, none where it is compiled too.

    A tree has slots for them in either case, and without contents there no unembedding would find any.
    """
    if isinstance(stack, Slots):
        return stack.leaves(out_dim)
    if compile_unembedding:
        return np.zeros((stack.width, 0))
    return backbone.arrays["unembedding"].astype(np.float64)


def _solve(phi: np.ndarray, conditions: np.ndarray) -> tuple[np.ndarray, Spectrum]:
    """The smallest E of the least ‖E Φ − T‖, and the extreme singular values of Φ."""
    solution = scipy.linalg.lstsq(phi.T, conditions.T, cond=ZERO_BELOW, lapack_driver="gelsy", check_finite=False)[0]
    return np.ascontiguousarray(solution.T), _spectrum(phi)


def _spectrum(phi: np.ndarray) -> Spectrum:
    width, count = phi.shape
    if count <= DENSE_UP_TO:
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


def _read_off(slots: np.ndarray, conditions: np.ndarray, width: int) -> tuple[np.ndarray, Spectrum]:
    """As `_solve`, where each condition reads one slot: the mean of what is asked of a slot, nothing is solved."""
    asked = np.bincount(slots[slots != NOWHERE], minlength=width)
    embedding = np.zeros((len(conditions), width))
    np.add.at(embedding.T, slots[slots != NOWHERE], conditions.T[slots != NOWHERE])
    return embedding / np.maximum(asked, 1), _spectrum_of_slots(slots)


def _spectrum_of_slots(slots: np.ndarray) -> Spectrum:
    _, asked = np.unique(slots[slots != NOWHERE], return_counts=True)
    independent = len(asked) == len(slots)
    return Spectrum(float(np.sqrt(asked.max(initial=0))), float(independent))


def _apply(embedding: np.ndarray, phi: np.ndarray) -> np.ndarray:
    """E Φ."""
    if phi.ndim == 2:
        return embedding @ phi
    return np.where(phi == NOWHERE, 0.0, embedding[:, phi])


def _solve_unembedding(stack: Stack, wanted: Dense, target: Target, embedding: np.ndarray, words: bool) -> np.ndarray:
    """The smallest U under which the contents of all full paths give the target's."""
    contents = stack.contents(embedding, target.residual, words)
    outputs = wanted.contents(np.eye(target.dim), target.residual, words) @ target.unembedding.astype(np.float64)
    return scipy.linalg.lstsq(contents, outputs, cond=ZERO_BELOW, lapack_driver="gelsy", check_finite=False)[0]


def _norm(array: np.ndarray) -> float:
    return float(np.linalg.norm(array))
