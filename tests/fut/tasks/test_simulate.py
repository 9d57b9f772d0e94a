"""simulate against a forward pass in plain loops."""

from math import exp, sqrt

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from fut.tasks.base import SPLITS
from fut.tasks.simulate import Simulate

SMALL = {"train_size": 300, "val_size": 40, "test_size": 60}


def slow_target(target, sequence):
    """One sequence, one number at a time."""

    def product(matrix, vector):  # vector · matrix
        return [sum(vector[r] * matrix[r][c] for r in range(len(vector))) for c in range(len(matrix[0]))]

    state = [[float(x) for x in row] for row in sequence]
    for query, key, value in zip(target.query.tolist(), target.key.tolist(), target.value.tolist(), strict=True):
        after = []
        for i in range(len(state)):
            total = [0.0] * len(state[0])
            for w_q, w_k, w_v in zip(query, key, value, strict=True):
                mine = product(w_q, state[i])
                scores = []
                for j in range(i + 1):
                    theirs = product(w_k, state[j])
                    scores.append(sum(a * b for a, b in zip(mine, theirs, strict=True)) / sqrt(len(mine)))
                weights = [exp(score) for score in scores]
                for j, weight in enumerate(weights):
                    for c, x in enumerate(product(w_v, state[j])):
                        total[c] += weight / sum(weights) * x
            after.append(total)
        state = after
    return [product(target.unembedding.tolist(), row) for row in state]


@pytest.mark.parametrize(("heads", "layers", "d", "k", "p"), [(1, 1, 2, 2, 2), (3, 2, 2, 3, 1), (2, 3, 4, 1, 5)])
def test_target_equals_plain_loops(heads, layers, d, k, p):
    target = Simulate(target_dim=d, target_qk_dim=k, target_out_dim=p).draw_target(heads, layers, seed=5)
    assert target.query.shape == target.key.shape == (layers, heads, d, k)
    assert (target.value.shape, target.unembedding.shape) == ((layers, heads, d, d), (d, p))
    inputs = np.random.default_rng(0).standard_normal((3, 6, d))
    outputs = target(inputs)
    assert outputs.dtype == np.float64
    np.testing.assert_allclose(outputs, [slow_target(target, row) for row in inputs], rtol=1e-12, atol=1e-12)
    tensor = target(torch.from_numpy(inputs).float())
    assert tensor.dtype == torch.float64
    np.testing.assert_allclose(tensor.numpy(), target(inputs.astype(np.float32)), rtol=1e-12)


def test_target_never_sees_the_future():
    target = Simulate().draw_target(2, 2, seed=0)
    inputs = np.random.default_rng(1).standard_normal((2, 8, 2))
    changed = inputs.copy()
    changed[:, 5:] += 1.0
    before, after = target(inputs), target(changed)
    np.testing.assert_array_equal(before[:, :5], after[:, :5])
    assert (np.abs(before[:, 5:] - after[:, 5:]) > 1e-6).all()


def test_target_entries_have_the_stated_scale():
    target = Simulate(target_dim=64, target_qk_dim=32, target_out_dim=48, target_qk_gain=3.0).draw_target(4, 2, seed=0)
    for weights, sd in ((target.query, 3 / 8), (target.key, 3 / 8), (target.value, 1 / 8), (target.unembedding, 1 / 8)):
        assert weights.std() == pytest.approx(sd, rel=0.03)
        assert abs(weights.mean()) < 0.03 * sd * 3


def test_a_target_follows_from_seed_and_shape():
    task = Simulate()
    one, same, other = task.draw_target(2, 2, 0), task.draw_target(2, 2, 0), task.draw_target(2, 2, 1)
    for name in ("query", "key", "value", "unembedding"):
        assert np.array_equal(getattr(one, name), getattr(same, name))
        assert not np.isclose(getattr(one, name), getattr(other, name)).any()
    assert not np.isclose(one.query, one.key).any()


def test_labels_are_the_targets_outputs():
    task = Simulate(target_out_dim=3, **SMALL)
    data = task.generate()
    assert sorted(data) == ["test/inputs", "train/inputs", "val/inputs"]
    examples = task.examples(data, heads=2, layers=1, seed=7)
    target = task.draw_target(2, 1, 7)
    for split in SPLITS:
        inputs, labels = examples[split]
        assert inputs.dtype == labels.dtype == torch.float32
        assert labels.shape == (task.sizes[split], 10, 3)
        expected = [slow_target(target, row) for row in data[f"{split}/inputs"][:5]]
        np.testing.assert_allclose(labels[:5].numpy(), expected, rtol=1e-5, atol=1e-6)


def test_many_sequences_are_labelled_batch_by_batch():
    task = Simulate(train_size=5_000, val_size=2, test_size=2)
    data = task.generate()
    labels = task.examples(data, 1, 1, 0)["train"].labels
    assert torch.equal(labels[-3:], task.draw_target(1, 1, 0)(torch.from_numpy(data["train/inputs"][-3:])).float())


def test_inputs_are_standard_gaussian_and_do_not_depend_on_the_target():
    plain = Simulate(target_dim=3)
    other = Simulate(target_dim=3, target_qk_dim=1, target_out_dim=2, target_qk_gain=1.0)
    assert plain.data_recipe() == other.data_recipe()
    assert plain.data_recipe() != Simulate(target_dim=2).data_recipe()
    data, again = plain.generate(), other.generate()
    for split in SPLITS:
        inputs = data[f"{split}/inputs"]
        assert (inputs.shape, inputs.dtype) == ((plain.sizes[split], 10, 3), np.float32)
        assert np.array_equal(inputs, again[f"{split}/inputs"])
        assert inputs.std() == pytest.approx(1, abs=0.02)
        assert abs(inputs.mean()) < 0.02
    card = plain.card(data)["splits"]["test"]
    assert (card["sequences"], card["repeats"]) == (4_000, 0)
    assert plain.references(data) == {}


def test_derived_dimensions_are_written_out():
    task = Simulate(target_dim=4)
    assert (task.qk_dim, task.out_dim, task.input_dim, task.positions, task.vocabulary) == (4, 4, 4, 10, None)
    assert task == Simulate(target_dim=4, target_qk_dim=4, target_out_dim=4)
    assert task == Simulate(target_dim=4, target_qk_dim=None)
    assert Simulate(**task.model_dump()) == task
    given = Simulate(target_dim=4, target_qk_dim=3, target_out_dim=1)
    assert (given.qk_dim, given.out_dim) == (3, 1)
    assert (Simulate().qk_dim, Simulate().out_dim) == (2, 2)


@pytest.mark.parametrize(
    "wrong",
    [
        {"target_dim": 0},
        {"target_dim": "2"},
        {"target_dim": None},
        {"target_dim": True},
        {"target_qk_dim": 0},
        {"qk_dim": 2},
        {"target_qk_gain": float("inf")},
        {"length": 0},
    ],
)
def test_parameters_are_validated_once_each(wrong):
    with pytest.raises(ValidationError) as caught:
        Simulate(**wrong)
    assert [error["loc"] for error in caught.value.errors()] == [(name,) for name in wrong]


def test_outputs_without_variance_are_refused():
    task = Simulate(target_dim=1, length=1, val_size=1)
    assert [problem.split(":")[0] for problem in task.problems()] == ["val_size"]
    with pytest.raises(ValueError, match="val_size"):
        task.generate()
    assert Simulate().problems() == []


def test_nmse_and_agreement_by_hand():
    labels = torch.tensor([[[1.0, 3.0], [5.0, 7.0]]])  # mean 4, variance (9 + 1 + 1 + 9) / 4 = 5
    outputs = torch.tensor([[[1.0, 3.0], [7.0, 5.0]]])  # squared errors 0, 0, 4, 4: mean 2
    task = Simulate()
    assert task.measure(outputs, labels) == {"nmse": pytest.approx(0.4), "agreement": 0.5}
    assert float(task.loss(outputs, labels)) == pytest.approx(2)
    mean = torch.full_like(labels, 4.0)
    assert task.measure(mean, labels)["nmse"] == pytest.approx(1)


def test_one_coordinate_has_no_agreement():
    labels = torch.tensor([[[1.0], [3.0]]])
    assert Simulate(target_out_dim=1).measure(labels, labels) == {"nmse": 0.0, "agreement": None}


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_outputs_that_are_not_finite_are_infinitely_wrong(bad):
    labels = torch.tensor([[[1.0, 3.0], [5.0, 7.0]]])
    outputs = labels.clone()
    outputs[0, 1, 1] = bad  # where it is the argmax too
    assert Simulate().measure(outputs, labels) == {"nmse": float("inf"), "agreement": 0.5}
