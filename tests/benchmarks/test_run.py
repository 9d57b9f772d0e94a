"""The command: it measures what it is told, writes it down, compares, and never fails because something is slow."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer import Typer
from typer.testing import CliRunner, Result

from benchmarks import __main__ as command
from benchmarks import page
from benchmarks.figures import Figure


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs the command with subjects that all take as many seconds as it is told."""
    monkeypatch.setattr(page, "RECORDED", tmp_path / "recorded")
    monkeypatch.setattr(page, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(page, "section", lambda report: "the figures\n")
    page.PAGE.write_text(f"{page.BEGIN}\n{page.END}\n")
    app = Typer()
    app.command()(command.main)

    def fail() -> None:
        raise RuntimeError("the reason")

    def run(seconds: float, *arguments: str, failing: str = "none") -> Result:
        figure = Figure(row="work", column="time", unit="s", samples=[seconds], better="lower")
        good, bad = (SimpleNamespace(ABOUT="about", measure=work) for work in (lambda: [figure], fail))
        importing = SimpleNamespace(import_module=lambda name: bad if name == f"benchmarks.{failing}" else good)
        monkeypatch.setattr(command, "importlib", importing)
        return CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "out.json")])

    return run


def content(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def test_a_run_writes_the_figures_of_every_subject_with_machine_versions_and_load(
    run: Callable[..., Result], tmp_path: Path
) -> None:
    assert run(1.0).exit_code == 0
    written = content(tmp_path / "out.json")
    assert list(written["subjects"]) == [subject.value for subject in command.Subject]
    assert written["machine"]["cores"] >= 1 and "torch" in written["versions"] and len(written["load"]) == 2


def test_a_second_run_names_what_got_worse_and_succeeds(run: Callable[..., Result], capfd: Any) -> None:
    run(1.0)
    capfd.readouterr()
    second = run(2.0, "dvc")
    text = capfd.readouterr().out + second.output
    assert second.exit_code == 0
    assert "dvc: work, time: 2 s, was 1: worse by 100%" in text and "sweep: work" not in text


def test_a_run_that_is_as_fast_says_so(run: Callable[..., Result], capfd: Any) -> None:
    run(1.0)
    assert "nothing got slower beyond noise" in run(1.1).output + capfd.readouterr().out


def test_recorded_figures_are_compared_with_before_those_of_the_last_run(
    run: Callable[..., Result], capfd: Any
) -> None:
    assert run(1.0, "--record").exit_code == 0
    assert "the figures" in page.PAGE.read_text()
    run(5.0)
    capfd.readouterr()
    assert "5 s, was 1" in run(5.0).output + capfd.readouterr().out


def test_figures_that_cannot_be_read_are_named_and_replaced(
    run: Callable[..., Result], tmp_path: Path, capfd: Any
) -> None:
    (tmp_path / "out.json").write_text("{}")
    first = run(1.0)
    assert first.exit_code == 0 and "out.json cannot be read" in first.output + capfd.readouterr().out
    assert len(content(tmp_path / "out.json")["subjects"]) == len(command.Subject)


def test_figures_of_another_kind_of_machine_are_not_compared_with(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    run(1.0)
    monkeypatch.setattr(command, "kind", lambda here: "another")
    capfd.readouterr()
    assert "no figures of this kind of machine" in run(5.0).output + capfd.readouterr().out


def test_a_subject_that_fails_makes_the_command_fail_and_loses_no_other(
    run: Callable[..., Result], tmp_path: Path, capfd: Any
) -> None:
    ended = run(1.0, "--record", failing="sweep")
    assert ended.exit_code == 1 and "RuntimeError: the reason" in ended.output + capfd.readouterr().out
    assert content(tmp_path / "out.json")["subjects"].keys() == {*command.Subject} - {"sweep"}
    assert not page.RECORDED.exists()


def test_a_part_of_the_subjects_is_not_recorded(run: Callable[..., Result]) -> None:
    refused = run(1.0, "step", "--record")
    assert refused.exit_code == 2 and not page.RECORDED.exists()


def test_an_unknown_subject_is_refused_with_the_known_ones(run: Callable[..., Result]) -> None:
    refused = run(1.0, "steps")
    assert refused.exit_code == 2 and "'generators'" in refused.output
