"""What a digest sees and what it must not see."""

import sys
import textwrap

import numpy as np
import pytest

from fut import digest
from fut.digest import array_digest, canonical_json, code_digest


def test_array_digest_sees_names_types_shapes_and_contents() -> None:
    a = {"x": np.arange(4, dtype=np.int32)}
    different = [
        {"y": np.arange(4, dtype=np.int32)},
        {"x": np.arange(4, dtype=np.int64)},
        {"x": np.arange(4, dtype=np.int32).reshape(2, 2)},
        {"x": np.array([0, 1, 2, 4], dtype=np.int32)},
    ]
    assert len({array_digest(a), *map(array_digest, different)}) == 5
    assert array_digest(a) == array_digest({"x": np.arange(8, dtype=np.int32)[:4]})
    assert array_digest(a) == array_digest({"x": np.arange(4, dtype=">i4")})  # contents, not the machine's byte order


def test_canonical_json_refuses_nan() -> None:
    with pytest.raises(ValueError):
        canonical_json({"x": float("nan")})


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package that stands in for `fut`: one module that imports another, and one apart."""

    def write(**sources: str) -> None:
        for name, text in sources.items():
            (tmp_path / "toy" / f"{name}.py").write_text(textwrap.dedent(text))
        digest._parsed.cache_clear()

    (tmp_path / "toy").mkdir()
    write(__init__="", a="from toy.b import f\nx = f(1)\n", b="def f(n):\n    return n + 1\n", c="y = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(digest, "PACKAGE", "toy")
    yield write
    digest._parsed.cache_clear()
    for name in [name for name in sys.modules if name.split(".")[0] == "toy"]:
        del sys.modules[name]


def test_code_digest_ignores_comments_docstrings_and_layout(package) -> None:
    before = code_digest(["toy.a"])
    package(b='"""Said."""\n\n\ndef f(n):  # why\n    """Adds one."""\n    return (n +\n            1)\n')
    assert code_digest(["toy.a"]) == before


def test_code_digest_sees_changes_in_what_is_imported_and_in_nothing_else(package) -> None:
    before = code_digest(["toy.a"])
    package(c="y = 2\n")
    assert code_digest(["toy.a"]) == before
    package(b="def f(n):\n    return n + 2\n")
    assert code_digest(["toy.a"]) != before


@pytest.mark.parametrize(
    "one, other",
    [
        ("x = 1", "x = True"),
        ("x = 1", "x = 1.0"),
        ("x = '1'", "x = 1"),
        ("x = a - b", "x = b - a"),
        ("x = 'a'", "x = b'a'"),
    ],
)
def test_code_digest_tells_constants_apart(package, one: str, other: str) -> None:
    package(c=one)
    before = code_digest(["toy.c"])
    package(c=other)
    assert code_digest(["toy.c"]) != before


def test_registries_are_left_out() -> None:
    """Adding a task edits `fut/tasks/__init__.py` only: no other trial's code digest may depend on it."""
    assert "fut.tasks" in digest.REGISTRIES and "fut.backbones" in digest.REGISTRIES
    reached = digest.reached(["fut.trial", "fut.tasks.dyck", "fut.backbones.random"])
    assert {"fut.training", "fut.transformer", "fut.attention", "fut.seeds", "fut.tasks.base"} <= reached
    assert not {"fut.tasks", "fut.tasks.khop", "fut.tasks.simulate", "fut.backbones.control"} & reached


def test_a_module_that_is_not_there_has_no_digest() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"fut\.nothing"):
        code_digest(["fut.nothing"])


def test_a_package_without_files_has_no_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fut.digest.PACKAGE", "no_such_package")
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        code_digest(["no_such_package"])
