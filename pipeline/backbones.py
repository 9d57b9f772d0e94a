"""The stage of the backbones: every backbone that the studies to run need, with its card."""

from functools import partial

from fut.backbones.files import ensure_backbone
from pipeline.artifacts import Built, ensure_all
from pipeline.command import run_command
from pipeline.workspace import PARAMS, ParamsOption, RunOption, Workspace, WorkspaceOption


def build_backbones(workspace: Workspace) -> Built:
    """Build the missing and the damaged backbones of the run, and remove those of none of its trials."""
    recipes = {
        trial.recipe.id: trial.recipe
        for cells in workspace.run_cells().values()
        for cell in cells
        for trial in cell.trials
        if trial.source is None  # a pretrained one is read from the store, once its source has run
    }
    makers = {name: partial(ensure_backbone, recipe, workspace.backbones) for name, recipe in recipes.items()}
    return ensure_all("backbones", makers, workspace.backbones)


def main(params: ParamsOption = PARAMS, workspace: WorkspaceOption = None, run: RunOption = None) -> None:
    """Build every backbone that the studies to run need."""
    build_backbones(Workspace.open(params, workspace, run))


if __name__ == "__main__":
    run_command(main)
