"""What names things: digests of configurations, of tensors and of the code that determines a result."""

import ast
import hashlib
import importlib.util
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

PACKAGE = "fut"
# The registries only look parts up: a trial depends on the parts it uses, which its digest names one by one.
REGISTRIES = frozenset({"fut", "fut.tasks", "fut.backbones", "fut.starts"})


def canonical_json(value: Any) -> str:
    """The one JSON text of a value: keys sorted, no spaces, NaN refused.

    >>> canonical_json({"b": 1, "a": [0.01, None]})
    '{"a":[0.01,null],"b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def digest(value: Any) -> str:
    """SHA-256, in hexadecimal, of the canonical JSON of a value."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def array_digest(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of named arrays: names, types, shapes and little-endian contents, in the order of the names."""
    state = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        state.update(canonical_json([name, array.dtype.str, list(array.shape)]).encode())
        state.update(array.tobytes())
    return state.hexdigest()


def code_digest(modules: Iterable[str]) -> str:
    """SHA-256 of the code of modules and of every `fut` module that they import, directly or not.

    It sees syntax trees only: docstrings, comments and layout change nothing.  The registries (`fut.tasks`,
    `fut.backbones`, `fut.starts`) are left out, so that adding a task or a backbone leaves the others' digests alone.

    Args:
        modules: full module names, such as ``"fut.trial"``.
    """
    return digest({module: _parsed(module)[0] for module in reached(modules)})


def reached(modules: Iterable[str]) -> set[str]:
    """The modules and every `fut` module that they import, directly or not, without the registries."""
    found: set[str] = set()
    pending = list(modules)
    while pending:
        module = pending.pop()
        if module not in found and module not in REGISTRIES:
            found.add(module)
            pending.extend(_parsed(module)[1])
    return found


@cache
def _parsed(module: str) -> tuple[str, frozenset[str]]:
    """The digest of a module's syntax tree, and the modules of the package that it imports."""
    source = _source(module)
    if source is None:
        raise ModuleNotFoundError(f"no module named {module!r}")
    tree = ast.parse(source.read_text(encoding="utf-8"))
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported.update({node.module, *(f"{node.module}.{alias.name}" for alias in node.names)})
    return digest(_plain(tree)), frozenset(name for name in imported if _source(name))


def _source(module: str) -> Path | None:
    """The file of a module of the package, found without importing it; None for any other name."""
    package, *inner = module.split(".")
    if package != PACKAGE:
        return None
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    place = Path(spec.origin).parent.joinpath(*inner)
    return next((file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()), None)


def _plain(node: Any) -> Any:
    """A syntax tree as plain data, the same for every Python version: no positions, docstrings or empty fields."""
    if isinstance(node, list):
        return [_plain(item) for item in node]
    if not isinstance(node, ast.AST):
        return node if isinstance(node, str | int | float | bool | None) else repr(node)
    fields = dict(ast.iter_fields(node))
    match node:
        case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            documented = ast.get_docstring(node, clean=False) is not None
            fields["body"] = fields["body"][documented:]
    kept = {name: _plain(value) for name, value in fields.items() if value is not None and value != []}
    if isinstance(node, ast.Constant):
        kept = {"value": [type(node.value).__name__, repr(node.value)]}
    return {"node": type(node).__name__, **kept}
