"""Random, control and trained backbones: statistics, ranks, streams, recipes and refusals."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from fut.backbones import BACKBONES, Control, Random, Shape, Sparse, Trained, build
from fut.backbones.draws import draw_matrix

DISTRIBUTIONS = ["gaussian", "uniform", "laplace", "orthogonal"]
HEADS, LAYERS, M = 2, 3, 64


def shape(heads=HEADS, layers=LAYERS, width=M, mlp=False, out_dim=4, target_qk_dim=None, fixed=False):
    return Shape(heads, layers, width, mlp, out_dim, target_qk_dim, fixed)


def arrays(config, seed=0, **where):
    return build(config.recipe(shape(**where), seed)).arrays


def test_shapes_are_as_documented():
    def shapes(config, **where):
        found = arrays(config, **where)
        assert all(a.dtype == np.float32 and a.flags.c_contiguous for a in found.values())
        return {name: a.shape for name, a in found.items()}

    assert shapes(Random(), mlp=True, fixed=True) == {
        "query": (3, 2, 64, 32),
        "key": (3, 2, 64, 32),
        "value": (3, 2, 64, 32),
        "output": (3, 2, 32, 64),
        "mlp_in": (3, 64, 256),
        "mlp_out": (3, 256, 64),
        "unembedding": (64, 4),
    }
    full = {"query": (1, 2, 64, 5), "key": (1, 2, 64, 5), "value": (1, 2, 64, 64)}
    assert shapes(Random(tied=True), target_qk_dim=5) == full  # with a target: its k, full values
    assert shapes(Random(tied=True, values="full", qk_dim=5)) == full
    assert shapes(Trained(qk_dim=7), mlp=True)["query"] == (3, 2, 64, 7)
    assert shapes(Random(qk_dim=7), target_qk_dim=5)["query"] == (3, 2, 64, 7)  # what is given goes first
    assert shapes(Random(distribution="orthogonal"), fixed=True, out_dim=100)["unembedding"] == (64, 100)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("config", [Random, Trained])
def test_standard_deviations_are_the_gains_over_the_root_of_the_fan_in(config, distribution):
    gains = {"qk_gain": 2.0, "value_gain": 0.5, "mlp_gain": 0.1, "distribution": distribution}
    found = arrays(config(**gains), mlp=True, fixed=True, out_dim=32)
    expected = {
        "query": 2 / 8,
        "key": 2 / 8,
        "value": 1 / 8,
        "output": 0.5 / 8,
        "mlp_in": 1 / 8,
        "mlp_out": 0.1 / 16,
        "unembedding": 1 / 8,
    }
    assert found.keys() == expected.keys()
    for name, deviation in expected.items():
        # n draws estimate the deviation to about √((κ − 1) / 4n), κ ≤ 6: four of these
        tolerance = 4 * np.sqrt(5 / 4 / found[name].size)
        assert abs(found[name].std() / deviation - 1) < tolerance, name
        assert abs(found[name].mean()) < 4 * deviation / np.sqrt(found[name].size), name
    full = arrays(config(**gains, values="full"))
    assert "output" not in full and abs(full["value"].std() * 8 / 0.5 - 1) < 0.05


@pytest.mark.parametrize(
    ("distribution", "law"),
    [
        ("gaussian", stats.norm(0, 0.3)),
        ("uniform", stats.uniform(-0.3 * 3**0.5, 2 * 0.3 * 3**0.5)),
        ("laplace", stats.laplace(0, 0.3 / 2**0.5)),
    ],
)
def test_each_distribution_has_its_law(distribution, law):
    drawn = draw_matrix(np.random.default_rng(0), 100, 100, 0.3, distribution).ravel()
    assert stats.kstest(drawn, law.cdf).pvalue > 0.01
    assert law.std() == pytest.approx(0.3)
    others = {"gaussian": "uniform", "uniform": "laplace", "laplace": "gaussian"}
    other = draw_matrix(np.random.default_rng(0), 100, 100, 0.3, others[distribution]).ravel()
    assert stats.kstest(other, law.cdf).pvalue < 1e-4


@pytest.mark.parametrize(("rows", "columns"), [(40, 10), (10, 40), (20, 20)])
def test_orthogonal_draws_are_scaled_frames(rows, columns):
    matrix = draw_matrix(np.random.default_rng(1), rows, columns, 0.3, "orthogonal")
    short = matrix.T @ matrix if rows >= columns else matrix @ matrix.T
    np.testing.assert_allclose(short, 0.3**2 * max(rows, columns) * np.eye(min(rows, columns)), atol=1e-12)
    assert np.sqrt((matrix**2).mean()) == pytest.approx(0.3)


def test_orthogonal_draws_are_haar():
    # Under Haar, entries are symmetric; QR without the signs has a triangle of positive diagonal and biased entries.
    rng = np.random.default_rng(2)
    first = np.array([draw_matrix(rng, 3, 3, 1 / np.sqrt(3), "orthogonal")[0, 0] for _ in range(2_000)])
    # In three dimensions a coordinate of a uniform unit vector is uniform on [−1, 1].
    assert stats.kstest(first, stats.uniform(-1, 2).cdf).pvalue > 0.01


def test_heads_layers_and_tensors_are_drawn_apart():
    found = arrays(Random(values="full", qk_dim=M))
    draws = [
        found[name][layer, head].ravel()
        for name in ("query", "key", "value")
        for layer in range(LAYERS)
        for head in range(HEADS)
    ]
    correlations = np.abs(np.corrcoef(draws) - np.eye(len(draws)))
    assert correlations.max() < 5 / M  # independent: standard deviation 1 / M


def test_streams_of_one_part_do_not_move_the_others():
    base = arrays(Random(values="full", qk_dim=4))
    more = arrays(Random(values="full", qk_dim=4), heads=3, layers=4, mlp=True, fixed=True)
    for name, array in base.items():
        np.testing.assert_array_equal(more[name][:LAYERS, :HEADS], array)
    other_gain = arrays(Random(values="full", qk_dim=4, qk_gain=2.0))
    np.testing.assert_allclose(other_gain["query"], 2 * base["query"], rtol=1e-6)
    np.testing.assert_array_equal(other_gain["value"], base["value"])
    assert not np.array_equal(arrays(Random(values="full", qk_dim=4), seed=1)["query"], base["query"])


def test_trained_starts_like_random():
    where = {"mlp": True, "seed": 3}
    random, trained = arrays(Random(value_gain=0.5), **where), arrays(Trained(value_gain=0.5), **where)
    assert random.keys() == trained.keys()
    assert all(np.array_equal(random[name], trained[name]) for name in random)


def test_values_have_the_rank_that_is_asked_for():
    standard, full = arrays(Random()), arrays(Random(values="full"))
    for layer in range(LAYERS):
        for head in range(HEADS):
            product = standard["value"][layer, head].astype(float) @ standard["output"][layer, head]
            assert np.linalg.matrix_rank(product) == M // HEADS
            assert np.linalg.matrix_rank(full["value"][layer, head]) == M


@pytest.mark.parametrize("values", ["standard", "full"])
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_low_rank_values_fall_short_of_p_exactly(values, distribution):
    config = Control(control="low_rank", values=values, distribution=distribution, value_gain=0.5)
    found = arrays(config)
    healthy = arrays(Random(values=values, distribution=distribution, value_gain=0.5))
    for value in found["value"].reshape(-1, *found["value"].shape[2:]).astype(float):
        singular = np.linalg.svd(value, compute_uv=False)
        assert singular[2] > 1e-3 and singular[3] < 1e-12  # p = 4: rank 3, in float32 too
    ratio = found["value"][:, :, 0, 3:] / found["value"][:, :, 0, np.arange(3, found["value"].shape[-1]) % 3]
    assert set(np.unique(ratio)) == {-1.0, 1.0}  # repeated columns, with signs
    assert found["value"].std() == pytest.approx(healthy["value"].std(), rel=0.1)
    for name in healthy.keys() - {"value"}:
        np.testing.assert_array_equal(found[name], healthy[name])


@pytest.mark.parametrize("values", ["standard", "full"])
def test_identical_heads_differ_between_layers_only(values):
    found = arrays(Control(control="identical_heads", values=values), heads=4)
    for array in found.values():
        for head in range(1, 4):
            np.testing.assert_array_equal(array[:, head], array[:, 0])
        assert not np.array_equal(array[0], array[1])


def test_recipes_hold_what_determines_the_tensors_and_no_more():
    base = Random().recipe(shape(), 0)
    assert (base.qk_dim, base.values, base.mlp_gain, base.unembedding) == (32, "standard", None, None)
    assert Random(mlp_gain=0.3).recipe(shape(), 0) == base  # no MLP: its gain says nothing
    assert Random(qk_dim=32, values="standard").recipe(shape(), 0) == base  # given or derived: the same tensors
    assert Random().recipe(shape(out_dim=9), 0) == base  # p matters to a frozen unembedding only …
    assert Control(control="identical_heads").recipe(shape(out_dim=9), 0).out_dim is None
    low_rank = Control(control="low_rank")
    assert low_rank.recipe(shape(out_dim=9), 0) != low_rank.recipe(shape(out_dim=8), 0)  # … and to this control
    changes = [
        (Random(distribution="laplace"), {}),
        (Random(qk_gain=2.0), {}),
        (Random(value_gain=2.0), {}),
        (Random(tied=True), {}),
        (Random(values="full"), {}),
        (Random(qk_dim=3), {}),
        (Random(), {"mlp": True}),
        (Random(), {"fixed": True}),
        (Random(), {"heads": 4}),
        (Random(), {"layers": 2}),
        (Random(), {"width": 32}),
        (Trained(), {}),
        (Control(control="identical_heads"), {}),
        (low_rank, {}),
        (Sparse(), {}),
    ]
    ids = [base.id, Random().recipe(shape(), 1).id, *(config.recipe(shape(**w), 0).id for config, w in changes)]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(
    ("config", "where", "says"),
    [
        (Random(), {"width": 65}, "^qk_dim and values: .*heads 2 .*width 65: take width 64 or 66, or give qk_dim and "),
        (Random(values="full"), {"width": 65}, "^qk_dim: .*or give qk_dim$"),
        (Random(qk_dim=4), {"width": 65}, "^values: .*or set values: full$"),
        (Random(values="standard"), {"width": 65, "target_qk_dim": 3}, "^values: "),
        (Trained(), {"heads": 4, "width": 3}, "take width 4, or"),
        (Control(control="low_rank"), {"width": 65}, "^qk_dim and values"),
        (Control(control="low_rank"), {"out_dim": 1}, "^control: low_rank .*at least 2"),
        (Control(control="identical_heads"), {"heads": 1}, "^control: identical_heads .*at least 2"),
    ],
)
def test_impossible_combinations_say_what_would_do(config, where, says):
    (problem,) = config.problems(shape(**where))
    assert re.search(says, problem)


@pytest.mark.parametrize(
    ("config", "where"),
    [
        (Random(), {"width": 66}),
        (Random(values="full", qk_dim=4), {"width": 65}),
        (Random(), {"width": 65, "target_qk_dim": 3}),
        (Control(control="low_rank"), {"heads": 1}),
        (Control(control="identical_heads"), {"out_dim": 1}),
        (Trained(), {"heads": 4, "width": 4}),
    ],
)
def test_possible_combinations_build(config, where):
    assert config.problems(shape(**where)) == []
    assert all(np.isfinite(array).all() and array.any() for array in arrays(config, **where).values())


def test_unknown_and_ill_typed_fields_are_refused():
    for wrong in (
        {"gain": 1.0},
        {"value_gain": "1"},
        {"value_gain": -1.0},
        {"qk_gain": float("inf")},
        {"qk_dim": 0},
        {"distribution": "cauchy"},
        {"tied": 1},
        {"block": 3},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Random(**wrong)
    with pytest.raises(ValueError, match="control"):
        Control()


DIGESTS = """
from fut.backbones import BACKBONES, Shape, build
shape = Shape(2, 2, 24, True, 3, None, True)
for kind in sorted(BACKBONES.keys() - {"pretrained"}):  # which is read, not built
    for more in [{"distribution": d, "values": v} for d in ("gaussian", "uniform", "laplace", "orthogonal")
                 for v in ("full", "standard")] if kind != "sparse" else [{}]:
        config = BACKBONES[kind](**more, **({"control": "low_rank"} if kind == "control" else {}))
        print(kind, build(config.recipe(shape, 7)).digest)
"""


def test_the_same_recipe_gives_the_same_bytes_in_another_process():
    def run(hash_seed, threads):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "OMP_NUM_THREADS": threads}
        command = [sys.executable, "-c", DIGESTS]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout

    first = run("1", "1")
    assert len(first.splitlines()) == 1 + 8 * (len(BACKBONES) - 2) and first == run("2", "2")
