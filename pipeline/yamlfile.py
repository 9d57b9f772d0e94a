"""Reading YAML strictly: YAML 1.2 values, no key twice, nothing that grows beyond bounds, every error with its line.

PyYAML reads YAML 1.1, where `1e-2` is text, `010` is eight and `no` is false.  DVC reads the same file as YAML 1.2;
so do we.
"""

import re
import unicodedata
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError
from yaml.reader import ReaderError

from pipeline.faults import Fault, clip, join, rounded

LARGEST_FILE = 1_000_000  # bytes
MOST_VALUES = 50_000  # keys and values, aliases written out
DEEPEST = 40  # values within one another, aliases written out
MOST_DIGITS = 30  # of a whole number

STANDARD = "tag:yaml.org,2002:"
NULL, BOOL, INT, FLOAT, MERGE, STR, SEQ, MAP = (
    STANDARD + name for name in ("null", "bool", "int", "float", "merge", "str", "seq", "map")
)
PLAIN = {  # the plain values of YAML 1.2's core schema, and merge keys: pattern, first characters
    NULL: (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    BOOL: (r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    INT: (r"[-+]?[0-9]+", list("-+0123456789")),
    FLOAT: (
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
    MERGE: (r"<<", ["<"]),
}
REMEDIES = {  # what PyYAML calls a problem → what to do
    r"\t": "indent with spaces, never with tabs",
    "mapping values are not allowed here": "check the indentation, and put a text that holds `: ` in quotes",
    "but found '<block mapping start>'": "check the indentation",
    "expected ',' or": "close the bracket, and put a text that holds `: ` or `,` in quotes",
    "that cannot start any token": "put the text in quotes",
    "could not find expected ':'": "write `key: value`, with a space",
    "found undefined alias": "write its &anchor above it, or put a text that starts with * in quotes",
    "end of stream": "close the quotes",
    "found unknown escape character": "write the text in single quotes, or \\\\ for \\",
    "expected the node content": "write the value that is missing here",
    "only a mapping can be merged": "write <<: *name, where &name stands before a mapping",
    "found incompatible YAML document": "leave the line with %YAML out",
}
LINE_END = re.compile(r"\r\n|\r|\n")
UNSEEN = re.compile("[\x85\u2028\u2029]|(?<!^)\ufeff")  # line ends for YAML 1.1 only, and a mark that is for the start


class Loader(yaml.SafeLoader):
    """A safe loader with the core schema of YAML 1.2 (and merge keys), which stops before a document is too large."""

    depth = 0
    count = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose a node, and stop where nodes are too deep or too many."""
        self.depth += 1
        self.count += 1
        mark = self.peek_event().start_mark
        if self.depth > DEEPEST:
            raise ComposerError(None, None, f"more than {DEEPEST} values within one another; write it flatter", mark)
        if self.count > MOST_VALUES:
            raise ComposerError(None, None, f"more than {MOST_VALUES:,} keys and values; write less", mark)
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node

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
for _tag, (_pattern, _first) in PLAIN.items():
    Loader.add_implicit_resolver(_tag, re.compile(rf"(?:{_pattern})\Z"), _first)
Loader.add_constructor(INT, lambda _, node: int(node.value))
# + 0.0: so that −0 and 0, which mean the same, name the same trial
Loader.add_constructor(FLOAT, lambda _, node: float(re.sub(r"\.(?=[inIN])", "", node.value)) + 0.0)


def read(path: Path) -> tuple[Any, list[Fault]]:
    """The value of a YAML file, and its faults; the value is None where the faults leave none."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        return None, [Fault(str(path), "no such file; run in the project's folder, or name the file with --params")]
    except OSError as error:
        return None, [Fault(str(path), f"cannot be read: {error.strerror}")]
    if len(content) > LARGEST_FILE:
        return None, [Fault(str(path), f"is larger than {LARGEST_FILE:,} bytes; is it the right file?")]
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        return None, [Fault(str(path), f"is not UTF-8 text (byte {error.start}); save it as UTF-8")]
    return parse(text)


def parse(text: str) -> tuple[Any, list[Fault]]:
    """The value of a YAML text, and its faults; keys given twice still leave a value, so that more can be checked.

    >>> parse("rate: 1e-2")
    ({'rate': 0.01}, [])
    """
    if unseen := UNSEEN.search(text):
        return None, [_character_fault(text, unseen.start())]
    loader = None
    try:
        loader = Loader(text)
        root = loader.get_single_node()
        if loader.yaml_version not in (None, (1, 2)):
            return None, [Fault("the file", "asks for another version of YAML than 1.2; leave the line with %YAML out")]
        if root is None:
            return None, []
        survey = _Survey()
        survey.visit(root, "")
        return (loader.construct_document(root) if survey.readable else None), survey.faults
    except ReaderError as error:
        return None, [_character_fault(text, error.position)]
    except yaml.MarkedYAMLError as error:
        return None, [_syntax_fault(text, error)]
    except (ValueError, OverflowError):  # of "\UFFFFFFFF", or of a %YAML with thousands of digits
        mark = loader.get_mark() if loader else None
        place = _place(mark.line, mark.column) if mark else "the file"
        return None, [Fault(place, "not valid YAML: an escape for no character; write the character itself")]


def _place(line: int, column: int) -> str:
    return f"line {line + 1}, column {column + 1}"


def _code(character: str) -> str:
    return f"U+{ord(character):04X}"


def _character_fault(text: str, position: int) -> Fault:
    """The fault of a character that no YAML may hold."""
    lines = LINE_END.split(text[:position])
    place = _place(len(lines) - 1, len(lines[-1]))
    return Fault(place, f"not valid YAML: it holds the character {_code(text[position])}; delete it")


def _syntax_fault(text: str, error: yaml.MarkedYAMLError) -> Fault:
    """The fault of a text that is not YAML."""
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return Fault("the file", f"not valid YAML: {error.problem}")
    place, problem = _place(mark.line, mark.column), error.problem or "no valid YAML"
    lines = LINE_END.split(text)[max(0, mark.line - 1) : mark.line + 1]
    odd = sorted({character for character in "".join(lines) if unicodedata.category(character) == "Zs"} - {" "})
    if "found another document" in problem or "'<document start>'" in problem:
        problem, remedy = "a second document starts here", "keep one"
    elif problem == "second occurrence":
        name = (error.context or "").split(";")[0].removeprefix("found duplicate anchor ")
        problem, remedy = f"the anchor {name} is defined a second time", "rename one"
    elif odd:
        remedy = f"this line or the one before holds {_code(odd[0])} where a space is meant"
    else:
        remedy = next((remedy for words, remedy in REMEDIES.items() if words in problem), "")
    start = error.context_mark
    if start is not None and start.line != mark.line and (error.context or "").startswith("while"):
        problem = f"{problem}, {error.context} that starts in line {start.line + 1}"
    return Fault(place, f"not valid YAML: {problem}{remedy and '; '}{remedy}")


class _Survey:
    """What is wrong with the nodes of a document; each is looked at once, in the place where it is written."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.readable = True  # whether the faults leave a value
        self._sizes: dict[int, tuple[int, int]] = {}  # by node: its values and its depth, aliases written out
        self._above: set[int] = set()

    def visit(self, node: yaml.Node, path: str) -> tuple[int, int]:
        """Look at a node and at all that it holds; how many values that is, and how deep, aliases written out."""
        if id(node) in self._above:
            self._add(path, f"the value in {_line(node)} contains itself; write it out")
            return 1, 1
        if id(node) in self._sizes:
            return self._sizes[id(node)]
        if not isinstance(node, yaml.MappingNode | yaml.SequenceNode):
            self._scalar(node, path)
            return self._sizes.setdefault(id(node), (1, 1))
        if node.tag not in (SEQ, MAP):
            self._add(path, f"the tag {_shown(node.tag)} in {_line(node)} is not supported; leave it out")
        self._above.add(id(node))
        inside = self._mapping(node, path) if isinstance(node, yaml.MappingNode) else self._sequence(node, path)
        self._above.remove(id(node))
        size, depth = 1 + sum(size for size, _ in inside), 1 + max((depth for _, depth in inside), default=0)
        if size > MOST_VALUES:
            self._add(path, f"{_line(node)} comes to {rounded(size)} values, aliases written out; write less")
        elif depth > DEEPEST:
            self._add(path, f"{_line(node)} holds {depth} values within one another; write it flatter")
        else:
            return self._sizes.setdefault(id(node), (size, depth))
        return self._sizes.setdefault(id(node), (1, 1))  # said once, not for all that hold it

    def _add(self, path: str, text: str, readable: bool = False) -> None:
        self.faults.append(Fault(path or "the file", text))
        self.readable = self.readable and readable

    def _sequence(self, node: yaml.SequenceNode, path: str) -> list[tuple[int, int]]:
        return [self.visit(item, join(path, index)) for index, item in enumerate(node.value)]

    def _mapping(self, node: yaml.MappingNode, path: str) -> list[tuple[int, int]]:
        inside: list[tuple[int, int]] = []
        first: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.tag == MERGE:
                inside.append(self.visit(value, path))
                continue
            if not isinstance(key, yaml.ScalarNode) or key.tag != STR:
                self._add(path, f"the key in line {line} is no text; put it in quotes")
                continue
            here = join(path, key.value)
            self._text(key, here)
            if key.value in first:
                self._add(here, f"given twice, in lines {first[key.value]} and {line}; keep one", readable=True)
            first.setdefault(key.value, line)
            inside.append(self.visit(value, here))
        return inside

    def _scalar(self, node: yaml.Node, path: str) -> None:
        if node.tag == STR:
            self._text(node, path)
        elif node.tag not in PLAIN or node.tag == MERGE:
            self._add(path, f"the tag {_shown(node.tag)} in {_line(node)} is not supported; leave it out")
        elif not re.fullmatch(PLAIN[node.tag][0], node.value):
            self._add(path, f"{clip(node.value)!r} in {_line(node)} is no {_shown(node.tag)}; leave the tag out")
        elif node.tag == INT and len(node.value) > MOST_DIGITS:
            self._add(path, f"the number in {_line(node)} has more than {MOST_DIGITS} digits; write a smaller one")

    def _text(self, node: yaml.Node, path: str) -> None:
        odd = [character for character in node.value if unicodedata.category(character) in ("Cc", "Cs")]
        if odd := [character for character in odd if character not in "\n\t"]:
            self._add(path, f"the text in {_line(node)} holds {_code(odd[0])}; delete it", readable=True)


def _line(node: yaml.Node) -> str:
    return f"line {node.start_mark.line + 1}"


def _shown(tag: str) -> str:
    return f"!!{clip(tag.removeprefix(STANDARD))}" if tag.startswith(STANDARD) else clip(tag)
