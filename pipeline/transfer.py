"""The stage of the transfer: trained targets, compiled into machines of several kinds and widths."""

import json
import sys

from fut.compiler import CompileError
from fut.files import write_atomically
from fut.transfer import transfer
from pipeline.command import run_command
from pipeline.workspace import PARAMS, ParamsOption, Workspace, WorkspaceOption


def run_transfer(workspace: Workspace) -> None:
    """Train the targets, compile them, say how each machine agrees with its target, and write the rows of the table.

    Raises:
        CompileError: the training of a target left weights that are not finite.
        MemoryError: a machine needs more memory than there is.
    """
    import torch  # seconds to import

    torch.set_num_threads(1)  # the same targets however many cores there are; so small, they train faster too
    rows = list(transfer(workspace.params.transfer, lambda text: print(f"transfer: {text}", flush=True)))
    text = json.dumps({"rows": rows}, indent=1, allow_nan=False)
    write_atomically(workspace.transfer, f"{text}\n".encode())
    print(f"transfer: {len(rows)} programs ({workspace.transfer})")


def main(params: ParamsOption = PARAMS, workspace: WorkspaceOption = None) -> None:
    """Train a target for each task, and compile it into machines below, at and above its sufficient width."""
    opened = Workspace.open(params, workspace)
    try:
        run_transfer(opened)
    except CompileError as error:
        print(f"transfer: {error}; try a smaller transfer.learning_rate", file=sys.stderr)
        raise SystemExit(1) from error
    except MemoryError as error:
        print(f"transfer: {error}", file=sys.stderr)
        raise SystemExit(1) from error


if __name__ == "__main__":
    run_command(main)
