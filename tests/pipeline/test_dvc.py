"""dvc.yaml says what the stages really read, write and run: what is not declared would not run again after a change."""

import ast
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import pipeline.sweep
import pipeline.workspace
from fut.trial import run_trial
from pipeline.params import Params, load_params
from pipeline.workspace import Workspace

ROOT = Path(__file__).parents[2]
STAGES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
PACKAGES = ("fut", "pipeline", "analysis")


def targets(stage: str, *kinds: str) -> list[str]:
    """What a stage declares, such as its outs; an entry with options is a mapping of one key."""
    entries = [entry for kind in kinds for entry in STAGES[stage].get(kind, [])]
    return [next(iter(entry)) if isinstance(entry, dict) else entry for entry in entries]


def outs(stage: str) -> list[str]:
    """Everything that a stage writes."""
    return targets(stage, "outs", "metrics", "plots")


def module_of(stage: str) -> str:
    """The module that a stage runs."""
    found = re.fullmatch(r"\.venv/bin/python -m (pipeline\.[a-z]+)( \$\{item\.study\})?", STAGES[stage]["cmd"])
    assert found, f"the command of {stage} does not name the project's own interpreter"
    return found[1]


def within(path: str, folder: str) -> bool:
    """Whether a path is a folder or lies in it."""
    return Path(path) == Path(folder) or Path(folder) in Path(path).parents


@pytest.mark.parametrize("stage", STAGES)
def test_a_command_names_the_projects_own_interpreter_and_a_module(stage: str) -> None:
    assert hasattr(importlib.import_module(module_of(stage)), "main")


def test_dvc_itself_reads_the_stages_one_sweep_a_study(tmp_path: Path) -> None:
    shutil.copy(ROOT / "dvc.yaml", tmp_path)
    shutil.copy(ROOT / "tests" / "params" / "tiny.yaml", tmp_path / "params.yaml")
    shutil.copytree(ROOT / ".dvc", tmp_path / ".dvc", ignore=shutil.ignore_patterns("cache", "tmp", "config.local"))
    (tmp_path / ".dvc" / "config.local").write_text("[core]\n    no_scm = true\n")
    environment = os.environ | {"DVC_SITE_CACHE_DIR": str(tmp_path / "site"), "DVC_NO_ANALYTICS": "true"}
    listed = subprocess.run(
        [sys.executable, "-m", "dvc", "stage", "list", "--name-only"],
        cwd=tmp_path, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert listed.returncode == 0, listed.stderr
    assert sorted(listed.stdout.split()) == [
        "backbones", "datasets", "figures", "sweep@reprogrammed", "sweep@simulated", "sweep@tokens", "tables",
        "transfer",
    ]  # fmt: skip


# Parameters.


def test_every_declared_parameter_is_one() -> None:
    params = load_params(ROOT / "params.yaml")
    for stage in STAGES:
        for key in targets(stage, "params"):
            name, *inner = key.split(".")
            assert name in Params.model_fields, f"{stage} declares {key}"
            assert not inner or inner == ["${item", "study}"], f"{stage} declares {key}"
    assert set(params.run) <= params.studies.keys()


@pytest.mark.parametrize("path", ["params.yaml", "tests/params/tiny.yaml"])
def test_every_declared_parameter_stands_in_the_file(path: str) -> None:
    """DVC knows no defaults of ours: it refuses a stage whose parameter is not written down."""
    written = yaml.safe_load((ROOT / path).read_text())
    assert {key.split(".")[0] for stage in STAGES for key in targets(stage, "params")} <= written.keys()


class Recorder(Params):
    """Params that note which of them are read."""

    def __getattribute__(self, name: str) -> Any:
        if name in Params.model_fields:
            READ.add(name)
        return super().__getattribute__(name)


class Studies(dict[str, Any]):
    """Studies that note which of them are read."""

    def __getitem__(self, name: str) -> Any:
        READ.add(f"studies.{name}")
        return super().__getitem__(name)


READ: set[str] = set()


@pytest.fixture
def read(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """The parameters that each stage reads when it runs, in order, on a small study; `sweep` is that of `tiny`."""
    monkeypatch.setattr(pipeline.sweep.ray, "init", lambda **options: None)
    monkeypatch.setattr(pipeline.sweep.ray, "shutdown", lambda: None)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    tiny.write_text(tiny.read_text().replace("{steps: 100}", "{steps: 10, steps_per_epoch: 5, warmup_steps: 2}"))
    workspace = Workspace.open(tiny)
    store = workspace.store
    store.create()

    class Tuner:
        """In the place of Tune's: trains what the sweep would, here."""

        def __init__(self, *arguments: Any, **options: Any) -> None: ...

        def fit(self) -> None:
            for cell in workspace.params.cells("tiny"):
                for trial in cell.trials:
                    store.write(
                        run_trial(
                            trial,
                            workspace.datasets,
                            workspace.backbones,
                            store.program_path(trial.id),
                            programs=store.program_path,
                        )
                    )

    monkeypatch.setattr(pipeline.sweep.tune, "Tuner", Tuner)

    def load(path: Path) -> Params:
        params = load_params(path)
        values = {name: getattr(params, name) for name in Params.model_fields}
        made = Recorder.model_construct(**{**values, "studies": Studies(params.studies)})
        READ.clear()
        return made

    monkeypatch.setattr(pipeline.workspace, "load_or_exit", load)
    found = {}
    for stage in STAGES:
        arguments = {"study": "tiny"} if stage == "sweep" else {}
        try:
            importlib.import_module(module_of(stage)).main(**arguments, params=tiny)
        except SystemExit as exit_:
            assert not exit_.code, f"{stage}: {exit_.code}"
        found[stage] = set(READ)
    return found


def test_every_parameter_that_a_stage_reads_is_declared(read: dict[str, set[str]]) -> None:
    for stage, names in read.items():
        declared = {key.replace("${item.study}", "tiny") for key in targets(stage, "params")}
        whole = {key for key in declared if "." not in key}
        inner = {name for name in names if name.startswith("studies.")}
        assert names - inner - {"studies"} <= whole, f"{stage} reads undeclared parameters"
        assert inner <= declared or "studies" in whole, f"{stage} reads undeclared studies"
        if stage != "sweep":  # a stage that goes over all studies reads each by its name
            assert "studies" not in names or "studies" in whole, f"{stage} reads undeclared studies"


def test_a_stage_declares_no_parameter_that_it_does_not_read(read: dict[str, set[str]]) -> None:
    for stage, names in read.items():
        declared = {key.replace("${item.study}", "tiny") for key in targets(stage, "params")}
        assert declared <= names, f"{stage} would run again for nothing"


def test_the_sweep_of_a_study_depends_on_no_other_study(tiny: Path, finish: Any, capsys: Any) -> None:
    workspace = Workspace.open(tiny)
    workspace.store.create()
    for cell in workspace.params.cells("tiny"):
        for trial in cell.trials:
            finish(workspace.store, trial)
    completions = []
    for seeds in ("[0]", "[5, 6]"):
        own, other = tiny.read_text().split("  other:")
        tiny.write_text(f"{own}  other:" + re.sub(r"seeds: \[.*?\]", f"seeds: {seeds}", other))
        with pytest.raises(SystemExit) as exit_:
            pipeline.sweep.main("tiny", tiny)
        assert exit_.value.code == 0
        completions.append(workspace.sweep("tiny").read_bytes())
    assert completions[0] == completions[1]


# Code.


def imported(module: str, seen: set[str]) -> set[str]:
    """The project's modules that a module needs, directly or not."""
    path = ROOT.joinpath(*module.split("."))
    source = next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)
    if source is None or module in seen or not module.startswith(PACKAGES):
        return seen
    seen.add(module)
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                imported(alias.name, seen)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                imported(name, seen)
    return seen


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_depends_on_the_code_that_it_runs(stage: str) -> None:
    packages = {module.split(".")[0] for module in imported(module_of(stage), set())}
    assert packages <= set(targets(stage, "deps"))


# Files.


def test_every_dependency_is_code_or_made_by_another_stage() -> None:
    for stage in STAGES:
        others = [out for other in STAGES if other != stage for out in outs(other)]
        for dependency in targets(stage, "deps"):
            made = any(within(out, dependency) or within(dependency, out) for out in others)
            assert made or (dependency in PACKAGES and (ROOT / dependency).is_dir()), f"{stage} needs {dependency}"


def test_the_stages_read_what_the_ones_before_them_write() -> None:
    order = [("sweep", "datasets"), ("sweep", "backbones"), ("tables", "sweep"), ("tables", "transfer")]
    order += [("figures", "tables")]
    for later, earlier in order:
        (out, *_) = outs(earlier)
        assert any(within(out, dependency) for dependency in targets(later, "deps")), f"{later} after {earlier}"


def test_all_outs_lie_under_artifacts_or_results_and_none_holds_the_store() -> None:
    store = load_params(ROOT / "params.yaml").store
    for stage in STAGES:
        assert outs(stage)
        for out in outs(stage):
            assert within(out, "artifacts") or within(out, "results"), f"{stage} writes {out}"
            assert not within(store, out), f"dvc would delete the trial store with {out}"


def test_a_stage_writes_its_outs_and_nothing_else_there(read: dict[str, set[str]], tiny: Path) -> None:
    made = {str(path.relative_to(tiny.parent)) for path in tiny.parent.rglob("*") if path.is_file()}
    made = {path for path in made if not within(path, "store") and path != "params.yaml"}
    declared = [out.replace("${item.study}", "tiny") for stage in STAGES for out in outs(stage)]
    assert all(any(within(path, out) for path in made) for out in declared)
    assert [path for path in made if not any(within(path, out) for out in declared)] == []
    assert json.loads((tiny.parent / "results" / "metrics.json").read_text()).keys() == {"tiny"}


def test_git_ignores_every_out_and_the_store_but_not_the_lock(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    shutil.copy(ROOT / ".gitignore", tmp_path)
    store = load_params(ROOT / "params.yaml").store
    made = [out.replace("${item.study}", "width") for stage in STAGES for out in outs(stage)]
    made += [f"{store}/store.json", f"{store}/trials/ab/abc.json", "quick/results/tables/trials.csv", ".venv/ready"]
    made += [".dvc/config.local", ".dvc/cache/files", ".dvc/tmp/lock", "wandb/offline-run-1/run.wandb"]
    kept = ["dvc.lock", "dvc.yaml", "params.yaml", ".dvc/config", "fut/trial.py", "tests/params/tiny.yaml"]
    for path in (*made, *kept):
        ignored = subprocess.run(["git", "check-ignore", "--quiet", path], cwd=tmp_path).returncode == 0
        assert ignored == (path in made), path
