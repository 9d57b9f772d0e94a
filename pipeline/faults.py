"""Faults of a configuration: where, what is wrong, and what to do about it."""

import difflib
import re
from collections.abc import Callable, Collection, Iterable
from typing import Any, Literal, NamedTuple, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

PROBLEM = re.compile(r"; (?=[a-z_]+(?:\.[a-z_]+)*: )")  # a new problem starts with the name of its field
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
    "tuple_type": "a list",
}
BOUNDS = {
    "greater_than": ("more than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}


class Fault(NamedTuple):
    """One fault: its path in the file, and what is wrong with its remedy."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


def join(path: str, *steps: str | int) -> str:
    """A path in the file with further steps.

    >>> join("studies.width", "grid", 0, "task")
    'studies.width.grid[0].task'
    """
    for step in steps:
        path = f"{path}[{step}]" if isinstance(step, int) else f"{path}.{step}" if path else step
    return path


def entries(value: Any, path: str) -> list[tuple[Any, str]]:
    """The entries of a list, each with its path; a value that is no list is its own only entry."""
    return (
        [(item, join(path, index)) for index, item in enumerate(value)] if isinstance(value, list) else [(value, path)]
    )


def unknown(what: str, word: Any, known: Iterable[str]) -> str:
    """The text for a word that is none of the known ones, with the nearest one where there is one.

    >>> unknown("key", "hop", ["hops", "length"])
    "unknown key 'hop': did you mean 'hops'?"
    >>> unknown("key", "x", ["hops", "length"])
    "unknown key 'x'; known: hops, length"
    """
    known = list(known)
    near = nearest(word, known)
    return f"unknown {what} {word!r}" + (f": did you mean {near!r}?" if near else f"; known: {', '.join(known)}")


def nearest(word: Any, known: Iterable[str]) -> str | None:
    """The known word most like this one, or None where none is alike."""
    return next(iter(difflib.get_close_matches(str(word), list(known), 1, 0.6)), None)


def show(value: Any) -> str:
    """A value of the file in words short enough for a message."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f"the text {value!r}" if len(value) <= 40 else f"the text {value[:37] + '...'!r}"
    if isinstance(value, dict | list) and len(repr(value)) > 40:
        return "a mapping" if isinstance(value, dict) else "a list"
    return repr(value)


def from_validation(
    error: ValidationError, model: type[BaseModel], where: Callable[[Steps, bool], str], excused: Collection[Steps] = ()
) -> list[Fault]:
    """The faults of a failed validation.

    Args:
        error: what pydantic raised.
        model: the model that was validated.
        where: the path in the file of a place in the model; its second argument says that the key is at fault.
        excused: places whose absence is explained by another fault.
    """
    located = [(details, _locate(model, details["loc"])) for details in error.errors(include_url=False)]
    explained = set(excused) | {
        (*place.steps[:-1], nearest(place.steps[-1], place.holder.model_fields) or "")
        for details, place in located
        if details["type"] == "extra_forbidden"
    }
    faults: list[Fault] = []
    for details, place in located:
        if details["type"] == "missing" and place.steps in explained:
            continue  # it is there, under a misspelt key
        for more, text in _texts(details, place, model):
            faults.append(Fault(where((*place.steps, *more), details["type"] == "extra_forbidden"), text))
    return faults


class _Place(NamedTuple):
    """A place in validated data."""

    steps: Steps  # without pydantic's own marks
    holder: type[BaseModel]  # the model that has the last step, or is nearest above it
    siblings: list[type[BaseModel]]  # the other members of the holder's union
    inside: list[Any]  # models, lists and mappings that the place may hold


def _locate(model: type[BaseModel], location: Steps) -> _Place:
    """The place of a pydantic location."""
    steps: list[str | int] = []
    holder, siblings = model, list[type[BaseModel]]()
    inside: list[Any] = [model]
    members: list[Any] = []
    for step in location:
        if step == "[key]":
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
    if get_origin(annotation) in (list, dict) or (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        return [annotation]
    return [part for argument in get_args(annotation) for part in _parts(argument)]


def _tags(model: Any) -> list[Any]:
    """The names or kinds that choose a model among the members of a union."""
    fields = getattr(model, "model_fields", {})
    annotations = [fields[name].annotation for name in ("name", "kind") if name in fields]
    return [tag for annotation in annotations if get_origin(annotation) is Literal for tag in get_args(annotation)]


def _texts(details: ErrorDetails, place: _Place, model: type[BaseModel]) -> list[tuple[Steps, str]]:
    """What a pydantic error says in our words: pairs of further steps and a text."""
    kind, value, context = details["type"], details["input"], details.get("ctx", {})
    key = str(place.steps[-1]) if place.steps else ""
    if kind == "extra_forbidden":
        return [((), _extra(key, place))]
    if kind == "missing":
        about = place.holder.model_fields[key].description
        return [((), f"missing: add it ({about})" if about else "missing: add it")]
    if kind == "union_tag_invalid":
        tag = str(context["discriminator"]).strip("'")
        return [((tag,), unknown(tag, context["tag"], str(context["expected_tags"]).replace("'", "").split(", ")))]
    if kind == "union_tag_not_found":
        tag = str(context["discriminator"]).strip("'")
        known = [tag for part in place.inside for tag in _tags(part)]
        return [((tag,), f"missing: add it, one of {', '.join(known)}")]
    if kind == "literal_error":
        known = str(context["expected"]).replace(" or ", ", ").replace("'", "").split(", ")
        near = nearest(value, known) if isinstance(value, str) else None
        hint = f": did you mean {near!r}?" if near else ""
        return [((), f"expected {context['expected']}, got {show(value)}{hint}")]
    if kind in EXPECTED:
        return [((), f"expected {EXPECTED[kind]}, got {show(value)}{_remedy(kind, value)}")]
    if kind in BOUNDS:
        words, bound = BOUNDS[kind]
        return [((), f"must be {words} {context[bound]:g}, got {show(value)}")]
    if kind == "finite_number":
        return [((), f"must be a finite number, got {value}")]
    if kind == "string_too_short":
        return [((), "must not be empty")]
    if kind == "value_error":
        return [_placed(part, place.inside, model) for part in PROBLEM.split(str(context["error"]))]
    return [((), f"{details['msg'][:1].lower()}{details['msg'][1:]}, got {show(value)}")]


def _extra(key: str, place: _Place) -> str:
    if any(key in sibling.model_fields for sibling in place.siblings):
        tag = _tags(place.holder)[0]
        return f"{tag} has no {key}; known: {', '.join(place.holder.model_fields)}"
    return unknown("key", key, place.holder.model_fields)


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


def _remedy(kind: str, value: Any) -> str:
    if kind == "list_type":
        return f"; write [{value}]" if isinstance(value, str | int | float) else ""
    if isinstance(value, list) and kind not in ("model_type", "dict_type"):
        return "; a list is an axis only as the value of a (dotted) key of `grid`"
    if isinstance(value, str) and kind != "bool_type":
        try:
            float(value)
        except ValueError:
            return ""
        return "; write it without quotes"
    return ""
