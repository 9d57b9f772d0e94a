"""The command `fut`: what theory says of a shape, whether it is so, and machines that run compiled programs.

Commands that need torch import it themselves: it takes seconds, which the others do without.
"""

import json
import os
import sys
from math import log10
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from fut.backbones import BACKBONES, Shape, build
from fut.backbones.base import Distribution
from fut.backbones.control import ControlName
from fut.compiler import CompileError, compile_program, draw_target, require_memory
from fut.files import SUFFIX
from fut.theory import Layout, literal_bound, lower_bound, sparse_width, sufficient_width

app = typer.Typer(add_completion=False, no_args_is_help=True, help="The theory of fixed universal transformers.")
Heads = Annotated[int, typer.Option(min=1, help="heads H of a layer")]
Layers = Annotated[int, typer.Option(min=1, help="layers L")]
TargetDim = Annotated[int, typer.Option(min=1, help="dimension d of the target, also its k and p")]
Residual = Annotated[bool, typer.Option("--residual", help="with residual connections")]
Tied = Annotated[bool, typer.Option("--tied", help="all layers of the backbone are the same")]
Json = Annotated[bool, typer.Option("--json", help="print JSON")]
DIGITS = 100  # of widths; more are astronomical, and soon not even printed
LAYOUTS: tuple[Layout, ...] = ("attention", "residual", "tied")


@app.command()
def width(
    heads: Heads, layers: Layers, target_dim: TargetDim, residual: Residual = False, tied: Tied = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Print the widths that theory names for a target whose queries, keys and outputs have its own dimension."""
    d = target_dim
    _refuse_astronomical(heads, layers, d)
    fixed = sufficient_width(heads, layers, d, d, residual, tied)
    compiled = sufficient_width(heads, layers, d, d, residual, tied, "compiled", d)
    trees = {layout: sparse_width(layout, heads, layers, d, d) for layout in LAYOUTS}
    if as_json:
        values = {
            "sufficient_width": fixed,
            "sufficient_width_compiled": compiled,
            "sparse_width": trees,
            "lower_bound": lower_bound(heads, layers),
            "literal_bound": literal_bound(heads, layers, d),
        }
        print(json.dumps(values))
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("width")
    table.add_column("slots", justify="right", overflow="fold")
    table.add_row("sufficient, the unembedding fixed: N", f"{fixed:,}")
    table.add_row("sufficient, the unembedding compiled too: N_EU", f"{compiled:,}")
    for layout, slots in trees.items():
        table.add_row(f"sparse tree, layout {layout}", f"{slots:,}")
    table.add_row("lower bound of the paper, read as H^L / 2", f"{lower_bound(heads, layers):,g}")
    table.add_row("H · L · d, as its summaries print the upper bound", f"{literal_bound(heads, layers, d):,}")
    Console(soft_wrap=True).print(table)


@app.command()
def verify(
    backbone: Annotated[Literal["random", "sparse", "control"], typer.Option(help="what is frozen")],
    heads: Heads,
    layers: Layers,
    target_dim: TargetDim,
    width: Annotated[
        int | None, typer.Option(min=1, help="width m; default: the sufficient one, twice that for controls")
    ] = None,
    residual: Residual = False,
    tied: Tied = False,
    distribution: Annotated[
        Distribution | None, typer.Option(help="of a random backbone's or a control's entries; default: gaussian")
    ] = None,
    control: Annotated[
        ControlName | None, typer.Option(help="which control, with --backbone control; default: identical_heads")
    ] = None,
    compile_unembedding: Annotated[
        bool, typer.Option("--compile-unembedding", help="U belongs to the program, not to the machine")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="of target and backbone")] = 0,
    as_json: Json = False,
) -> None:
    """Draw a target and a backbone, compile, and compare their outputs on fresh inputs.

    Exit status 0 if they agree but for rounding, 1 if they do not, 2 if the question makes no sense.
    """
    d = target_dim
    _refuse_astronomical(heads, layers, d, width or 1)
    if distribution and backbone == "sparse":
        _refuse("--distribution: a sparse backbone's weights are not drawn; leave it out, or take --backbone random")
    if control and backbone != "control":
        _refuse(f"--control: says nothing of a {backbone} backbone; leave it out, or take --backbone control")
    layout: Layout = "tied" if tied else "residual" if residual else "attention"
    enough = sufficient_width(heads, layers, d, d, residual, tied, "compiled" if compile_unembedding else "fixed", d)
    usual = {"random": enough, "sparse": sparse_width(layout, heads, layers, d, d), "control": 2 * enough}[backbone]
    own: dict[str, Any] = {"layout": layout} if backbone == "sparse" else {"distribution": distribution or "gaussian"}
    if backbone == "control":
        own["control"] = control or "identical_heads"
    name = f"{backbone} ({', '.join(own.values())})"
    config = BACKBONES[backbone].model_validate(own if backbone == "sparse" else {**own, "tied": tied})
    shape = Shape(heads, layers, width or usual, False, d, d, not compile_unembedding)
    if problems := config.problems(shape):
        _refuse("\n".join(problems))
    recipe = config.recipe(shape, seed)
    try:
        require_memory(recipe, d, d, residual, compile_unembedding)
        target = draw_target(heads, layers, d, seed, residual=residual, tied=tied and residual)  # else any will do
        _, report = compile_program(target, build(recipe), compile_unembedding)
    except (CompileError, MemoryError) as error:
        _refuse(str(error))
    values = {
        "sufficient_width": report.sufficient_width,
        "width": report.width,
        "margin": report.margin,
        "condition_number": report.condition_number if report.margin else None,
        "relative_error": report.relative_error,
        "exact": report.exact,
    }
    if as_json:
        print(json.dumps(values))
    else:
        for key, value in {"backbone": name, **values}.items():
            print(f"{key:18}{value:.3g}" if isinstance(value, float) else f"{key:18}{value}")
        print(report.words)
    raise typer.Exit(0 if report.exact else 1)


@app.command("compile")
def compile_target(
    target: Annotated[Path, typer.Option(help="the target's file")],
    backbone: Annotated[Path, typer.Option(help="the backbone's file, such as one of artifacts/backbones")],
    out: Annotated[Path, typer.Option(help="where to write the program, a name in .safetensors")],
    compile_unembedding: Annotated[
        bool, typer.Option("--compile-unembedding", help="U belongs to the program, not to the machine")
    ] = False,
) -> None:
    """Compile a target into a backbone, and write the program.

    Exit status 0 if it is exact, 1 if it is that of least squares only, 2 if it cannot be compiled.
    """
    from fut.machine import FileError, load_backbone, load_target, save_compiled

    if out.suffix != SUFFIX:
        _refuse(f"{out}: a program is a safetensors file; give a name in {SUFFIX}")
    if os.path.isdir(out):
        _refuse(f"{out}: is a folder; give the name of a file")
    if os.path.realpath(out) in map(os.path.realpath, (target, backbone)):
        _refuse(f"{out}: is read here, and would be overwritten; give another name")
    try:
        wanted, task = load_target(target)
        frozen = load_backbone(backbone)
        program, report = compile_program(wanted, frozen, compile_unembedding)
    except (FileError, CompileError, MemoryError) as error:
        _refuse(str(error))
    try:
        save_compiled(out, program, wanted, task, frozen)
    except OSError as error:
        _refuse(f"{out}: cannot be written ({error.strerror})")
    print(f"{out}: {report.words}")
    raise typer.Exit(0 if report.exact else 1)


@app.command()
def run(
    texts: Annotated[list[str], typer.Argument(help="what to ask, in the language of the program's task")],
    backbone: Annotated[Path, typer.Option(help="the backbone's file")],
    program: Annotated[Path, typer.Option(help="the compiled program's file")],
) -> None:
    """Load a program into a backbone and ask it.

    A `dyck` program says of a string whether it is balanced, a `khop` program answers at every character.
    """
    from fut.machine import Machine

    try:
        machine = Machine.load(backbone, program)
        answers = [machine.ask(text) for text in texts]
    except ValueError as error:  # also FileError and ProgramError
        _refuse(str(error))
    for text, given in zip(texts, answers, strict=True):
        words = ("" if len(given[0].word) == 1 else " ").join(answer.word for answer in given)
        print(f"{text}  {words}  ({' '.join(f'{100 * answer.confidence:.1f} %' for answer in given)})")


@app.command()
def swap(
    out: Annotated[Path, typer.Option(help="folder that receives targets, machine and programs")] = Path("machine"),
    seed: Annotated[int, typer.Option(min=0, help="of the targets' training and of the machine")] = 0,
) -> None:
    """One machine, two programs: train a dyck and a khop target, compile both into one backbone, and run them there.

    Exit status 0 if each time every answer is the target's.
    """
    from fut.swap import swap as run_swap

    try:
        found = run_swap(out, seed, print)
    except OSError as error:
        _refuse(f"{out}: cannot be written ({error.strerror}); give another folder by --out")
    for each in found:
        print(
            f"{each.task}: target right at {100 * each.accuracy:.1f} % of test, machine agrees with it at "
            f"{100 * each.agreement:.4g} % (float64), {100 * each.agreement_single:.4g} % (float32); "
            f"{each.report.words}; digest of the machine {each.backbone_digest[:16]}…"
        )
    for each, text in zip(found, ("'(()())' '())('", "abacab"), strict=True):
        print(f"fut run --backbone {each.machine} --program {each.program} {text}")
    raise typer.Exit(0 if all(each.agreement == 1 for each in found) else 1)


def _refuse_astronomical(heads: int, layers: int, target_dim: int, width: int = 1) -> None:
    """Numbers that would take seconds to compute and pages to print; the terms of a logarithm show them at once."""
    layers_shown = min(layers, 10 * DIGITS)  # as many as need no more showing
    if layers_shown * log10(heads + 1) + log10(target_dim) > DIGITS or log10(width) > DIGITS:
        _refuse(f"a width of more than {DIGITS} digits: take fewer heads or layers, or smaller dimensions")


def _refuse(message: str) -> NoReturn:
    print(message, file=sys.stderr)
    raise typer.Exit(2)


if __name__ == "__main__":
    app()
