"""How much memory compiling takes: asked for by sizes alone, before anything is drawn or allocated."""

import pytest

from fut.backbones import Control, Random, Shape, Sparse, build
from fut.backbones.base import BackboneConfig, Recipe
from fut.compiler import bytes_of, compile_program, draw_target, require_memory
from fut.stack import Dense
from fut.theory import sparse_width, sufficient_width

RECIPES = [
    config.recipe(Shape(heads, 3, 60, mlp=False, out_dim=2, target_qk_dim=3, fixed_unembedding=fixed), seed=0)
    for config in (
        Random(), Random(values="standard"), Random(tied=True), Control(control="low_rank"), Sparse(),
        Sparse(layout="residual"), Sparse(layout="tied"),
    )
    for heads in (1, 2)
    for fixed in (False, True)
]  # fmt: skip


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: f"{recipe.kind}-{recipe.id}")
def test_a_recipe_says_how_large_its_arrays_are(recipe) -> None:
    assert bytes_of(recipe) == sum(array.nbytes for array in build(recipe).arrays.values())


def needed(recipe: Recipe, **more) -> float:
    """GB that are asked for, as the refusal says it."""
    with pytest.raises(MemoryError) as error:
        require_memory(recipe, **more)
    return float(str(error.value).split(" take ")[1].split(" GB")[0].replace(",", ""))


def wide(
    heads: int, layers: int, d: int, width: int, config: BackboneConfig | None = None, fixed: bool = True
) -> Recipe:
    return (config or Random()).recipe(Shape(heads, layers, width, False, d, d, fixed), seed=0)


@pytest.fixture
def no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fut.compiler.psutil.virtual_memory", lambda: type("Memory", (), {"available": 1_000}))


@pytest.mark.usefixtures("no_memory")
def test_what_is_asked_for_covers_every_part() -> None:
    gb = 1e-9
    # at the sufficient width: Φ, and each of the layers' heads a matrix of m × m in float32
    n = sufficient_width(2, 6, 8, 8)
    assert needed(wide(2, 6, 8, n), target_dim=8, out_dim=8) > (8 + 2 * 6 * 4) * n * n * gb
    built_already = needed(wide(2, 6, 8, n), target_dim=8, out_dim=8, built=True)
    assert 8 * n * n * gb < built_already < needed(wide(2, 6, 8, n), target_dim=8, out_dim=8)
    # far above it, the m × m of a head; far below it, the conditions
    assert needed(wide(1, 1, 1, 20_000), target_dim=1, out_dim=1, built=True) > 8 * 20_000**2 * gb
    assert needed(wide(2, 16, 8, 100), target_dim=8, out_dim=8) > 8 * 100 * sufficient_width(2, 16, 8, 8) * gb
    # d far above k: the target; the blocks of all full paths, which a compiled unembedding has to meet
    assert needed(wide(1, 1, 1, 10), target_dim=20_000, out_dim=1) > 8 * 20_000**2 * gb
    paths = wide(2, 12, 1, 50, fixed=False)
    assert needed(paths, target_dim=1_000, out_dim=1, compile_unembedding=True) > 8 * 2**12 * 1_000 * 1_000 * gb
    # a tree has no m × m, but its slots hold the embedding and the states
    tree = wide(2, 14, 8, sparse_width("attention", 2, 14, 8, 8), Sparse())
    assert 8 * 8 * tree.width * gb < needed(tree, target_dim=8, out_dim=8) < 8 * tree.width**2 * gb / 100


@pytest.mark.usefixtures("no_memory")
def test_numbers_beyond_all_bounds_are_said_shortly() -> None:
    # 2 (10 + … + 10⁶⁰) + 20 · 10⁶⁰
    with pytest.raises(MemoryError, match=r"^2\.2e\+61 conditions at width 1\.0e\+30 take \d\.\de\+\d+ GB"):
        require_memory(wide(10, 60, 1, 10**30), target_dim=10, out_dim=20)


@pytest.mark.usefixtures("no_memory")
def test_too_large_a_problem_is_refused_before_anything_is_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    target, backbone = draw_target(2, 2, 2, seed=0), build(wide(2, 2, 2, 32))
    monkeypatch.setattr(Dense, "conditions", lambda *arguments: pytest.fail("something was allocated"))
    with pytest.raises(MemoryError, match=r"32 conditions at width 32 take 0\.0 GB of memory, and 0\.0 GB are free"):
        compile_program(target, backbone)
