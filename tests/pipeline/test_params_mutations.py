"""Whatever is done to a good params file, it is read with a meaning or refused with a place; nothing else happens."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dvc.utils.serialize import parse_yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fut.config import TrialConfig
from pipeline.limits import MOST_TRIALS
from pipeline.params import ParamsError, load_params
from pipeline.yamlfile import parse

ROOT = Path(__file__).parents[2]
EVERY_FIELD = """
run: [tokens, targets]
store: some/store
cpus_per_trial: 2
gpus_per_trial: 0.5
ray_address: head:6379
stalled_after: 60.5
wandb: {project: fut-tests, mode: offline}
transfer:
  tasks: [{name: dyck, max_length: 16, share_random: 0.3, share_flip: 0.1}, {name: khop, hops: 2, length: 12}]
  heads: 2
  layers: 1
  target_dim: 4
  seeds: [0, 5]
  times_sufficient: [0.9, 1]
  training: &training
    {steps: 20, batch_size: 8, steps_per_epoch: 10, warmup_steps: 2, weight_decay: 0.1, solved_at: 0.5}
  learning_rate: 0.01
studies:
  tokens:
    about: every field of tasks over tokens
    seeds: [0, 1]
    learning_rate: {sparse: &rates [0.01, 3e-2], random: *rates, control: 0.1, trained: 1e-3, pretrained: 0.02}
    criterion: 0.9
    base:
      components: residual+layernorm
      training: *training
    grid:
      - task: {name: dyck, data_seed: 1, train_size: 100, val_size: 10, test_size: 10, min_length: 12, max_length: 16,
               share_random: 0.1, share_flip: 0.2, share_swap: 0.3, share_negative_prefix: 0.4}
        backbone: [{kind: sparse, layout: residual, block: 2, mlp_gain: 0.5}, {kind: sparse, qk_dim: 2, out_dim: 2}]
        "heads, layers": [[1, 2], [2, 1]]
        width: [16, 24]
      - task: {name: khop, hops: 1, alphabet: 5, length: 12}
        backbone:
          - &drawn {kind: random, distribution: laplace, values: full, qk_dim: 3, qk_gain: 2.0, value_gain: 0.5}
          - {<<: *drawn, kind: control, control: identical_heads, tied: true}
          - {kind: trained, qk_dim: null, tied: false}
        heads: 2
        layers: 1
        width: 12
        training.steps: [20, 40]
      - task: {name: dyck}
        backbone: {kind: pretrained, qk_dim: null, mlp_gain: 1.0}
        source:
          task: {name: khop, hops: 1, alphabet: 5, length: 12}
          backbone: {kind: trained, qk_dim: null, tied: false}
          training: {<<: *training, steps: 20}
          learning_rate: 1e-3
        heads: 2
        layers: 1
        width: 12
  targets:
    seeds: [7]
    learning_rate: [0.1]
    base:
      task: {name: simulate, target_dim: 3, target_qk_dim: 2, target_out_dim: 2, target_qk_gain: 1.5, length: 5}
      backbone: {kind: random}
      heads: 1
      layers: 1
      width: 16
      training: *training
    changes:
      - {width: [8, {times_sufficient: [0.5, 1]}], trainable: embedding}
      - {backbone.tied: true, task.length: 4}
      - {init: compiled, init_noise: [0, 0.5], method: learned}
      - {method: compiled}
"""


def pieces() -> list[str]:
    """Small good files: the one above, and each study of the shipped file that needs no other's anchors."""
    head, body = (ROOT / "params.yaml").read_text().split("\nstudies:\n")
    head = re.sub(r"#.*", "", re.sub(r"run: .*", "run: [NAME]", head))
    found = [EVERY_FIELD]
    for study in re.split(r"\n(?=  [a-z])", body):
        name = re.match(r"\s*([a-z_]+):", study)
        if name and not name[1].startswith("paper"):
            found.append(f"{head.replace('NAME', name[1]).strip()}\nstudies:\n{study}\n")
    return found


TEXTS = pieces()
TREES = [parse(text)[0] for text in TEXTS]
WORDS = sorted({word for text in TEXTS for word in re.findall(r"[a-z_]+", text)})


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file to write again and again."""
    return tmp_path_factory.mktemp("mutated") / "params.yaml"


def same(ours: Any, dvcs: Any) -> bool:
    """Whether DVC reads what we do; what is text for us may be a date for it."""
    if isinstance(ours, dict) and isinstance(dvcs, dict):
        return ours.keys() == dvcs.keys() and all(same(ours[key], dvcs[key]) for key in ours)
    if isinstance(ours, list) and isinstance(dvcs, list):
        return len(ours) == len(dvcs) and all(map(same, ours, dvcs))
    return isinstance(ours, str) or ours == dvcs


def check(path: Path, text: str) -> None:
    """The property."""
    path.write_text(text, encoding="utf-8", newline="")
    try:
        params = load_params(path)
    except ParamsError as refused:
        assert refused.faults
        for fault in refused.faults:
            assert fault.path.strip() and fault.text.strip() and "\n" not in str(fault), fault
        return
    assert params.run and set(params.run) <= params.studies.keys()
    assert params.transfer.problems() == []
    for name, study in params.studies.items():
        cells = params.cells(name)
        assert [cell.id for cell in params.cells(name)] == [cell.id for cell in cells] != []
        trials = [trial for cell in cells for trial in cell.trials]
        assert len({trial.id for trial in trials}) == len(trials) <= MOST_TRIALS
        assert {trial.seed for trial in trials} == set(study.seeds)
        for cell in cells:
            assert TrialConfig.model_validate(json.loads(json.dumps(cell.first.canonical()))) == cell.first
    assert same(parse(text)[0], parse_yaml(text, path))


def test_the_files_to_mutate_are_good(path: Path) -> None:
    assert len(TEXTS) >= 5
    for text in TEXTS:
        path.write_text(text)
        assert load_params(path).run
        check(path, text)


# The parsed tree.

NUMBERS = [0, 1, 2, 3, 7, 8, 100, 10**5, 10**9, 2**63 - 1, 2**63, 10**29, 10**40, -1, -(10**9)]
REALS = [0.0, -0.0, 0.5, 1.0, 1e-9, 1e-300, 1e300, 2.5, -1.0, float("nan"), float("inf"), float("-inf")]
PITFALLS = [
    "no",
    "on",
    "1e-2",
    "",
    " ",
    "~",
    "<<",
    "[8]",
    "0x10",
    "größe",
    "\x1b[1m",
    "\ufeff",
    "a" * 5_000,
    "; heads: 2",
]
ODD_WORDS = [
    "times_sufficient",
    "task.hops",
    "heads, layers",
    "backbone.kind",
    "width.times_sufficient",
    "a..b",
    ",",
    ".",
]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(NUMBERS),
    st.sampled_from(REALS),
    st.sampled_from([*PITFALLS, *ODD_WORDS]),
    st.sampled_from(WORDS),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
)
KEYS = st.one_of(st.sampled_from(WORDS), st.sampled_from([*PITFALLS, *ODD_WORDS]), st.text(max_size=8))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=6,
)


def places(tree: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The steps to everything in a tree."""
    inside = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for step, value in inside:
        yield (*above, step)
        yield from places(value, (*above, step))


def at(tree: Any, steps: tuple[Any, ...]) -> Any:
    for step in steps:
        tree = tree[step]
    return tree


@st.composite
def words_like(draw: st.DrawFn, word: str) -> str:
    """A word with a slip of the finger."""
    spot = draw(st.integers(0, max(0, len(word) - 1)))
    slips = [
        word[:spot] + word[spot + 1 :],
        word[:spot] + word[spot : spot + 2][::-1] + word[spot + 2 :],
        word[:spot] + draw(st.characters(codec="utf-8")) + word[spot:],
        word.upper(),
        f"{word}.{draw(st.sampled_from(WORDS))}",
        draw(KEYS),
    ]
    return draw(st.sampled_from(slips))


@st.composite
def mutated_trees(draw: st.DrawFn) -> Any:
    """A good tree after one to three mutations."""
    tree = json.loads(json.dumps(draw(st.sampled_from(TREES))))
    for _ in range(draw(st.integers(1, 3))):
        found = list(places(tree))
        if not found:
            break
        *above, last = draw(st.sampled_from(found))
        holder = at(tree, tuple(above))
        value = holder[last]
        match draw(st.sampled_from(["delete", "rename", "repeat", "replace", "nest", "swap", "retype"])):
            case "delete":
                del holder[last]
            case "rename" if isinstance(last, str):
                new = draw(words_like(last))
                renamed = {new if key == last else key: item for key, item in holder.items()}
                holder.clear()
                holder.update(renamed)
            case "repeat" if isinstance(holder, list):
                holder.insert(last, value)
            case "nest":
                holder[last] = draw(st.sampled_from([[value], [[value]], {draw(KEYS): value}, [value, draw(VALUES)]]))
            case "swap":
                *other, end = draw(st.sampled_from(found))
                if tuple(above[: len(other) + 1]) != (*other, end) and tuple(other[: len(above) + 1]) != (*above, last):
                    other_holder = at(tree, tuple(other))
                    holder[last], other_holder[end] = other_holder[end], value
            case "retype":
                holder[last] = draw(st.sampled_from([str(value), json.dumps(value), [value], not value, {}, [], None]))
            case _:
                holder[last] = draw(VALUES)
    return tree


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tree=mutated_trees())
def test_a_mutated_tree_is_read_with_a_meaning_or_refused_with_a_place(path: Path, tree: Any) -> None:
    check(path, json.dumps(tree, ensure_ascii=False).encode("utf-8", "replace").decode())


# The text.

CHARACTERS = st.one_of(
    st.sampled_from(list(" \n\t\r:,-[]{}#&*!|>'\"%@`?~<.0e+\\")),
    st.characters(codec="utf-8"),
    st.sampled_from("\x00\x85\u2028\xa0\ufeff"),
)
LINES = st.sampled_from(
    [
        "---",
        "...",
        "%YAML 1.1",
        "? x",
        "<<: *drawn",
        "  <<: {a: 1}",
        "\t",
        "- ",
        "&a",
        "*a",
        "!!python/none",
        "a: !!set {b}",
        "x: |",
        "\ufeff",
    ]
)


@st.composite
def mutated_texts(draw: st.DrawFn) -> str:
    """A good text after one to four mutations of its characters or lines."""
    text = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(1, 4))):
        lines = text.split("\n")
        spot, line = draw(st.integers(0, len(text))), draw(st.integers(0, len(lines) - 1))
        match draw(st.sampled_from(["delete", "insert", "replace", "cut", "drop", "double", "move", "indent", "add"])):
            case "delete":
                text = text[:spot] + text[spot + 1 :]
            case "insert":
                text = text[:spot] + draw(CHARACTERS) + text[spot:]
            case "replace":
                text = text[:spot] + draw(CHARACTERS) + text[spot + 1 :]
            case "cut":
                text = text[:spot]
            case "drop":
                text = "\n".join(lines[:line] + lines[line + 1 :])
            case "double":
                text = "\n".join([*lines[: line + 1], *lines[line:]])
            case "move":
                moved = lines.pop(line)
                lines.insert(draw(st.integers(0, len(lines))), moved)
                text = "\n".join(lines)
            case "indent":
                lines[line] = draw(
                    st.sampled_from([f" {lines[line]}", f"  {lines[line]}", lines[line][1:], f"\t{lines[line]}"])
                )
                text = "\n".join(lines)
            case "add":
                text = "\n".join([*lines[:line], draw(LINES), *lines[line:]])
    return text


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=mutated_texts())
def test_a_mutated_text_is_read_with_a_meaning_or_refused_with_a_place(path: Path, text: str) -> None:
    check(path, text)


@settings(max_examples=100, deadline=None)
@given(text=st.text(st.one_of(CHARACTERS, st.sampled_from("runstudies")), max_size=60))
def test_any_text_is_refused_with_a_place(path: Path, text: str) -> None:
    check(path, text)
