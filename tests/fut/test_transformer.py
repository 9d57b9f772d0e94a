"""The transformer against a slow oracle that follows the formulas, and what may and may not train."""

import math

import numpy as np
import pytest
import torch

from fut.attention import _Slots
from fut.backbones import build
from fut.backbones.dense import dense
from fut.config import TrialConfig
from fut.transformer import Transformer

KHOP = {"name": "khop", "hops": 1, "length": 10, "alphabet": 3, "train_size": 10, "val_size": 10, "test_size": 10}
SIMULATE = {"name": "simulate", "target_dim": 2, "length": 5}


def trial(**fields) -> TrialConfig:
    return TrialConfig(
        **(
            {
                "task": KHOP,
                "backbone": {"kind": "random"},
                "heads": 2,
                "layers": 2,
                "width": 8,
                "learning_rate": 0.01,
                "seed": 0,
            }
            | fields
        )
    )


def oracle(config: TrialConfig, model: Transformer, arrays: dict, inputs: np.ndarray) -> np.ndarray:
    """One sequence, position by position and head by head, from dense weights, in float64."""
    held = {name: tensor.detach().double().numpy() for name, tensor in model.state_dict().items()}
    n = len(inputs)
    if config.task.vocabulary is None:
        x = inputs.astype(float) @ held["token_embedding"]
    else:
        x = np.array([held["token_embedding"][token] for token in inputs]) + held["position_embedding"][:n]

    def norm(x):
        if "layernorm" not in config.components:
            return x
        return np.array([(row - row.mean()) / math.sqrt(row.var() + 1e-5) for row in x])

    for layer in range(config.layers):
        h, out = norm(x), np.zeros_like(x)
        for head in range(config.heads):
            q, k = h @ arrays["query"][layer, head], h @ arrays["key"][layer, head]
            for i in range(n):
                scores = np.array([q[i] @ k[j] / math.sqrt(q.shape[1]) for j in range(i + 1)])
                weights = np.exp(scores - scores.max())
                weights /= weights.sum()
                for j in range(i + 1):
                    out[i] += weights[j] * (h[j] @ arrays["value"][layer, head])
        x = x + out if "residual" in config.components else out
        if "mlp" in config.components:
            at = 0 if held["mlp_in"].shape[0] == 1 else layer
            inner = norm(x) @ held["mlp_in"][at]
            inner = np.array([[max(v, 0.0) for v in row] for row in inner])
            added = inner @ held["mlp_out"][at]
            x = x + added if "residual" in config.components else added
    return norm(x) @ held["unembedding"]


CASES = [
    {"backbone": {"kind": kind, **more}, "components": components, "task": task, "width": width}
    for kind, more, width in [
        ("random", {}, 8),
        ("random", {"values": "full", "qk_dim": 3, "value_gain": 0.5}, 7),
        ("random", {"tied": True}, 8),
        ("control", {"control": "identical_heads"}, 8),
        ("sparse", {"block": 1}, 20),
        ("sparse", {"layout": "residual", "block": 1}, 25),
        ("sparse", {"layout": "tied", "block": 2}, 75),
        ("sparse", {"block": 2}, 20),  # a tree of 32 slots cut to 20
        ("sparse", {"layout": "residual", "block": 2}, 30),
        ("sparse", {"layout": "tied", "block": 2}, 31),
    ]
    for components in ("attention", "residual+layernorm", "residual+layernorm+mlp", "mlp")
    for task in (KHOP, SIMULATE)
]


@pytest.mark.parametrize("fields", CASES, ids=lambda f: f"{f['backbone']}-{f['components']}-{f['task']['name']}")
def test_outputs_follow_the_formulas(fields) -> None:
    config = trial(**fields)
    backbone = build(config.recipe)
    model = Transformer(config, backbone).double()
    n = config.task.positions
    draw = np.random.default_rng(1)
    inputs = draw.integers(0, 3, n) if config.task.vocabulary else draw.standard_normal((n, 2))
    ours = model(torch.from_numpy(inputs)[None])[0].detach().numpy()
    np.testing.assert_allclose(ours, oracle(config, model, dense(backbone), inputs), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "layout, width", [("attention", 20), ("attention", 13), ("residual", 25), ("residual", 19), ("tied", 75)]
)
@pytest.mark.parametrize("components", ["attention", "residual", "residual+layernorm"])
def test_index_selection_equals_dense_products_in_values_and_gradients(layout, width, components) -> None:
    config = trial(backbone={"kind": "sparse", "layout": layout, "block": 1}, width=width, components=components)
    backbone = build(config.recipe)
    sparse = Transformer(config, backbone).double()
    # The same weights as 0/1 matrices, run by projection products.
    matrices = {name: array.astype("f8") for name, array in dense(backbone).items()}
    by_products = backbone._replace(
        arrays=matrices, recipe=backbone.recipe.model_copy(update={"kind": "random", "values": "full", "tied": False})
    )
    products = Transformer(config, by_products).double()
    tokens = torch.from_numpy(np.random.default_rng(0).integers(0, 3, (4, 10)))
    seen = []
    for model in (sparse, products):
        outputs = model(tokens)
        (outputs * torch.arange(outputs.numel(), dtype=torch.float64).view_as(outputs).sin()).sum().backward()
        seen.append([outputs.detach(), *(p.grad for p in model.parameters())])
    for one, other in zip(*seen, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
    assert float(seen[0][1].abs().max()) > 0


def test_attention_is_causal() -> None:
    config = trial(components="residual+layernorm+mlp")
    model = Transformer(config, build(config.recipe))
    one, other = torch.tensor([[0, 1, 2, 0, 1, 2, 0, 1, 2, 0]]), torch.tensor([[0, 1, 2, 0, 2, 1, 2, 1, 0, 1]])
    a, b = model(one)[0], model(other)[0]
    torch.testing.assert_close(a[:4], b[:4])
    assert not torch.allclose(a[4:], b[4:])


@pytest.mark.parametrize(
    "trainable, kind, names",
    [
        ("program", "random", {"token_embedding", "position_embedding", "unembedding"}),
        ("embedding", "random", {"token_embedding", "position_embedding"}),
        ("unembedding", "random", {"unembedding"}),
        ("embedding", "sparse", {"token_embedding", "position_embedding"}),
    ],
)
def test_exactly_what_is_named_trains(trainable, kind, names) -> None:
    config = trial(backbone={"kind": kind}, trainable=trainable, width=60)
    model = Transformer(config, build(config.recipe))
    assert {name for name, _ in model.named_parameters()} == names
    frozen = {name for name, _ in model.named_buffers()}
    assert {"attention.query", "attention.key"} <= frozen and not frozen & names
    assert {"token_embedding", "position_embedding", "unembedding"} <= frozen | names


def test_everything_of_a_trained_backbone_trains() -> None:
    config = trial(backbone={"kind": "trained"}, trainable="all", components="residual+mlp")
    model = Transformer(config, build(config.recipe))
    assert not list(model.buffers())
    assert {"attention.query", "attention.output", "mlp_in", "mlp_out", "unembedding"} <= set(
        dict(model.named_parameters())
    )


def test_the_seed_fixes_the_program_whatever_the_backbone() -> None:
    configs = [trial(), trial(backbone={"kind": "random", "values": "full"}, components="residual+mlp"), trial(seed=1)]
    same, also, other = (Transformer(config, build(config.recipe)).program() for config in configs)
    assert all(torch.equal(same[name], also[name]) for name in same)
    assert not any(torch.equal(same[name], other[name]) for name in same)


def test_slots_that_are_no_run_are_read_and_written_like_those_that_are() -> None:
    state = torch.arange(12.0).view(2, 6)
    for index in ([1, 2, 3], [4, 0, 3]):
        slots = _Slots(torch.tensor(index))
        assert torch.equal(slots.read(state), state[:, index])
        written = slots.write(state[:, index], 6)
        assert torch.equal(written[:, index], state[:, index])
        assert written.sum() == state[:, index].sum()  # zero everywhere else
