"""The six shapes at which training is measured: cells of the default studies, sparse or dense, with or without MLP."""

from typing import Any, NamedTuple

from fut.config import TrialConfig

DYCK = {"task": {"name": "dyck", "max_length": 16}, "heads": 2, "layers": 2, "width": 64, "training": {"steps": 1500}}
ONE_HOP = {
    "task": {"name": "khop", "hops": 1},
    "components": "residual+layernorm",
    "heads": 1,
    "layers": 2,
    "width": 40,
    "training": {"steps": 1200},
}
TWO_HOPS = {
    "task": {"name": "khop", "hops": 2},
    "components": "residual+layernorm+mlp",
    "heads": 1,
    "layers": 3,
    "training": {"steps": 1500},
}
SIMULATE = {
    "task": {"name": "simulate", "target_dim": 4},
    "backbone": {"kind": "random"},
    "heads": 2,
    "layers": 2,
    "width": 96,
    "training": {"steps": 1000, "batch_size": 128},
}
DENSE = {"kind": "random", "value_gain": 0.5}


class Shape(NamedTuple):
    """A trial that is measured, and how tables call it."""

    name: str
    config: TrialConfig


def _shape(name: str, **values: Any) -> Shape:
    return Shape(name, TrialConfig.model_validate({"learning_rate": 0.01, "seed": 0, **values}))


SHAPES = [
    _shape("dyck H2 L2 m64, sparse", **DYCK, backbone={"kind": "sparse"}),
    _shape("dyck H2 L2 m64, dense", **DYCK, backbone=DENSE),
    _shape("khop k=1 H1 L2 m40, sparse", **ONE_HOP, backbone={"kind": "sparse"}),
    _shape("khop k=2 H1 L3 m112, sparse + MLP", **TWO_HOPS, width=112, backbone={"kind": "sparse", "mlp_gain": 0.1}),
    _shape("khop k=2 H1 L3 m64, dense + MLP", **TWO_HOPS, width=64, backbone={**DENSE, "mlp_gain": 0.1}),
    _shape("simulate d=4 H2 L2 m96, dense", **SIMULATE),
]
