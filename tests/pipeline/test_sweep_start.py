"""How a sweep starts, and what ends it before any trial has run: addresses, bad params, a small machine, no store."""

import os
import re
from pathlib import Path
from typing import Any

import pytest

import pipeline.sweep
from pipeline.sweep import main


@pytest.mark.parametrize("address", ["local", "192.0.2.1:6379"])
def test_ray_gets_a_cluster_of_its_own_unless_an_address_is_configured(
    address: str, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.write_text(f"ray_address: {address}\n" + tiny.read_text())
    given: dict[str, Any] = {}

    def init(**options: Any) -> None:
        given.update(options)
        raise ConnectionError("no cluster in this test")

    monkeypatch.setattr(pipeline.sweep.ray, "init", init)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    with pytest.raises(ConnectionError):
        main("tiny", tiny)
    assert given["address"] == address
    assert ("num_cpus" in given, "object_store_memory" in given) == (address == "local",) * 2
    assert os.environ["RAY_AUTH_MODE"] == "disabled"


def test_bad_params_and_unknown_studies_end_with_status_2_and_create_nothing(
    tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main("tinny", tiny)
    assert exit_.value.code == 2
    assert "no study 'tinny'" in capsys.readouterr().err
    tiny.write_text(tiny.read_text().replace("width: [8, 12]", "widht: [8, 12]").replace("seeds: [0]", "seeds: 0"))
    with pytest.raises(SystemExit) as exit_:
        main("tiny", tiny)
    assert exit_.value.code == 2
    errors = capsys.readouterr().err
    assert "studies.tiny.grid.widht" in errors and "studies.other.seeds" in errors
    assert [path.name for path in tiny.parent.iterdir()] == ["params.yaml"]


def test_a_store_that_cannot_be_made_is_named(tiny: Path) -> None:
    (tiny.parent / "store").write_text("a file, not a folder")
    with pytest.raises(SystemExit, match=re.escape(str(tiny.parent / "store"))):
        main("tiny", tiny)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("cpus_per_trial: 1000", "cpus_per_trial: 1000, and this machine has [0-9]+; lower it"),
        ("gpus_per_trial: 64", "gpus_per_trial: 64, and this machine has [0-9]+; lower it"),
    ],
)
def test_what_this_machine_has_not_is_refused_and_not_waited_for(
    asked: str, words: str, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny.write_text(f"{asked}\n" + tiny.read_text())
    with pytest.raises(SystemExit) as exit_:
        main("tiny", tiny)
    assert exit_.value.code == 2
    assert re.fullmatch(words, capsys.readouterr().err.strip())
    assert [path.name for path in tiny.parent.iterdir()] == ["params.yaml"]
