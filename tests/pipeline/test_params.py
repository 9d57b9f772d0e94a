"""params.yaml: what is refused, with which words, and what is read."""

import math
from pathlib import Path
from typing import Any, Self

import pytest
import yaml
from pydantic import BaseModel, Field, ValidationError, model_validator

from pipeline.faults import from_validation, join, nearest, show, unknown
from pipeline.params import Params, ParamsError, load_or_exit, load_params
from pipeline.yamlfile import _syntax_fault, parse

ROOT = Path(__file__).parents[2]
GOOD = """
run: [s]
studies:
  s:
    seeds: [0, 1]
    base: {task: {name: khop}, backbone: {kind: random}, heads: 1, layers: 1, width: 8}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "params.yaml"
    path.write_text(text)
    return path


def test_the_message_names_the_file_the_count_and_every_fault(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD + "    widht: 3\nwandb: {projct: x}\n")
    with pytest.raises(ParamsError) as refused:
        load_params(path)
    assert str(refused.value).splitlines() == [
        f"{path} cannot be used: 2 faults",
        "  wandb.projct: unknown key 'projct': did you mean 'project'?",
        "  studies.s.widht: unknown key 'widht'; known: about, seeds, learning_rate, criterion, base, grid, changes",
    ]


def test_command_lines_end_with_status_2_and_the_faults_on_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, "run: []\nstudies: {}\n")
    with pytest.raises(SystemExit) as exit_:
        load_or_exit(path)
    output = capsys.readouterr()
    assert exit_.value.code == 2
    assert output.out == ""
    assert "studies: is empty" in output.err


def test_a_file_that_cannot_be_opened_says_why(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    with pytest.raises(ParamsError, match="no such file; run in the project's folder, or name the file with --params"):
        load_params(path)
    path.mkdir()
    with pytest.raises(ParamsError, match="cannot be read: Is a directory"):
        load_params(path)


def test_a_good_file_is_read_with_its_defaults(tmp_path: Path) -> None:
    params = load_params(written(tmp_path, GOOD))
    assert (params.run, params.store, params.cpus_per_trial, params.gpus_per_trial) == (["s"], "store", 1, 0)
    assert (params.wandb.project, params.wandb.mode, params.ray_address) == ("fut", "auto", "local")
    assert params.studies["s"].seeds == [0, 1]
    # frozen backbones learn at 1e-2, trained ones at 1e-3
    rates = params.studies["s"].learning_rate
    assert rates == {"sparse": [0.01], "random": [0.01], "control": [0.01], "trained": [0.001], "pretrained": [0.01]}


def test_learning_rates_may_be_a_number_a_list_or_either_by_kind(tmp_path: Path) -> None:
    rates = {}
    for text in ("1e-2", "[1, 3e-2]", "{random: 1e-3, sparse: [0.1, 0.2]}"):
        params = load_params(written(tmp_path, GOOD + f"    learning_rate: {text}\n"))
        rates[text] = params.studies["s"].learning_rate["random"], params.studies["s"].learning_rate["sparse"]
    assert list(rates.values()) == [([0.01], [0.01]), ([1.0, 0.03], [1.0, 0.03]), ([0.001], [0.1, 0.2])]


def test_the_criterion_is_the_studys_or_the_tasks(tmp_path: Path) -> None:
    plain = load_params(written(tmp_path, GOOD))
    task = plain.cells("s")[0].first.task
    assert plain.studies["s"].criterion_for(task) == task.criterion_value
    own = load_params(written(tmp_path, GOOD + "    criterion: 0.5\n"))
    assert own.studies["s"].criterion_for(task) == 0.5


@pytest.mark.parametrize(
    "line",
    [
        "gpus_per_trial: 0.25",
        "gpus_per_trial: 2",
        "gpus_per_trial: 0.0001",
        "ray_address: auto",
        "ray_address: 10.0.0.1:6379",
        "ray_address: ray://head.example:10001",
        "ray_address: '[fd00::1]:6379'",
        "store: ../results/store",
        "store: ~/store",
        "store: /data/größer store",
        "store: my_results",
        "wandb: {project: größe & co}",
        "stalled_after: 1",
    ],
)
def test_settings_of_the_run_take_what_is_possible(tmp_path: Path, line: str) -> None:
    assert load_params(written(tmp_path, f"{GOOD}{line}\n")).run == ["s"]


def test_a_fault_of_one_field_of_a_study_hides_none_of_its_grid(tmp_path: Path) -> None:
    for line in ("seeds: []", "learning_rate: 0", "criterion: -1", "about: 3"):
        text = GOOD.replace("    seeds: [0, 1]", "    " + line).replace("width: 8", "widht: 8")
        with pytest.raises(ParamsError) as refused:
            load_params(written(tmp_path, text))
        assert "studies.s.base.widht" in [fault.path for fault in refused.value.faults]


def test_other_studies_can_be_run(tmp_path: Path) -> None:
    params: Params = load_params(written(tmp_path, GOOD + GOOD.split("studies:\n")[1].replace("s:", "other:", 1)))
    assert params.with_run(["other"]).run == ["other"]
    assert params.run == ["s"]
    with pytest.raises(ValueError, match=r"--run\[0\]: unknown study 'othr': did you mean 'other'\?"):
        params.with_run(["othr"])


def test_yaml_values_are_those_of_yaml_1_2() -> None:
    text = "[1e-2, 1E3, .5, 1., -3, 010, .inf, no, on, true, ~, '1', 2024-01-01, 1:30, 0x1F, 1_000]"
    values, faults = parse(text)
    assert faults == []
    assert values == [
        0.01,
        1000.0,
        0.5,
        1.0,
        -3,
        10,
        float("inf"),
        "no",
        "on",
        True,
        None,
        "1",
        "2024-01-01",
        "1:30",
        "0x1F",
        "1_000",
    ]
    assert [type(value) for value in values[:6]] == [float, float, float, float, int, int]


def test_minus_zero_is_zero() -> None:
    values, _ = parse("[-0.0, -0, -.0e0]")
    assert [math.copysign(1, value) for value in values] == [1, 1, 1]


def test_anchors_and_merges_give_no_false_duplicates() -> None:
    values, faults = parse("a: &a {x: 1, y: 2}\nb: &b {<<: *a, x: 3}\nc: {<<: *b, y: 4}\nd: *a\n")
    assert faults == []
    assert values == {"a": {"x": 1, "y": 2}, "b": {"x": 3, "y": 2}, "c": {"x": 3, "y": 4}, "d": {"x": 1, "y": 2}}


def test_words_of_messages() -> None:
    assert join("", "run", 0) == "run[0]"
    assert nearest("layrs", ["layers", "heads"]) == "layers"
    assert nearest("colour", ["layers", "heads"]) is None
    assert unknown("key", "colour", ["layers"]) == "unknown key 'colour'; known: layers"
    assert [
        show(value) for value in (None, True, 0.5, "no", {"a": [None, 1]}, list(range(50)), dict.fromkeys("abcdefgh"))
    ] == [
        "nothing (null)",
        "true",
        "0.5",
        "the text 'no'",
        '{"a": [null, 1]}',
        "a list",
        "a mapping",
    ]
    assert show("x" * 50) == f"the text '{'x' * 37}...'"
    assert join("a", "b\nc", "", " d", "e" * 81) == rf"a['b\nc'][''][' d']['{'e' * 37}...']"


def test_merges_that_cannot_be_are_refused() -> None:
    assert "contains itself" in str(parse("a: &a {<<: *a}")[1][0])
    assert "only a mapping can be merged" in str(parse("a: &a 3\nb: {<<: *a}")[1][0])
    assert parse("a: &a {x: 1}\nb: &b {x: 2, y: 2}\nc: {<<: [*a, *b]}")[0]["c"] == {"x": 1, "y": 2}


def test_every_parameter_is_declared_to_dvc_by_a_stage() -> None:
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"].values()
    declared = {key.split(".")[0] for stage in stages for key in stage["params"]}
    assert declared == set(Params.model_fields)


class Odd(BaseModel):
    """A model with a constraint that no model of ours has, and a problem that names none of its fields."""

    name: str = Field(pattern="^a")
    size: int = 0

    @model_validator(mode="after")
    def _never(self) -> Self:
        raise ValueError("colour: it has none")


def test_what_pydantic_says_is_passed_on_where_there_are_no_words_of_ours() -> None:
    def faults(values: dict[str, Any]) -> list[str]:
        with pytest.raises(ValidationError) as refused:
            Odd.model_validate(values)
        return [str(fault) for fault in from_validation(refused.value, Odd, lambda steps, of_key: join("odd", *steps))]

    assert faults({"name": "b"}) == ["odd.name: string should match pattern '^a', got the text 'b'"]
    assert faults({"name": "a"}) == ["odd: colour: it has none"]


def test_a_fault_without_a_line_is_one_of_the_file() -> None:
    assert str(_syntax_fault("a: b", yaml.MarkedYAMLError(problem="odd"))) == "the file: not valid YAML: odd"
