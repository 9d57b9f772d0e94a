"""Targets and programs as files, machines that are asked in words, and one machine with two programs."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import fut.swap
from fut.backbones import Backbone, Random, Shape, Sparse, build
from fut.backbones.files import save as save_backbone
from fut.command import app
from fut.compiler import CompileError, compile_program, draw_target
from fut.digest import array_digest
from fut.files import card_path, load_arrays, save_arrays
from fut.machine import (
    FileError,
    Machine,
    load_backbone,
    load_target,
    save_compiled,
    save_target,
    target_of,
)
from fut.program import ProgramError, install
from fut.swap import swap
from fut.tasks.dyck import Dyck
from fut.tasks.khop import Khop
from fut.tasks.simulate import Simulate
from fut.theory import sufficient_width
from fut.training_plan import Training
from fut.transformer import Transformer

DYCK = Dyck(min_length=12, max_length=14, train_size=50, val_size=20, test_size=20)
KHOP = Khop(length=7, train_size=50, val_size=20, test_size=20)


def trained(trial, **changes):
    """A transformer of kind `trained` with its initial weights, and its trial."""
    config = trial(**{"backbone": {"kind": "trained"}, "components": "residual", "width": 8, "heads": 2, **changes})
    model = Transformer(config, build(config.recipe))
    return config, model, {name: tensor.numpy() for name, tensor in model.program().items()}


@pytest.mark.parametrize("values", ["standard", "full"])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("components", ["attention", "residual"])
def test_a_trained_transformer_and_its_target_compute_the_same(trial, values, tied, components) -> None:
    config, model, tensors = trained(
        trial, components=components, backbone={"kind": "trained", "values": values, "tied": tied}
    )
    tokens = np.random.default_rng(0).integers(0, config.task.vocabulary, (5, config.task.positions))
    with torch.no_grad():
        wanted = model(torch.from_numpy(tokens)).numpy()
    np.testing.assert_allclose(target_of(config, tensors)(tokens), wanted, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"components": "residual+layernorm"}, "it has LayerNorm, which the theory leaves open"),
        ({"components": "residual+mlp"}, "it has an MLP"),
        ({"backbone": {"kind": "random"}}, "of kind random"),
        ({"task": {"name": "simulate"}}, "reads vectors"),
    ],
)
def test_what_is_no_target_is_refused_with_the_reason(trial, changes, said) -> None:
    config, _, tensors = trained(trial, **changes)
    with pytest.raises(CompileError, match=said):
        target_of(config, tensors)


def random_machine(p: int, residual: bool = True, seed: int = 3) -> Backbone:
    width = sufficient_width(2, 2, 3, p, residual)
    return build(Random().recipe(Shape(2, 2, width, False, p, 3, True), seed))


@pytest.fixture
def machine(tmp_path: Path) -> tuple[Path, Path, Path]:
    """The files of a khop target (untrained), of a machine and of the target's program for it."""
    rng = np.random.default_rng(0)
    tokens, positions = rng.normal(size=(KHOP.vocabulary, 3)), rng.normal(size=(KHOP.positions, 3))
    target = replace(
        draw_target(2, 2, 3, seed=1, out_dim=4, residual=True), token_embedding=tokens, position_embedding=positions
    )
    save_target(tmp_path / "target.safetensors", target, KHOP)
    backbone = random_machine(4)
    program, _ = compile_program(target, backbone)
    save_compiled(tmp_path / "program.safetensors", program, target, KHOP, backbone)
    return tmp_path / "target.safetensors", save_backbone(backbone, tmp_path), tmp_path / "program.safetensors"


def test_a_target_is_read_back(machine: tuple[Path, Path, Path], tmp_path: Path) -> None:
    target, task = load_target(machine[0])
    again = tmp_path / "again.safetensors"
    save_target(again, target, task)
    assert again.read_bytes() == machine[0].read_bytes() and task == KHOP and target.residual
    save_target(again, draw_target(1, 1, 2, seed=0))
    plain, none = load_target(again)
    assert none is None and not plain.residual and plain.token_embedding is None


def test_a_machine_answers_as_its_target(machine: tuple[Path, Path, Path]) -> None:
    target, _ = load_target(machine[0])
    loaded = Machine.load(*machine[1:])
    tokens = np.array([[0, 1, 0, 2, 0, 3]])
    np.testing.assert_allclose(loaded.outputs(tokens), target(tokens), rtol=1e-8)
    answers = loaded.ask("abacad")
    assert "".join(answer.word for answer in answers) == "".join("abcd"[k] for k in target(tokens)[0].argmax(-1))
    scores = np.exp(target(tokens)[0])
    np.testing.assert_allclose([a.confidence for a in answers], (scores / scores.sum(-1, keepdims=True)).max(-1))


def test_the_laboratorys_transformer_runs_a_compiled_program_as_the_machine_does(trial, machine) -> None:
    loaded = Machine.load(*machine[1:])
    config = trial(
        task=KHOP.model_dump(), backbone={"kind": "random", "values": "full", "qk_dim": 3}, components="residual",
        heads=2, layers=2, width=loaded.backbone.recipe.width, trainable="embedding",
    )  # fmt: skip
    model = Transformer(config, loaded.backbone)
    program = {"token_embedding": loaded.token_embedding, "position_embedding": loaded.position_embedding}
    install(model, {name: torch.from_numpy(array) for name, array in program.items()})
    tokens = np.array([[0, 1, 0, 2, 0, 3, 1], [3, 2, 1, 0, 1, 2, 0]])
    with torch.no_grad():
        found = model(torch.from_numpy(tokens)).numpy()
    np.testing.assert_allclose(found, loaded.outputs(tokens), rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize(
    ("task", "text", "said"),
    [
        (DYCK, "(a)", "'a' in '\\(a\\)': write \\( and \\) only"),
        (DYCK, "()" * 8, "has 16 characters, and the program reads at most 14"),
        (KHOP, "abe", "the program's alphabet is abcd"),
        (KHOP, "", "has 0 characters, and the program reads 1 to 7"),
        (KHOP, "äb", "'ä' in 'äb': the program's alphabet is abcd"),
        (KHOP, "a\nb", r"'\\n' in 'a\\nb': the program's alphabet is abcd"),
        (KHOP, "a" * 9999, f"^'{'a' * 40}…' has 9999 characters, and the program reads 1 to 7$"),
        (KHOP, "é" * 9999, f"^'é' in '{'é' * 40}…': the program's alphabet is abcd$"),
        (KHOP, "abababab", "has 8 characters, and the program reads 1 to 7"),
    ],
)
def test_a_text_in_another_language_is_refused(machine, task, text, said) -> None:
    loaded = Machine.load(*machine[1:])._replace(task=task)
    with pytest.raises(ValueError, match=said):
        loaded.ask(text)


def test_a_dyck_program_is_asked_once_at_the_end_and_answers_in_its_own_classes(machine) -> None:
    positions = np.zeros((15, Machine.load(*machine[1:]).token_embedding.shape[1]))
    loaded = Machine.load(*machine[1:])._replace(task=DYCK, position_embedding=positions)
    (answer,) = loaded.ask("(())")
    tokens = np.array([[0, 0, 1, 1, 2]])
    scores = loaded.outputs(tokens)[0, -1]
    assert len(scores) == 4  # of which two are no answers to this task
    assert answer.word == ["not balanced", "balanced"][int(scores[1] > scores[0])]
    assert answer.confidence == pytest.approx(1 / (1 + np.exp(-abs(scores[1] - scores[0]))))


def test_a_task_without_a_language_is_refused(machine) -> None:
    with pytest.raises(ValueError, match="task simulate has no language"):
        Machine.load(*machine[1:])._replace(task=Simulate()).ask("1 2 3")


# The same from the command line.


def ran(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def test_compile_writes_the_program_and_run_asks_it(machine, tmp_path: Path) -> None:
    target, backbone, program = machine
    out = tmp_path / "again.safetensors"
    status, said, _ = ran("compile", "--target", target, "--backbone", backbone, "--out", out)
    assert status == 0 and said.startswith(f"{out}: exact")
    assert out.read_bytes() == program.read_bytes() and card_path(out).read_bytes() == card_path(program).read_bytes()
    status, said, _ = ran("run", "--backbone", backbone, "--program", out, "abac", "d")
    answers = Machine.load(backbone, program).ask("abac")
    assert status == 0 and len(said.splitlines()) == 2
    assert said.startswith(f"abac  {''.join(answer.word for answer in answers)}  (")
    assert said.count("%") == 5


def test_a_program_of_least_squares_is_written_and_called_so(machine, tmp_path: Path) -> None:
    narrow = build(Random().recipe(Shape(2, 2, 20, False, 4, 3, True), 0))
    out = tmp_path / "narrow.safetensors"
    status, said, _ = ran(
        "compile", "--target", machine[0], "--backbone", save_backbone(narrow, tmp_path), "--out", out
    )
    assert status == 1 and "not exact" in said and out.exists()


def test_commands_that_cannot_be_done_end_with_2_and_the_reason(machine, tmp_path: Path) -> None:
    target, backbone, program = machine
    out, long, folder = tmp_path / "new.safetensors", "x" * 300 + ".safetensors", tmp_path / "folder.safetensors"
    folder.mkdir()
    before = [path.read_bytes() for path in machine]
    for arguments, reason in (
        (
            ("compile", "--target", target, "--backbone", backbone, "--out", tmp_path / "new"),
            "give a name in .safetensors",
        ),
        (("compile", "--target", backbone, "--backbone", backbone, "--out", out), "no target"),
        (("compile", "--target", target, "--backbone", tmp_path / "none", "--out", out), "no such file"),
        (("run", "--backbone", backbone, "--program", tmp_path / "none", "a"), "no such file"),
        (("run", "--backbone", backbone, "--program", tmp_path, "a"), "cannot be read (Is a directory)"),
        (("run", "--backbone", tmp_path, "--program", program, "a"), "cannot be read (Is a directory)"),
        (("compile", "--target", tmp_path, "--backbone", backbone, "--out", out), "cannot be read (Is a directory)"),
        (("compile", "--target", target, "--backbone", backbone, "--out", folder), "is a folder"),
        (("compile", "--target", target, "--backbone", backbone, "--out", target), "would be overwritten"),
        (("compile", "--target", target, "--backbone", backbone, "--out", backbone), "would be overwritten"),
        (
            ("compile", "--target", target, "--backbone", backbone, "--out", program / "x.safetensors"),
            "cannot be written",
        ),
        (("compile", "--target", target, "--backbone", backbone, "--out", tmp_path / long), "cannot be written"),
        (("swap", "--out", program), "cannot be written"),
        (("run", "--backbone", backbone, "--program", program, "a", "xyz"), "the program's alphabet is abcd"),
    ):
        status, said, errors = ran(*arguments)
        assert status == 2 and reason in errors and not said
    assert not out.exists() and before == [path.read_bytes() for path in machine]


def test_a_program_is_written_into_a_folder_that_is_made_for_it(machine, tmp_path: Path) -> None:
    out = tmp_path / "a" / "b ü" / "new.safetensors"
    assert ran("compile", "--target", machine[0], "--backbone", machine[1], "--out", out)[0] == 0
    assert out.read_bytes() == machine[2].read_bytes()


# Files that cannot be used.


def test_a_program_for_another_machine_is_refused(machine, tmp_path: Path) -> None:
    other = save_backbone(random_machine(4, seed=4), tmp_path)
    with pytest.raises(ProgramError, match="made for the backbone"):
        Machine.load(other, machine[2])


def test_files_that_are_something_else_are_refused(machine, tmp_path: Path) -> None:
    target, backbone, program = machine
    for load, path, said in (
        (load_target, backbone, "no target"), (load_target, program, "no target"),
        (load_backbone, target, "its card holds no recipe"), (load_backbone, tmp_path / "none", "no such file"),
    ):  # fmt: skip
        with pytest.raises(FileError, match=said):
            load(path)
    with pytest.raises(FileError, match="names no task"):
        plain = tmp_path / "plain.safetensors"
        flat = draw_target(2, 2, 3, seed=1, out_dim=4, residual=True)
        frozen = load_backbone(backbone)
        save_compiled(plain, compile_program(flat, frozen)[0], flat, None, frozen)
        Machine.load(backbone, plain)


def test_a_damaged_file_is_named(machine) -> None:
    target, backbone, _ = machine
    for path in machine:
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    for load in (lambda: load_target(target), lambda: load_backbone(backbone)):
        with pytest.raises(FileError, match="its digest is"):
            load()


def test_a_target_whose_weights_are_not_numbers_is_refused(machine) -> None:
    path = machine[0]
    target, task = load_target(path)
    target.query[0, 0, 0, 0] = np.nan
    save_target(path, target, task)
    with pytest.raises(FileError, match="query holds values that are not finite"):
        load_target(path)


def altered(path: Path, arrays: dict | None = None, **card: object) -> Path:
    """A copy of a file with other arrays or entries of its card; None takes one out."""
    held, held_card = load_arrays(path)
    del held_card["digest"]
    kept, kept_card = ({**old, **new} for old, new in ((held, arrays or {}), (held_card, card)))
    out = path.with_name("altered.safetensors")
    save_arrays(
        out,
        {name: array for name, array in kept.items() if array is not None},
        {name: entry for name, entry in kept_card.items() if entry is not None},
    )
    return out


@pytest.mark.parametrize(
    ("arrays", "card", "said"),
    [
        ({"query": None, "value": None}, {}, "no target, it lacks query, value"),
        ({"extra": np.ones(2)}, {}, "no target, nothing is known of extra in it"),
        ({"query": np.ones(())}, {}, "query has 0 axes, not 4"),
        ({}, {"residual": None}, "no target, whose card would say of `residual` that it is true or false"),
        ({}, {"residual": "no"}, "no target, whose card would say of `residual` that it is true or false"),
        ({}, {"task": "khop"}, "its card names a task that this code does not know"),
        ({}, {"task": {"name": "simulate"}}, "its card names task simulate, which reads no tokens"),
        (
            {},
            {"task": {"name": "khop", "alphabet": 3, "length": 7}},
            r"token_embedding has shape \(4, 3\), not \(3, 3\)",
        ),
        ({}, {"task": {"name": "khop", "length": 9}}, r"position_embedding has shape \(7, 3\), not \(9, 3\)"),
    ],
)
def test_a_targets_file_is_looked_through(machine, arrays, card, said) -> None:
    with pytest.raises(FileError, match=said):
        load_target(altered(machine[0], arrays, **card))


@pytest.mark.parametrize(
    ("arrays", "recipe", "said"),
    [
        ({"value": None}, {}, "value is missing"),
        ({"extra": np.ones(2)}, {}, "extra is no part of it"),
        ({"unembedding": np.ones((5, 4))}, {}, r"unembedding has shape \(5, 4\), not \(84, 4\)"),
        ({"unembedding": np.full((84, 4), np.inf)}, {}, "unembedding holds values that are not finite"),
        ({}, {"heads": 3}, r"query has shape \(2, 2, 84, 3\), not \(2, 3, 84, 3\)"),
        ({}, {"layers": 10**6}, r"query has shape \(2, 2, 84, 3\), not \(1000000, 2, 84, 3\)"),
        ({}, {"tied": True}, r"value has shape \(2, 2, 84, 84\), not \(1, 2, 84, 84\)"),
        ({}, {"values": "standard"}, r"output is missing; value has shape \(2, 2, 84, 84\), not \(2, 2, 84, 42\)"),
        ({}, {"mlp_gain": 1.0}, "mlp_in is missing; mlp_out is missing"),
        ({}, {"layout": "attention", "out_dim": 4}, "destination.0 is missing"),
        ({}, {"layout": "attention"}, "no backbone, its card holds no recipe"),
    ],
)
def test_a_backbones_file_is_looked_through(machine, arrays, recipe, said) -> None:
    _, card = load_arrays(machine[1])
    with pytest.raises(FileError, match=said):
        load_backbone(altered(machine[1], arrays, recipe={**card["recipe"], **recipe}))


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"source.1": None}, "source.1 is missing"),
        ({"source.0": np.arange(6.0).reshape(2, 3)}, "source.0 holds what is no slot of the tree"),
        ({"query": np.full((2, 2, 3), -5)}, "query holds what is no slot of the tree"),
        ({"key": np.full((2, 2, 3), 84)}, "key holds what is no slot of the tree"),
    ],
)
def test_so_is_that_of_a_tree(tmp_path: Path, arrays, said) -> None:
    shape = Shape(2, 2, sufficient_width(2, 2, 3, 4, True), False, 4, 3, True)
    path = save_backbone(build(Sparse(layout="residual").recipe(shape, 0)), tmp_path)
    assert set(load_backbone(path).arrays) == set(load_arrays(path)[0])
    with pytest.raises(FileError, match=said):
        load_backbone(altered(path, arrays))


@pytest.mark.parametrize("mlp", [False, True])
@pytest.mark.parametrize("config", [Random(values="standard"), Random(tied=True), Sparse(layout="tied")], ids=str)
def test_backbones_of_other_kinds_are_read_back(tmp_path: Path, config, mlp) -> None:
    backbone = build(config.recipe(Shape(2, 2, 20, mlp, 2, 2, fixed_unembedding=False), 0))
    again = load_backbone(save_backbone(backbone, tmp_path))
    assert again.recipe == backbone.recipe and again.digest == backbone.digest


@pytest.mark.parametrize(
    ("arrays", "card", "said"),
    [
        ({"unembedding": None}, {}, "no compiled program, unembedding is missing in it or unknown"),
        ({"extra": np.ones(2)}, {}, "no compiled program, extra is missing in it or unknown"),
        ({"token_embedding": np.ones((4, 5))}, {}, r"token_embedding has shape \(4, 5\), not \(4, 84\)"),
        ({"position_embedding": np.ones(())}, {}, r"position_embedding has shape \(\), not \(7, 84\)"),
        ({"unembedding": np.ones((84, 3))}, {}, r"unembedding has shape \(84, 3\), not \(84, 4\)"),
        ({"unembedding": np.full((84, 4), np.nan)}, {}, "it holds values that are not finite"),
        ({}, {"backbone": None}, "no program, its card names no backbone"),
        ({}, {"residual": None}, "no compiled program, whose card would say of `residual`"),
        ({}, {"task": {"name": "dyck"}}, "not for the task dyck of its card"),
    ],
)
def test_a_programs_file_is_looked_through(machine, arrays, card, said) -> None:
    with pytest.raises(FileError, match=said):
        Machine.load(machine[1], altered(machine[2], arrays, **card))


def test_an_unknown_task_is_refused(machine) -> None:
    card = card_path(machine[0])
    card.write_text(json.dumps({**json.loads(card.read_text()), "task": {"name": "chess"}}))
    with pytest.raises(FileError, match="a task that this code does not know"):
        load_target(machine[0])


# One machine, two programs.


def test_two_programs_take_turns_in_one_machine_that_does_not_change(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(fut.swap, "TASKS", (DYCK, KHOP))
    monkeypatch.setattr(fut.swap, "TRAINING", Training(steps=20, steps_per_epoch=10, batch_size=16, warmup_steps=5))
    status, said, _ = ran("swap", "--out", tmp_path / "command", "--seed", 1)
    assert (
        status == 0 and said.count("machine agrees with it at 100 % (float64)") == 2 and said.count("fut run --") == 2
    )
    dyck, khop = swap(tmp_path, seed=1)
    assert (dyck.task, khop.task) == ("dyck", "khop")
    assert dyck.agreement == khop.agreement == 1 and dyck.report.exact and khop.report.exact
    assert dyck.agreement_single > 0.95 and khop.agreement_single > 0.95
    assert dyck.machine == khop.machine and dyck.backbone_digest == khop.backbone_digest
    assert array_digest(load_backbone(dyck.machine).arrays) == dyck.backbone_digest
    programs = [Machine.load(each.machine, each.program).unembedding for each in (dyck, khop)]
    np.testing.assert_array_equal(*programs)  # the machine's own, drawn with it
    assert Machine.load(dyck.machine, dyck.program).ask("()")[0].word in ("balanced", "not balanced")
