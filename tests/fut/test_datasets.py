"""Datasets on disk."""

from pathlib import Path

import numpy as np
import pytest

from fut import datasets
from fut.digest import array_digest
from fut.files import CorruptFile, card_path, load_arrays, save_arrays
from fut.tasks import Dyck, Khop, Simulate
from fut.tasks.base import Task

SIZES = {"train_size": 300, "val_size": 40, "test_size": 50}
TASKS = [Dyck(**SIZES), Khop(length=8, **SIZES), Simulate(**SIZES)]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_dataset_is_made_once_and_read_back_equal(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays, card = datasets.ensure_dataset(task, tmp_path)
    monkeypatch.setattr(type(task), "generate", None)  # from here on it can only be read
    again, same_card = datasets.ensure_dataset(task, tmp_path)
    assert same_card == card
    assert arrays.keys() == again.keys()
    for name in arrays:
        np.testing.assert_array_equal(arrays[name], again[name])


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_the_card_says_what_the_data_are(task: Task, tmp_path: Path) -> None:
    arrays, _ = datasets.ensure_dataset(task, tmp_path)
    _, card = load_arrays(datasets.path_of(task, tmp_path))
    assert card["recipe"] == task.data_recipe()
    assert card["references"] == task.references(arrays)
    assert {name: entry["sequences"] for name, entry in card["splits"].items()} == {"train": 300, "val": 40, "test": 50}
    assert card["digest"] == array_digest(arrays)
    assert card["bytes"] == sum(array.nbytes for array in arrays.values())


def test_a_name_follows_the_data_and_nothing_else() -> None:
    names = [datasets.dataset_id(task) for task in TASKS]
    assert len(set(names)) == 3
    assert datasets.dataset_id(Khop(length=8, **SIZES)) == names[1]
    assert datasets.dataset_id(Khop(length=8, data_seed=1, **SIZES)) != names[1]
    assert datasets.dataset_id(Simulate(target_qk_gain=1.0, **SIZES)) == names[2]  # alters the target, not the inputs


def test_damaged_data_are_named_set_aside_and_made_again(tmp_path: Path) -> None:
    task = TASKS[1]
    arrays, card = datasets.ensure_dataset(task, tmp_path)
    path = datasets.path_of(task, tmp_path)
    path.write_bytes(path.read_bytes()[:-1] + b"\x09")
    with pytest.warns(UserWarning, match=f"{path.name}: its digest is .* generated again"):
        again, same_card = datasets.ensure_dataset(task, tmp_path)
    assert same_card == card
    np.testing.assert_array_equal(arrays["train/inputs"], again["train/inputs"])
    assert len(list(tmp_path.glob("*.set_aside"))) == 1
    assert datasets.load(task, tmp_path)[1] == card


def test_another_datasets_file_under_this_name_is_refused(tmp_path: Path) -> None:
    other, card = datasets.build(TASKS[0])
    save_arrays(datasets.path_of(TASKS[1], tmp_path), other, card)
    with pytest.raises(CorruptFile, match="its card describes another dataset"):
        datasets.load(TASKS[1], tmp_path)


def test_a_missing_card_is_damage(tmp_path: Path) -> None:
    datasets.ensure_dataset(TASKS[1], tmp_path)
    card_path(datasets.path_of(TASKS[1], tmp_path)).unlink()
    with pytest.raises(CorruptFile, match="the card is missing"):
        datasets.load(TASKS[1], tmp_path)
