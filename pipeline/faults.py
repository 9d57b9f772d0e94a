"""Faults of a configuration: where, what is wrong, and what to do about it."""

import difflib
import json
import math
import re
from collections.abc import Callable, Collection, Iterable
from typing import Any, Literal, NamedTuple, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

PROBLEM = re.compile(r"; (?=[a-z_]+(?:\.[a-z_]+)*: )")  # a new problem starts with the name of its field
LONG_NUMBER = re.compile(r"\d{16,}")
LONGEST = 40  # characters of a value, and half of those of a key, that a message shows
Steps = tuple[str | int, ...]
EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
BOUNDS = {
    "greater_than": ("more than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}
SWITCHES = {"yes": "true", "y": "true", "on": "true", "no": "false", "n": "false", "off": "false", "1": "true"}
SWITCHES |= {"0": "false", "true": "true", "false": "false"}  # what people and YAML 1.1 write → YAML 1.2


class Fault(NamedTuple):
    """One fault: its path in the file, and what is wrong with its remedy."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


class Problems(ValueError):
    """What is wrong in one value, for validators: each problem with the further steps that lead to it."""

    def __init__(self, problems: list[tuple[Steps, str]]) -> None:
        super().__init__("; ".join(text for _, text in problems))
        self.problems = problems


class Refused:
    """Stands in the place of a value of which everything has been said."""


REFUSED = Refused()


def join(path: str, *steps: str | int) -> str:
    """A path in the file with further steps; a key that would not be seen, or hide the path, is quoted.

    >>> join("studies.width", "grid", 0, "task")
    'studies.width.grid[0].task'
    >>> join("studies.width", "")
    "studies.width['']"
    """
    for step in steps:
        if isinstance(step, int):
            path = f"{path}[{step}]"
        elif not step.isprintable() or step != step.strip() or not 0 < len(step) <= 2 * LONGEST:
            path = f"{path}[{clip(step)!r}]"
        else:
            path = f"{path}.{step}" if path else step
    return path


def entries(value: Any, path: str) -> list[tuple[Any, str]]:
    """The entries of a list, each with its path; a value that is no list is its own only entry."""
    return (
        [(item, join(path, index)) for index, item in enumerate(value)] if isinstance(value, list) else [(value, path)]
    )


def unknown(what: str, word: str, known: Iterable[str]) -> str:
    """The text for a word that is none of the known ones, with the nearest one where there is one.

    >>> unknown("key", "hop", ["hops", "length"])
    "unknown key 'hop': did you mean 'hops'?"
    >>> unknown("key", "x", ["hops", "length"])
    "unknown key 'x'; known: hops, length"
    """
    known = list(known)
    near = nearest(word, known)
    hint = f": did you mean {near!r}?" if near else f"; known: {', '.join(known)}"
    return f"unknown {what} {clip(word)!r}{hint}"


def nearest(word: Any, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """The known word most like this one, or None where none is alike."""
    return next(iter(difflib.get_close_matches(str(word)[: 2 * LONGEST], list(known), 1, likeness)), None)


def clip(text: str) -> str:
    """A text that is short enough for a message."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def show(value: Any) -> str:
    """A value of the file in words short enough for a message."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, str):
        return f"the text {clip(value)!r}"
    if isinstance(value, dict | list):
        written = json.dumps(value, ensure_ascii=False)
        return written if len(written) <= LONGEST else "a mapping" if isinstance(value, dict) else "a list"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def rounded(number: int) -> str:
    """A whole number above 0, short enough for a message however large.

    >>> rounded(1234567), rounded(2**100)
    ('1,234,567', 'about 1.2e30')
    """
    digits = str(number)
    return f"{number:,}" if len(digits) < 16 else f"about {digits[0]}.{digits[1]}e{len(digits) - 1}"


def number_in(text: str) -> int | float | None:
    """The finite number that a person meant by a text: with separators, in another base, in quotes; else None.

    >>> [number_in(text) for text in ("2", "1e-2", "1_000", "1,000", "0x10", "2x", "nan")]
    [2, 0.01, 1000, 1000, 16, None, None]
    """
    plain = re.sub(r"(?<=\d)[_,](?=\d{3}(?!\d))", "", text[: 2 * LONGEST])
    for read in (int, lambda text: int(text, 0), float):
        try:
            number: int | float = read(plain)
        except ValueError:
            continue
        return number if math.isfinite(number) else None
    return None


def as_number(text: str, whole: bool = False) -> str:
    """How to write a text as the number that it stands for, as the end of a message; empty where it stands for none."""
    number = number_in(text)
    if number is None or (whole and number != int(number)):
        return ""
    number = int(number) if whole else number
    return "; write it without quotes" if text == repr(number) else f"; write {number!r}"


def from_validation(
    error: ValidationError,
    model: type[BaseModel],
    where: Callable[[Steps, bool], str],
    excused: Collection[Steps] = (),
    axes: bool = False,
) -> list[Fault]:
    """The faults of a failed validation.

    Args:
        error: what pydantic raised.
        model: the model that was validated.
        where: the path in the file of a place in the model; its second argument says that the key is at fault.
        excused: places whose absence is explained by another fault.
        axes: whether the model is a cell of a grid, where a list is an axis in its proper place.
    """
    located = [
        (details, _locate(model, details["loc"]))
        for details in error.errors(include_url=False)
        if details["type"] == "extra_forbidden" or not isinstance(details["input"], Refused)
    ]
    explained = set(excused) | {
        (*place.steps[:-1], nearest(place.steps[-1], place.holder.model_fields) or "")
        for details, place in located
        if details["type"] == "extra_forbidden"
    }
    faults: list[Fault] = []
    for details, place in located:
        if details["type"] == "missing" and place.steps in explained:
            continue  # it is there, under a misspelt key
        for more, text in _texts(details, place, model, axes):
            path = where((*place.steps, *more), details["type"] == "extra_forbidden")
            faults.append(Fault(path, text))
    return faults


class _Place(NamedTuple):
    """A place in validated data."""

    steps: Steps  # without pydantic's own marks
    holder: type[BaseModel]  # the model that has the last step, or is nearest above it
    siblings: list[type[BaseModel]]  # the other members of the holder's union
    inside: list[Any]  # models, lists and mappings that the place may hold

    @property
    def field(self) -> Any:
        """The field that the place is, or None where it is an entry of one."""
        return self.holder.model_fields.get(str(self.steps[-1])) if self.steps else None


def _locate(model: type[BaseModel], location: Steps) -> _Place:
    """The place of a pydantic location."""
    steps: list[str | int] = []
    holder, siblings = model, list[type[BaseModel]]()
    inside: list[Any] = [model]
    members: list[Any] = []
    for step in location:
        if step == "[key]":
            inside = []  # the key is at fault, not what it holds
            continue
        if len(inside) > 1 and (tagged := [one for one in inside if step in _tags(one)]):
            members = [one for one in inside if one not in tagged]
            inside = tagged
            continue
        steps.append(step)
        part = inside[0] if len(inside) == 1 else None
        inside = []
        if isinstance(part, type) and issubclass(part, BaseModel):
            holder, siblings, members = part, members, []
            field = part.model_fields.get(str(step))
            inside = _parts(field.annotation) if field else []
        elif part is not None and get_args(part):
            inside = _parts(get_args(part)[-1])
    return _Place(tuple(steps), holder, siblings, inside)


def _parts(annotation: Any) -> list[Any]:
    """The models, lists and mappings among the alternatives of a type."""
    if get_origin(annotation) in (list, dict) or _is_model(annotation):
        return [annotation]
    return [part for argument in get_args(annotation) for part in _parts(argument)]


def _is_model(part: Any) -> bool:
    return isinstance(part, type) and issubclass(part, BaseModel)


def _tags(model: Any) -> list[Any]:
    """The names or kinds that choose a model among the members of a union."""
    fields = getattr(model, "model_fields", {})
    annotations = [fields[name].annotation for name in ("name", "kind") if name in fields]
    return [tag for annotation in annotations if get_origin(annotation) is Literal for tag in get_args(annotation)]


def _texts(details: ErrorDetails, place: _Place, model: type[BaseModel], axes: bool) -> list[tuple[Steps, str]]:
    """What a pydantic error says in our words: pairs of further steps and a text."""
    kind, value, context = details["type"], details["input"], details.get("ctx", {})
    key = str(place.steps[-1]) if place.steps else ""
    if kind == "extra_forbidden":
        return [((), _extra(key, place))]
    if kind == "missing":
        about = place.holder.model_fields[key].description
        return [((), f"missing: add it ({about})" if about else "missing: add it")]
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return [_tag_text(str(context["discriminator"]).strip("'"), value, place, axes)]
    if kind == "literal_error":
        known = str(context["expected"]).replace(" or ", ", ").replace("'", "").split(", ")
        near = nearest(value, known, 0.7) if isinstance(value, str) else None
        hint = f": did you mean {near!r}?" if near else _remedy("", value, place, axes)
        return [((), f"expected {context['expected']}, got {show(value)}{hint}")]
    if kind in EXPECTED:
        return [((), f"expected {EXPECTED[kind]}, got {show(value)}{_remedy(kind, value, place, axes)}")]
    if kind in BOUNDS:
        words, bound = BOUNDS[kind]
        limit = context[bound]
        return [((), f"must be {words} {int(limit) if limit == int(limit) else limit:,}, got {show(value)}")]
    if kind == "finite_number":
        return [((), f"must be a finite number, got {value}")]
    if kind == "string_too_long":
        return [((), f"must have at most {context['max_length']} characters, got {show(value)}")]
    if kind == "value_error":
        error = context["error"]
        if isinstance(error, Problems):
            return error.problems
        if not any(map(_is_model, place.inside)):
            return [((), str(error))]
        text = LONG_NUMBER.sub(lambda number: rounded(int(number[0])), str(error))  # the width of a deep tree
        return [_placed(part, place.inside, model) for part in PROBLEM.split(text)]
    return [((), f"{details['msg'][:1].lower()}{details['msg'][1:]}, got {show(value)}")]


def _extra(key: str, place: _Place) -> str:
    if any(key in sibling.model_fields for sibling in place.siblings):
        tag = _tags(place.holder)[0]
        return f"{tag} has no {key}; known: {', '.join(place.holder.model_fields)}"
    if elsewhere := getattr(place.holder, "elsewhere", {}).get(key.split(".")[0]):
        return f"belongs {elsewhere}; move it there"
    return unknown("key", key, place.holder.model_fields)


def _tag_text(tag: str, value: dict[str, Any], place: _Place, axes: bool) -> tuple[Steps, str]:
    """What is wrong with the name or kind that chooses a task or a backbone."""
    known = [name for part in place.inside for name in _tags(part)]
    if tag in value:
        chosen = value[tag]
        if isinstance(chosen, str):
            return (tag,), unknown(tag, chosen, known)
        inner = place._replace(steps=(*place.steps, tag))
        return (tag,), f"expected one of {', '.join(known)}, got {show(chosen)}{_remedy('', chosen, inner, axes)}"
    if misspelt := nearest(tag, value):
        return (misspelt,), unknown("key", misspelt, [tag])
    return (tag,), f"missing: add it, one of {', '.join(known)}"


def _placed(problem: str, inside: list[Any], model: type[BaseModel]) -> tuple[Steps, str]:
    """A problem found in the place of some models, and the fields whose names it starts with, as further steps."""
    steps: list[str | int] = []
    while match := re.match(r"([a-z_]+)(?:: |\.(?=[a-z_.]+: ))", problem):
        fields = [part.model_fields[match[1]] for part in inside if match[1] in getattr(part, "model_fields", {})]
        if not fields and steps and match[1] in model.model_fields:
            steps, fields = [], [model.model_fields[match[1]]]  # another field than that of the part that noticed
        if not fields:
            break
        steps.append(match[1])
        problem = problem[match.end() :]
        inside = [part for field in fields for part in _parts(field.annotation)]
    return tuple(steps), problem


def _remedy(kind: str, value: Any, place: _Place, axes: bool) -> str:
    """What to write instead of a value of a wrong type, as the end of a message; empty where that is plain."""
    nullable = place.field is not None and type(None) in get_args(place.field.annotation)
    if value is None:
        if place.steps and isinstance(place.steps[-1], int):
            return "; take the entry out"
        return "; give it a value" + ("" if place.field is None or place.field.is_required() else ", or leave it out")
    if isinstance(value, list) and value and axes:
        written = show(value) if show(value) != "a list" else "[...]"
        return f"; for an axis, write `{'.'.join(map(str, place.steps))}: {written}` in `grid`"
    if isinstance(value, str) and nullable and value.lower() in ("none", "nil"):
        return "; write null, or leave it out"
    match kind:
        case "bool_type" if str(value).lower() in SWITCHES and not isinstance(value, float):
            return f"; write {SWITCHES[str(value).lower()]}"
        case "int_type" | "int_from_float" | "float_type" if isinstance(value, str):
            return as_number(value, whole=kind != "float_type")
        case "int_type" | "int_from_float" if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
            return f"; write {int(value)}"
        case "string_type" if isinstance(value, int | float) and not axes:
            return "; put it in quotes"
        case "list_type" if isinstance(value, str | int | float):
            return f"; write [{value if isinstance(value, str) else show(value)}]"
        case "model_type" | "model_attributes_type" | "dict_type":
            return _mapping_remedy(value, place)
    return ""


def _mapping_remedy(value: Any, place: _Place) -> str:
    """The mapping to write in the place of a value that is none."""
    models = [part for part in place.inside if _is_model(part)]
    if tags := [tag for part in models for tag in _tags(part)]:
        name = next(name for name in ("name", "kind") if name in models[0].model_fields)
        return f"; write {{{name}: {value if value in tags else tags[0]}}}"
    if not models:
        return "; write {key: value}"
    fields = models[0].model_fields
    first = next((name for name, field in fields.items() if field.is_required()), next(iter(fields)))
    return f"; write {{{first}: ...}}"
