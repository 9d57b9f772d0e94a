"""The stage of the datasets: every dataset that the studies to run need, with its card."""

from functools import partial

from fut.datasets import ensure_dataset
from pipeline.artifacts import Built, ensure_all
from pipeline.command import run_command
from pipeline.workspace import PARAMS, ParamsOption, RunOption, Workspace, WorkspaceOption


def build_datasets(workspace: Workspace) -> Built:
    """Build the missing and the damaged datasets of the run, and remove those of none of its trials."""
    tasks = {cell.first.dataset_id: cell.first.task for cells in workspace.run_cells().values() for cell in cells}
    makers = {name: partial(ensure_dataset, task, workspace.datasets) for name, task in tasks.items()}
    return ensure_all("datasets", makers, workspace.datasets)


def main(params: ParamsOption = PARAMS, workspace: WorkspaceOption = None, run: RunOption = None) -> None:
    """Generate every dataset that the studies to run need."""
    build_datasets(Workspace.open(params, workspace, run))


if __name__ == "__main__":
    run_command(main)
