"""The compiler: an embedding under which a frozen backbone computes what a target computes, found and not trained.

The target's attention matrices and outputs are those of the backbone if the embedding E meets conditions that are
linear in it, E Φ = T (`fut.theory` derives them, `fut.stack` finds their columns).  So compiling is solving linear
equations (`fut.solving`): exactly, for every target, where the N columns of Φ are independent, and in the sense of
least squares elsewhere.  All of it is done in float64.

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

from fut.backbones.base import Backbone, Recipe
from fut.seeds import generator
from fut.solving import apply, least_squares, share, solve, spectrum_of
from fut.stack import Dense, Slots, Stack, stack_of
from fut.theory import sparse_width, sufficient_width

EXACT_WITHIN = 1e-8  # relative error of the outputs
CHECKED = (8, 12)  # fresh inputs: sequences, positions
COPIES = 5  # of Φ that solving holds at a time, and of the states of the fresh inputs


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
        if self.width < self.sufficient_width:
            why = f"{self.sufficient_width} would be sufficient for a generic backbone"
        elif not self.margin:
            why = "its columns of conditions are dependent"
        else:
            why = f"rounding, at a condition number of {self.condition_number:.1e}, or outputs that no U gives"
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


@np.errstate(over="ignore", invalid="ignore")  # what is not finite is said in words
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
            where the backbone's are tied and there are residual connections, an MLP is in the way, or the weights are
            not finite or so large that their products are not.
        MemoryError: see `require_memory`; nothing has been allocated then.
    """
    _refuse_misfits(target, backbone, compile_unembedding)
    recipe, residual = backbone.recipe, target.residual
    require_memory(recipe, target.dim, target.out_dim, residual, compile_unembedding, built=True)
    stack, wanted = stack_of(backbone), target.stack(recipe.qk_dim)
    words = recipe.tied and residual
    leaves = _leaves(stack, backbone, target.out_dim, compile_unembedding)
    phi = stack.conditions(leaves, residual, words)
    conditions = wanted.conditions(target.unembedding[:, : leaves.shape[-1]].astype(np.float64), residual, words)
    inputs = fresh_inputs(target)
    right = target(inputs)
    _refuse_infinite("target", conditions, right)
    _refuse_infinite("backbone", phi)
    embedding, spectrum = solve(phi, conditions, stack.width), spectrum_of(phi)
    missed = share(apply(embedding, phi) - conditions, conditions)
    if compile_unembedding:
        unembedding = _solve_unembedding(stack, wanted, target, embedding, words)
    else:
        unembedding = backbone.arrays["unembedding"].astype(np.float64)
    program = Program(embedding, unembedding)
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
        relative_error=share(difference, right),
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


def require_memory(
    recipe: Recipe,
    target_dim: int,
    out_dim: int,
    residual: bool = False,
    compile_unembedding: bool = False,
    built: bool = False,
) -> None:
    """Refuse a problem that this machine has no memory for, by its sizes alone: nothing is drawn or allocated.

    Counted are the backbone's own arrays, the target, E Φ = T with what solving it holds, and the run on fresh inputs.

    Args:
        recipe: of the backbone.
        target_dim: d.
        out_dim: p.
        residual: whether there are residual connections.
        compile_unembedding: whether U belongs to the program.
        built: whether the backbone is in memory already.

    Raises:
        MemoryError: with the size needed, and the size that is free.
    """
    heads, layers, m, d = recipe.heads, recipe.layers, recipe.width, target_dim
    words = recipe.tied and residual

    def count(k: int, p: int) -> int:
        return sufficient_width(heads, layers, k, p, residual, words)

    dense, full_paths = recipe.layout is None, count(1, 2) - count(1, 1)
    conditions = count(recipe.qk_dim, out_dim) - (out_dim * full_paths if dense and compile_unembedding else 0)
    states = CHECKED[0] * CHECKED[1]
    solving = COPIES * 8 * max(conditions, m) * ((m if dense else 0) + d + states)
    if compile_unembedding:
        solving += COPIES * 8 * d * full_paths * (m + d + out_dim)
    solving += COPIES * 8 * layers * heads * d * (2 * recipe.qk_dim + d)  # the target itself
    own = bytes_of(recipe)
    drawing = 2 * own + COPIES * 8 * m * m * dense  # head by head in float64, then put together
    needed, free = solving if built else max(drawing, own + solving), psutil.virtual_memory().available
    if needed > free:
        raise MemoryError(
            f"{_short(conditions)} conditions at width {_short(m)} take {_short(needed / 1e9, 1)} GB of memory, and "
            f"{_short(free / 1e9, 1)} GB are free; take fewer heads or layers, a smaller target or a smaller width"
        )


def bytes_of(recipe: Recipe) -> int:
    """Size of a backbone's arrays, MLP aside, by its recipe alone."""
    heads, m, k = recipe.heads, recipe.width, recipe.qk_dim
    stored = 1 if recipe.tied else recipe.layers
    unembedding = 4 * m * (recipe.unembedding or 0)
    if recipe.layout is None:
        value = m * m if recipe.values == "full" else 2 * m * (m // heads)
        return 4 * stored * heads * (2 * m * k + value) + unembedding
    p = recipe.out_dim or 0
    subtrees = [sparse_width(recipe.layout, heads, layers, k, p) for layers in range(1, recipe.layers)]
    moved = max([2 * heads * k + p, *subtrees]) if recipe.tied else p + sum(subtrees)
    return 8 * (stored * heads * 2 * k + (heads + 1) * moved) + unembedding


def _short(number: float, digits: int = 0) -> str:
    return f"{number:,.{digits}f}" if number < 1e9 else f"{number:.1e}"


def universality_margin(backbone: Backbone, residual: bool = False, compile_unembedding: bool = False) -> float:
    """σ_N(Φ): how far a backbone is from one that lacks a program for some target; 0 where it is one.

    Zero where m < N, and where the N columns are dependent but for rounding (below 1e-10 of the first singular value).
    In the tied residual class equal words count once.  With the unembedding compiled too, Φ holds the conditions on E
    alone, without those on U.
    """
    recipe, stack = backbone.recipe, stack_of(backbone)
    out_dim = recipe.unembedding or recipe.out_dim or 0
    phi = stack.conditions(_leaves(stack, backbone, out_dim, compile_unembedding), residual, recipe.tied and residual)
    return spectrum_of(phi).margin


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


def _refuse_infinite(name: str, *products: np.ndarray) -> None:
    if not all(np.isfinite(product).all() for product in products):
        raise CompileError(
            f"products of the {name}'s weights are not finite in float64: the weights are too large, or no numbers"
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


def _solve_unembedding(stack: Stack, wanted: Dense, target: Target, embedding: np.ndarray, words: bool) -> np.ndarray:
    """The smallest U under which the contents of all full paths give the target's."""
    contents = stack.contents(embedding, target.residual, words)
    outputs = wanted.contents(np.eye(target.dim), target.residual, words) @ target.unembedding.astype(np.float64)
    return least_squares(contents, outputs)
