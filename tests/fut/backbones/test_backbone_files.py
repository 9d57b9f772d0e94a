"""Backbones on disk: what is read is what its recipe asks for, or an error that names the file."""

import json

import numpy as np
import pytest

from fut.backbones import Control, Random, Shape, Sparse, build
from fut.backbones.files import CorruptBackbone, ensure_backbone, load, path_of, save
from fut.files import card_path

SHAPE = Shape(2, 2, 32, True, 3, None, True)
CONFIGS = [
    Random(value_gain=0.1),
    Random(tied=True),
    Sparse(block=4),
    Sparse(layout="tied", block=3),
    Control(control="low_rank"),
]


@pytest.mark.parametrize("config", CONFIGS)
def test_a_backbone_is_read_back(config, tmp_path):
    backbone = build(config.recipe(SHAPE, 3))
    path = save(backbone, tmp_path)
    assert path == path_of(backbone.recipe, tmp_path) and path.name == f"{backbone.recipe.id}.safetensors"
    again = load(backbone.recipe, tmp_path)
    assert again.recipe == backbone.recipe and again.digest == backbone.digest
    for name, array in backbone.arrays.items():
        np.testing.assert_array_equal(again.arrays[name], array)
    assert json.loads(card_path(path).read_text()) == json.loads(json.dumps(backbone.card))


def test_a_changed_tensor_is_named(tmp_path):
    backbone = build(CONFIGS[0].recipe(SHAPE, 3))
    path = save(backbone, tmp_path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptBackbone, match=f"{path.name}: .*digest.*built again"):
        load(backbone.recipe, tmp_path)


def test_a_missing_card_is_named(tmp_path):
    backbone = build(CONFIGS[0].recipe(SHAPE, 3))
    card = card_path(save(backbone, tmp_path))
    card.unlink()
    with pytest.raises(CorruptBackbone, match=f"{card.name}: .*missing.*built again"):
        load(backbone.recipe, tmp_path)


def test_another_recipes_backbone_is_refused(tmp_path):
    asked, other = (CONFIGS[0].recipe(SHAPE, seed) for seed in (3, 4))
    path, foreign = path_of(asked, tmp_path), save(build(other), tmp_path)
    foreign.rename(path)
    card_path(foreign).rename(card_path(path))
    with pytest.raises(CorruptBackbone, match=f"{path.name}: .*another recipe"):
        load(asked, tmp_path)


def test_ensure_builds_what_is_missing_and_reads_what_is_there(tmp_path, monkeypatch):
    recipe = CONFIGS[0].recipe(SHAPE, 3)
    made = ensure_backbone(recipe, tmp_path / "new")
    assert made.digest == build(recipe).digest
    monkeypatch.setattr("fut.backbones.files.build", lambda _: pytest.fail("built again"))
    assert ensure_backbone(recipe, tmp_path / "new").digest == made.digest


def test_ensure_sets_a_corrupt_file_aside_and_makes_it_again(tmp_path):
    recipe = CONFIGS[0].recipe(SHAPE, 3)
    path = save(build(recipe), tmp_path)
    path.write_bytes(b"rubbish")
    with pytest.warns(UserWarning, match=f"{path.name}: not a readable"):
        made = ensure_backbone(recipe, tmp_path)
    assert made.digest == build(recipe).digest == load(recipe, tmp_path).digest
    assert path.with_name(f"{path.name}.set_aside").read_bytes() == b"rubbish"
