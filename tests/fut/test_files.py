"""Arrays and cards on disk: whole or not at all, and every damage named."""

import copy
import json

import numpy as np
import pytest

from fut import files

ARRAYS = {
    "floats": np.arange(6, dtype=np.float32).reshape(2, 3),
    "turned": np.arange(6).reshape(2, 3).T,
    "empty": np.zeros((0, 3), np.int8),
    "flags": np.array([True, False]),
    "scalar": np.array(2.5),
}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "deep" / "thing.safetensors"
    files.save_arrays(path, ARRAYS, {"about": "a thing", "sizes": [2, 3]})
    return path


def test_what_is_saved_is_read_back(path):
    arrays, card = files.load_arrays(path)
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)
        assert (arrays[name].dtype, arrays[name].shape) == (array.dtype, array.shape)
    assert card["about"] == "a thing" and len(card["digest"]) == 64
    assert sorted(p.name for p in path.parent.iterdir()) == ["thing.json", "thing.safetensors"]


def test_same_arrays_same_bytes(path, tmp_path):
    again = tmp_path / "again.safetensors"
    files.save_arrays(again, dict(reversed(ARRAYS.items())), {"sizes": [2, 3], "about": "a thing"})
    assert again.read_bytes() == path.read_bytes()
    assert files.card_path(again).read_bytes() == files.card_path(path).read_bytes()


def _truncate(path):
    path.write_bytes(path.read_bytes()[:-4])


def _empty(path):
    path.write_bytes(b"")


def _flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def _drop_card(path):
    files.card_path(path).unlink()


def _card_text(text):
    return lambda path: files.card_path(path).write_bytes(text)


def _foreign_digest(path):
    card = json.loads(files.card_path(path).read_text())
    files.card_path(path).write_text(json.dumps({**card, "digest": "0" * 64}))


@pytest.mark.parametrize(
    ("damage", "names", "reason"),
    [
        (_truncate, "thing.safetensors", "not a readable safetensors file"),
        (_empty, "thing.safetensors", "not a readable safetensors file"),
        (_flip_a_bit, "thing.safetensors", "digest"),
        (_foreign_digest, "thing.safetensors", "digest"),
        (_drop_card, "thing.json", "missing"),
        (_card_text(b'{"digest": '), "thing.json", "not readable JSON"),
        (_card_text(b"\xff\xfe"), "thing.json", "not readable JSON"),
        (_card_text(b"[]"), "thing.json", "no digest"),
        (_card_text(b'{"digests": 1}'), "thing.json", "no digest"),
    ],
)
def test_each_damage_is_named(path, damage, names, reason):
    damage(path)
    with pytest.raises(files.CorruptFile, match=reason) as caught:
        files.load_arrays(path)
    assert caught.value.path == path.with_name(names) and names in str(caught.value)


def test_a_missing_file_is_not_a_corrupt_one(tmp_path):
    with pytest.raises(FileNotFoundError):
        files.load_arrays(tmp_path / "nothing.safetensors")


def test_the_error_crosses_process_borders(tmp_path):
    error = copy.copy(files.CorruptFile(tmp_path / "x", "broken"))  # by __reduce__, as between processes
    assert (error.path, error.reason, str(error)) == (tmp_path / "x", "broken", f"{tmp_path / 'x'}: broken")


def test_an_interrupted_write_leaves_the_old_file_and_no_rest(path, monkeypatch):
    before = path.read_bytes()

    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(files.os, "replace", stopped)
    with pytest.raises(KeyboardInterrupt):
        files.write_atomically(path, b"half")
    assert path.read_bytes() == before
    assert sorted(p.name for p in path.parent.iterdir()) == ["thing.json", "thing.safetensors"]


def test_where_the_arrays_are_their_card_is(tmp_path, monkeypatch):
    order = []
    monkeypatch.setattr(files, "write_atomically", lambda path, content: order.append(path.suffix))
    files.save_arrays(tmp_path / "x.safetensors", ARRAYS, {})
    assert order == [".json", ".safetensors"]


def test_nan_in_a_card_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        files.save_arrays(tmp_path / "x.safetensors", ARRAYS, {"accuracy": float("nan")})
    assert not list(tmp_path.iterdir())


def test_setting_aside_moves_file_and_card(path):
    content = path.read_bytes()
    aside = files.set_aside(path)
    assert aside.read_bytes() == content and not path.exists() and not files.card_path(path).exists()
    assert sorted(p.name for p in path.parent.iterdir()) == [
        "thing.safetensors.set_aside",
        "thing.safetensors.set_aside.json",
    ]
    files.set_aside(path)  # nothing there: nothing happens
    assert aside.read_bytes() == content
