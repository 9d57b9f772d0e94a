"""Reading YAML strictly: YAML 1.2 values, no key twice, every syntax error with its line.

PyYAML reads YAML 1.1, where `1e-2` is text, `010` is eight and `no` is false.  DVC reads the same file as YAML 1.2;
so do we.
"""

import re
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import ConstructorError

from pipeline.faults import Fault, join

NULL, BOOL, INT, FLOAT, MERGE = (f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "merge"))
TWICE = "given twice"


class Loader(yaml.SafeLoader):
    """A safe loader with the core schema of YAML 1.2 (and merge keys)."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Put what is merged into a mapping before its own pairs; PyYAML's lets a merged value win over an own one."""
        own = [pair for pair in node.value if pair[0].tag != MERGE]
        taken, merged = {key.value for key, _ in own}, []
        for value in (value for key, value in node.value if key.tag == MERGE):
            for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if not isinstance(source, yaml.MappingNode):
                    raise ConstructorError(None, None, "only a mapping can be merged", source.start_mark)
                self.flatten_mapping(source)
                fresh = [pair for pair in source.value if pair[0].value not in taken]
                taken.update(key.value for key, _ in fresh)
                merged += fresh
        node.value = merged + own


Loader.yaml_implicit_resolvers = {}  # its own, without those of YAML 1.1
for _tag, _pattern, _first in (
    (NULL, r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    (BOOL, r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    (INT, r"[-+]?[0-9]+", list("-+0123456789")),
    (
        FLOAT,
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
    (MERGE, r"<<", ["<"]),
):
    Loader.add_implicit_resolver(_tag, re.compile(rf"(?:{_pattern})\Z"), _first)
Loader.add_constructor(INT, lambda _, node: int(node.value))
Loader.add_constructor(FLOAT, lambda _, node: float(re.sub(r"\.(?=[inIN])", "", node.value)))


def read(path: Path) -> tuple[Any, list[Fault]]:
    """The value of a YAML file, and its faults; the value is None where the faults leave none."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None, [Fault(str(path), "no such file; run in the project's folder, or name the file with --params")]
    except OSError as error:
        return None, [Fault(str(path), f"cannot be read: {error.strerror}")]
    except UnicodeDecodeError as error:
        return None, [Fault(str(path), f"is not UTF-8 text (byte {error.start}); save it as UTF-8")]
    return parse(text)


def parse(text: str) -> tuple[Any, list[Fault]]:
    """The value of a YAML text, and its faults; keys given twice still leave a value, so that more can be checked.

    >>> parse("rate: 1e-2")
    ({'rate': 0.01}, [])
    """
    try:
        loader = Loader(text)
        root = loader.get_single_node()
        faults = _node_faults(root, "", ()) if root is not None else []
        if root is None or any(TWICE not in fault.text for fault in faults):
            return None, faults
        return loader.construct_document(root), faults
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "the file"
        problem = error.problem or "no valid YAML"
        remedy = "; indent with spaces, never with tabs" if "\\t" in problem else ""
        return None, [Fault(place, f"not valid YAML: {problem}{remedy}")]
    except yaml.YAMLError as error:
        return None, [Fault("the file", f"not valid YAML: {error}")]


def _node_faults(node: yaml.Node, path: str, above: tuple[int, ...]) -> list[Fault]:
    """Keys given twice, keys that are no text, and values that contain themselves."""
    line = node.start_mark.line + 1
    if id(node) in above:
        return [Fault(path, f"the value in line {line} contains itself; write it out")]
    above = (*above, id(node))
    faults: list[Fault] = []
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            faults += _node_faults(item, join(path, index), above)
    if not isinstance(node, yaml.MappingNode):
        return faults
    first: dict[str, int] = {}
    for key, value in node.value:
        key_line = key.start_mark.line + 1
        if key.tag == MERGE:
            faults += _node_faults(value, path, above)
            continue
        if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
            faults.append(Fault(path or "the file", f"the key in line {key_line} is no text; put it in quotes"))
            continue
        if key.value in first:
            faults.append(
                Fault(join(path, key.value), f"{TWICE}, in lines {first[key.value]} and {key_line}; keep one")
            )
        first.setdefault(key.value, key_line)
        faults += _node_faults(value, join(path, key.value), above)
    return faults
