"""The stage of the transfer: a file that is whole or not there, which becomes a table."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis import schema
from fut.compiler import CompileError
from pipeline import transfer
from pipeline.command import guarded
from pipeline.tables import TablesError, transfer_table
from pipeline.workspace import Workspace


def test_the_stage_writes_the_rows_of_the_table(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    transfer.main(tiny)
    workspace = Workspace.open(tiny)
    rows = schema.to_frame(transfer_table(workspace))
    # N = 20: two widths of a sparse and three drawn machines, at the one seed
    assert sorted(rows["width"]) == [18] * 4 + [20] * 4 and set(rows["sufficient_width"]) == {20}
    assert rows["exact"].tolist() == ((rows["width"] == 20) & (rows["backbone"] != "control")).tolist()
    assert rows["seed"].isna().tolist() == (rows["backbone"] == "sparse").tolist()
    assert rows["condition_number"].notna().tolist() == rows["exact"].tolist()
    assert [path.name for path in workspace.results.iterdir()] == ["transfer.json"]
    said = capsys.readouterr().out.splitlines()
    assert all(line.startswith("transfer: ") for line in said) and said[-1].startswith("transfer: 8 programs (")
    assert any("width 20 (N = 20): sparse 100 %, random 100 %, identical_heads" in line for line in said)


def stopping(error: BaseException) -> Callable[..., Iterator[dict[str, Any]]]:
    """A transfer that ends in the middle."""

    def rows(*arguments: Any) -> Iterator[dict[str, Any]]:
        yield {"task": "khop"}
        raise error

    return rows


@pytest.mark.parametrize("before", [None, '{"rows": []}'])
def test_a_stage_that_is_stopped_leaves_what_was_there(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], before: str | None
) -> None:
    path = Workspace.open(tiny).transfer
    path.parent.mkdir()
    if before:
        path.write_text(before)
    monkeypatch.setattr(transfer, "transfer", stopping(KeyboardInterrupt()))
    with pytest.raises(SystemExit) as ended:
        guarded(transfer.main)(tiny)
    assert ended.value.code == 130 and "interrupted" in capsys.readouterr().err
    assert {found.name: found.read_text() for found in path.parent.iterdir()} == (
        {"transfer.json": before} if before else {}
    )


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (CompileError("query holds values that are not finite"), "try a smaller transfer.learning_rate"),
        (MemoryError("164 conditions take 9 GB"), "transfer: 164 conditions take 9 GB"),
    ],
)
def test_what_goes_wrong_is_said_in_a_line(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, said: str
) -> None:
    monkeypatch.setattr(transfer, "transfer", stopping(error))
    with pytest.raises(SystemExit) as ended:
        transfer.main(tiny)
    assert ended.value.code == 1 and said in capsys.readouterr().err
    assert not Workspace.open(tiny).transfer.exists()


def test_a_bad_section_is_refused_with_its_place_before_any_work(
    tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny.write_text(tiny.read_text().replace("target_dim: 4", "target_dim: 5\n  seed: 1"))
    with pytest.raises(SystemExit) as ended:
        transfer.main(tiny)
    output = capsys.readouterr()
    assert ended.value.code == 2 and not output.out
    assert "transfer.seed: unknown key 'seed': did you mean 'seeds'?" in output.err
    assert list(tiny.parent.iterdir()) == [tiny]


def test_without_the_stage_the_table_is_empty(tiny: Path) -> None:
    assert transfer_table(Workspace.open(tiny)).num_rows == 0


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"rows": 3}', '{"rows": [3]}', '{"rows": [{"task": "khop"}]}']
)
def test_a_file_of_another_form_is_refused_with_what_to_run(tiny: Path, content: str) -> None:
    workspace = Workspace.open(tiny)
    workspace.results.mkdir()
    workspace.transfer.write_text(content)
    with pytest.raises(TablesError, match=r"transfer.json is no file of the stage.*--single-item --force transfer"):
        transfer_table(workspace)


def test_a_file_without_the_section_is_read_with_the_usual_one(tiny: Path) -> None:
    text = tiny.read_text()
    start, end = text.index("transfer:"), text.index("studies:")
    tiny.write_text(text[:start] + text[end:])
    usual = Workspace.open(tiny).params.transfer
    assert [task.name for task in usual.tasks] == ["dyck", "khop"] and usual.seeds == [0, 1, 2]
    assert json.loads(usual.model_dump_json())["training"]["steps"] == 1_000
