"""The corpus of bad params files, tests/params/bad/KIND/WHAT.yaml: each holds the faults that are expected of it."""

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest
from pydantic import BaseModel

from fut.backbones import BACKBONES
from fut.config import Source, TrialConfig
from fut.tasks import TASKS
from fut.training_plan import Training
from fut.transfer import Transfer
from pipeline import yamlfile
from pipeline.params import Params, ParamsError, Wandb, load_params
from pipeline.study import Study
from pipeline.yamlfile import LARGEST_FILE

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "params" / "bad"
BAD = sorted(FOLDER.rglob("*.yaml"))
MARK = "# expect: "
GOOD = """run: [s]
studies:
  s:
    seeds: [0, 1]
    base: {task: {name: khop}, backbone: {kind: random}, heads: 1, layers: 1, width: 8}
"""
MODELS: dict[str, type[BaseModel]] = {  # by the name of the files that are about them
    "params": Params,
    "wandb": Wandb,
    "study": Study,
    "cell": TrialConfig,
    "transfer": Transfer,
    "training": Training,
    "source": Source,
    **{f"task_{name}": model for name, model in TASKS.items()},
    **{f"backbone_{kind}": model for kind, model in BACKBONES.items()},
}


def expected(path: Path) -> list[str]:
    """The faults written into a bad file."""
    return [line.removeprefix(MARK) for line in path.read_text().splitlines() if line.startswith(MARK)]


def faults(path: Path) -> list[str]:
    """The faults that a file is refused with."""
    with pytest.raises(ParamsError) as refused:
        load_params(path)
    return [str(fault) for fault in refused.value.faults]


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "params.yaml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("path", BAD, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_bad_file_is_refused_with_exactly_the_faults_written_in_it(path: Path) -> None:
    assert expected(path)
    assert faults(path) == expected(path)


# Every setting meets a typo, a wrong type and, where it has bounds, a value beyond them.


def fields(name: str) -> dict[str, object]:
    """The settings of a model; a cell's seed and learning rate are those of its study."""
    found = dict(MODELS[name].model_fields)
    return {key: field for key, field in found.items() if name != "cell" or key not in ("seed", "learning_rate")}


def named(kind: str, name: str) -> set[str]:
    """The keys on the paths of the faults of a file of the corpus."""
    return {key for fault in expected(FOLDER / kind / f"{name}.yaml") for key in re.split(r"[.:\[]", fault)}


@pytest.mark.parametrize("name", MODELS)
def test_every_key_is_misspelt_once_and_the_right_one_named(name: str) -> None:
    meant = re.findall(r"did you mean '(\w+)'\?", "\n".join(expected(FOLDER / "unknown_key" / f"{name}.yaml")))
    assert sorted(meant) == sorted(fields(name))


@pytest.mark.parametrize("name", MODELS)
def test_every_setting_has_a_wrong_type_once(name: str) -> None:
    assert fields(name).keys() - named("wrong_type", name) == set()


@pytest.mark.parametrize("name", [name for name in MODELS if name != "wandb"])  # which has no numbers
def test_every_bounded_setting_is_out_of_range_once(name: str) -> None:
    own = {"study": {"seeds", "learning_rate"}}.get(name, set())
    bounded = {
        key
        for key, field in fields(name).items()
        if any(hasattr(bound, side) for bound in field.metadata for side in ("gt", "ge", "lt", "le"))  # type: ignore[attr-defined]
    }
    assert bounded | own
    assert (bounded | own) - named("out_of_range", name) == set()


def test_every_choice_among_words_meets_another_word() -> None:
    choices = {
        key
        for model in MODELS.values()
        for key, field in model.model_fields.items()
        if Literal in (get_origin(field.annotation), *map(get_origin, get_args(field.annotation)))
    }
    words = {key for path in (FOLDER / "unknown_word").glob("*.yaml") for key in named("unknown_word", path.stem)}
    assert choices - words == set()


# Files that no editor shows as they are.


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (GOOD.encode("utf-16"), "is not UTF-8 text (byte 0); save it as UTF-8"),
        (GOOD.encode("latin-1") + b"# na\xefve\n", f"is not UTF-8 text (byte {len(GOOD) + 4}); save it as UTF-8"),
        (GOOD + "\0", "line 6, column 1: not valid YAML: it holds the character U+0000; delete it"),
        (GOOD.replace("8", "8\x0c"), "line 5, column 87: not valid YAML: it holds the character U+000C; delete it"),
        (
            GOOD.replace("    seeds", "\u2028   seeds"),
            "line 4, column 1: not valid YAML: it holds the character U+2028",
        ),
        (GOOD + "\ufeff", "line 6, column 1: not valid YAML: it holds the character U+FEFF; delete it"),
        (GOOD + "#" * LARGEST_FILE, f"is larger than {LARGEST_FILE:,} bytes; is it the right file?"),
        ("run: " + "[" * 100_000, "line 1, column 45: not valid YAML: more than 40 values within one another"),
        ("{a: " * 1_000, "not valid YAML: more than 40 values within one another"),
        ("- " * 1_000, "not valid YAML: more than 40 values within one another"),
        ("%YAML 1." + "9" * 5_000 + "\n---\n" + GOOD, "line 1, column 9: not valid YAML"),
    ],
)
def test_unreadable_bytes_are_refused_with_their_place(tmp_path: Path, content: str | bytes, words: str) -> None:
    (fault,) = faults(written(tmp_path, content))
    assert words in fault


def test_an_endless_file_is_not_read_to_its_end() -> None:
    assert faults(Path("/dev/zero")) == ["/dev/zero: is larger than 1,000,000 bytes; is it the right file?"]


def test_a_file_of_too_many_values_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yamlfile, "MOST_VALUES", 500)
    (fault,) = faults(written(tmp_path, f"run: [{'s, ' * 600}]"))
    # the mapping, its key and the list are 3; the 498th entry stands after 497 others of 3 characters
    assert fault == f"line 1, column {7 + 3 * 497 + 1 - 1}: not valid YAML: more than 500 keys and values; write less"


def test_aliases_that_multiply_are_refused_before_they_do(tmp_path: Path) -> None:
    names = [f"a{index}" for index in range(300)]
    lines = [f"{name}: &{name} [{', '.join([f'*{last}'] * 9)}]" for last, name in pairwise(names)]
    merges = [line.replace("[", "{<<: [").replace("]", "], more: [" + "x, " * 9 + "]}") for line in lines]
    # a0 is 2 values, and each next one 9 times the last and itself: 19, 172, 1549, 13942, 125479
    (fault, *_) = faults(written(tmp_path, "\n".join(["a0: &a0 [x]", *lines])))
    assert fault == "a5: line 6 comes to 125,479 values, aliases written out; write less"
    (fault, *_) = faults(written(tmp_path, "\n".join(["a0: &a0 {k: v}", *merges])))
    assert "aliases written out" in fault


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf" + GOOD.encode(),  # the mark of Windows editors
        GOOD.replace("\n", "\r\n").encode(),
        GOOD.replace("\n", "\r").encode(),
        ("---\n" + GOOD + "...\n").encode(),
        ("%YAML 1.2\n---\n" + GOOD).encode(),
        GOOD.rstrip().encode(),
        (GOOD + "# größer als ½ 🙂\n").encode(),
        GOOD.replace("[0, 1]", "[0, 1,]").encode(),
    ],
)
def test_harmless_bytes_change_nothing(tmp_path: Path, content: bytes) -> None:
    assert load_params(written(tmp_path, content)) == load_params(written(tmp_path, GOOD))


# The command line.


@pytest.mark.slow
@pytest.mark.parametrize("command", ["plan", "datasets"])  # the second is the first stage of `dvc repro`
def test_commands_end_with_status_2_the_faults_and_nothing_made(command: str, tmp_path: Path) -> None:
    bad = FOLDER / "contradiction" / "and_everything_else.yaml"
    path = written(tmp_path, bad.read_bytes())
    run = subprocess.run(
        [sys.executable, "-m", f"pipeline.{command}", "--params", str(path)],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip
    assert (run.returncode, run.stdout) == (2, "")
    count = f"{path} cannot be used: {len(expected(bad))} faults"
    assert run.stderr.splitlines() == [count, *(f"  {fault}" for fault in expected(bad))]
    assert list(tmp_path.iterdir()) == [path]
