"""Where everything lies: absolute paths, so that no process depends on its working directory."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

import typer

from pipeline.grid import Cell
from pipeline.params import Params, load_or_exit, refuse
from pipeline.store import Store

ParamsOption = Annotated[Path, typer.Option("--params", help="the configuration")]
WorkspaceOption = Annotated[
    Path | None,
    typer.Option(
        "--workspace", help="folder that receives artifacts and results; default: the one of the configuration"
    ),
]
RunOption = Annotated[
    list[str] | None, typer.Option("--run", help="a study to run in the place of those in `run`; can be repeated")
]
PARAMS = Path("params.yaml")


@dataclass(frozen=True)
class Workspace:
    """A checked configuration and the folders that belong to it."""

    params: Params
    params_path: Path
    root: Path

    @classmethod
    def open(cls, params: Path = PARAMS, workspace: Path | None = None, run: list[str] | None = None) -> Self:
        """The workspace of a command line; faults go to standard error, with exit status 2.

        Args:
            params: the configuration's file.
            workspace: the folder of artifacts and results; None: the configuration's.
            run: studies to run in the place of the configuration's; None or empty: those.
        """
        checked = load_or_exit(params)
        if run:
            try:
                checked = checked.with_run(run)
            except ValueError as error:
                refuse(str(error))
        params = params.absolute()
        return cls(checked, params, (workspace or params.parent).absolute())

    @property
    def store(self) -> Store:
        """The trial store; a relative path starts at the configuration's folder."""
        return Store(self.params_path.parent / Path(self.params.store).expanduser())

    @property
    def datasets(self) -> Path:
        """Folder of the datasets and their cards."""
        return self.root / "artifacts" / "datasets"

    @property
    def backbones(self) -> Path:
        """Folder of the backbones and their cards."""
        return self.root / "artifacts" / "backbones"

    @property
    def results(self) -> Path:
        """Folder of everything that is made of the trials."""
        return self.root / "results"

    @property
    def sweeps(self) -> Path:
        """Folder of the sweeps' completion files."""
        return self.results / "sweeps"

    @property
    def transfer(self) -> Path:
        """File of the rows of the table `transfer`."""
        return self.results / "transfer.json"

    @property
    def tables(self) -> Path:
        """Folder of the tables."""
        return self.results / "tables"

    @property
    def figures(self) -> Path:
        """Folder of the pictures."""
        return self.results / "figures"

    @property
    def metrics(self) -> Path:
        """File of the metrics that DVC shows."""
        return self.results / "metrics.json"

    def sweep(self, study: str) -> Path:
        """File that a study's sweep leaves when it is complete."""
        return self.sweeps / f"{study}.json"

    def run_cells(self) -> dict[str, list[Cell]]:
        """The cells of every study to run, by its name."""
        return {name: self.params.cells(name) for name in self.params.run}
