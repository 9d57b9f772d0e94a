"""What the stages of datasets and backbones share: build what is missing or damaged, remove what nobody names."""

import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from fut.files import SUFFIX
from pipeline.command import writing

ASIDE = ".set_aside"  # in the names of damaged files, kept for a person to look at


class Built(NamedTuple):
    """What a stage did."""

    kept: int
    built: int
    remade: list[str]  # why each damaged file was made again
    removed: int

    def __str__(self) -> str:
        parts = [f"{self.built} built", f"{self.kept} up to date"]
        parts += [f"{len(self.remade)} damaged and made again"] if self.remade else []
        parts += [f"{self.removed} no longer needed and removed"] if self.removed else []
        return ", ".join(parts)


def ensure_all(what: str, makers: Mapping[str, Callable[[], object]], folder: Path) -> Built:
    """See that a folder holds exactly the artifacts of a run, each good.

    Args:
        what: the artifacts' name in the plural, for the progress line.
        makers: by the artifact's id, a call that reads it or makes it, and warns of a damaged file.
        folder: of files ``ID.safetensors`` and ``ID.json``; made if missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    removed = _remove_others(folder, set(makers))
    kept = built = 0
    remade: list[str] = []
    console = Console(stderr=True)
    with console.status(f"{what}: 0 of {len(makers)}") as line:
        for count, (name, make) in enumerate(makers.items(), start=1):
            there = (folder / f"{name}{SUFFIX}").is_file()
            with warnings.catch_warnings(record=True) as noticed:
                warnings.simplefilter("always", UserWarning)
                with writing(folder):
                    make()
            damaged = [str(warning.message) for warning in noticed if issubclass(warning.category, UserWarning)]
            for message in damaged:
                print(f"{what}: {message}", file=sys.stderr)
            kept += there and not damaged
            built += not there
            remade += damaged
            line.update(f"{what}: {count} of {len(makers)}")
    done = Built(kept, built, remade, removed)
    print(f"{what}: {done} ({folder})")
    return done


def _remove_others(folder: Path, wanted: set[str]) -> int:
    """Remove the artifacts that no recipe names, cards without arrays and half-written files; files set aside stay."""
    others = [
        path
        for path in folder.iterdir()
        if path.suffix in {SUFFIX, ".json", ".tmp"} and path.stem not in wanted and ASIDE not in path.name
    ]
    for path in others:
        path.unlink()
    return sum(path.suffix == SUFFIX for path in others)
