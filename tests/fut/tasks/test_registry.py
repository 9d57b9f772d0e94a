"""What holds for every task of the registry."""

import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from fut.digest import array_digest
from fut.tasks import TASKS, AnyTask
from fut.tasks.base import SPLITS

SIZES = {"train_size": 500, "val_size": 60, "test_size": 100}
CASES = [
    {"name": "dyck", **SIZES},
    {"name": "khop", "hops": 2, **SIZES},
    {"name": "simulate", "target_dim": 3, **SIZES},
]
parse = TypeAdapter(AnyTask).validate_python


def test_every_task_has_a_case():
    assert [case["name"] for case in CASES] == sorted(TASKS)


@pytest.fixture(params=CASES, ids=lambda case: case["name"])
def case(request):
    return request.param


def test_a_name_selects_its_task(case):
    assert type(parse(case)) is TASKS[case["name"]]
    with pytest.raises(ValidationError):
        parse({**case, "name": "parity"})
    with pytest.raises(ValidationError):
        parse({**case, "colour": 1})


def test_same_seed_same_bytes_in_another_process(case):
    program = (
        "import sys; from pydantic import TypeAdapter\n"
        "from fut.digest import array_digest; from fut.tasks import AnyTask\n"
        "print(array_digest(TypeAdapter(AnyTask).validate_json(sys.argv[1]).generate()))"
    )
    text = parse(case).model_dump_json()
    other = subprocess.run([sys.executable, "-c", program, text], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == array_digest(parse(case).generate())


def test_another_seed_gives_other_sequences(case):
    data, other = parse(case).generate(), parse({**case, "data_seed": 1}).generate()
    assert not np.array_equal(data["train/inputs"], other["train/inputs"])


def test_splits_share_no_sequence(case):
    data = parse(case).generate()
    sequences = [{row.tobytes() for row in data[f"{split}/inputs"]} for split in SPLITS]
    assert len(set.union(*sequences)) == sum(map(len, sequences))


def test_recipe_names_everything_that_alters_the_arrays(case):
    task = parse(case)
    for name, value in {"data_seed": 1, "train_size": 501, "val_size": 61, "test_size": 101}.items():
        assert parse({**case, name: value}).data_recipe() != task.data_recipe()


def test_examples_fit_the_models_that_the_task_asks_for(case):
    task = parse(case)
    examples = task.examples(task.generate(), heads=1, layers=1, seed=0)
    for split in SPLITS:
        inputs, labels = examples[split]
        assert inputs.shape[:2] == (task.sizes[split], task.positions)
        if task.vocabulary is None:
            assert inputs.shape[2:] == (task.input_dim,)
            assert labels.shape == (*inputs.shape[:2], task.out_dim)
        else:
            assert inputs.dtype == labels.dtype == torch.int64
            assert int(inputs.max()) < task.vocabulary == task.input_dim
            assert -1 <= int(labels.min()) <= int(labels.max()) < task.out_dim
        outputs = torch.randn(*inputs.shape[:2], task.out_dim, requires_grad=True)
        task.loss(outputs, labels).backward()
        assert outputs.grad.isfinite().all()
        assert task.metric in task.measure(outputs, labels)


def test_references_are_accuracies_and_the_card_is_json(case):
    task = parse(case)
    data = task.generate()
    assert all(name.startswith("reference_") and 0 < value <= 1 for name, value in task.references(data).items())
    assert json.loads(json.dumps(task.card(data), allow_nan=False))["splits"]["val"]["sequences"] == 60


def test_the_task_that_the_documentation_adds_works():
    text = (Path(__file__).parents[3] / "docs" / "tasks.md").read_text(encoding="utf-8")
    names = {"__name__": "parity"}
    exec(dedent(text.split("```python\n")[1].split("```")[0]), names)
    task = names["Parity"](**SIZES)
    data = task.generate()
    assert [row.sum() % 2 for row in data["val/inputs"]] == data["val/labels"][:, -1].tolist()
    assert task.card(data)["splits"]["val"]["answers"] == 60
    assert 0.3 < task.references(data)["reference_majority"] < 0.7


def test_bounds_of_the_metrics():
    bounds = {name: (task.metric, task.criterion_value, task.solved_at) for name, task in TASKS.items()}
    accuracy = ("accuracy", 0.99, 0.999)
    assert bounds == {"dyck": accuracy, "khop": accuracy, "simulate": ("nmse", 0.01, 0.001)}
