"""A nested configuration that remembers where in params.yaml each of its values was written."""

from typing import Any, NamedTuple, Self

from pipeline.faults import Steps, join

TAGS = ("name", "kind")  # a mapping with another name or kind is another thing: it replaces, it is not merged


class Source(NamedTuple):
    """Where a value was written: the path of its key and of the value itself (an entry of an axis)."""

    key: str
    value: str


class Sourced:
    """Nested values, set one by one and over one another, each with its source."""

    def __init__(self, values: dict[str, Any], path: str) -> None:
        self.values: dict[str, Any] = {}
        self._sources: dict[Steps, Source] = {(): Source(path, path)}
        for key, value in values.items():
            self.set((key,), value, Source(join(path, key), join(path, key)))

    def copy(self) -> Self:
        """An independent copy."""
        other = object.__new__(type(self))
        other.values, other._sources = _copy(self.values), dict(self._sources)
        return other

    def at(self, path: str) -> Self:
        """An independent copy for a block at this path, where anything missing belongs."""
        other = self.copy()
        other._sources[()] = Source(path, path)
        return other

    def set(self, steps: tuple[str, ...], value: Any, source: Source) -> None:
        """Set a value: a mapping is merged into the one that is there, unless its name or kind is another.

        Raises:
            TypeError: a value on the way is no mapping.
        """
        parent = self.values
        for depth, step in enumerate(steps[:-1], start=1):
            parent = parent.setdefault(step, {})
            if not isinstance(parent, dict):
                raise TypeError(
                    f"{'.'.join(steps[:depth])} is no mapping ({self.where(steps[:depth])}), so it has no "
                    f"{steps[depth]}; write a mapping there, or leave this key out"
                )
        there = parent.get(steps[-1])
        if isinstance(value, dict) and isinstance(there, dict) and _same_thing(there, value):
            self._sources[steps] = source
            for key, item in value.items():
                self.set((*steps, key), item, Source(join(source.value, key), join(source.value, key)))
            return
        for known in [known for known in self._sources if known[: len(steps)] == steps]:
            del self._sources[known]
        parent[steps[-1]] = _copy(value)
        self._note(steps, value, source)

    def where(self, steps: Steps, of_key: bool = False) -> str:
        """The path in the file of a value, or of its key; what is not there has a path below the nearest that is."""
        depth = next(depth for depth in range(len(steps), -1, -1) if steps[:depth] in self._sources)  # () always is
        source = self._sources[steps[:depth]]
        return source.key if of_key and depth == len(steps) else join(source.value, *steps[depth:])

    def _note(self, steps: Steps, value: Any, source: Source) -> None:
        self._sources[steps] = source
        if isinstance(value, dict):
            for key, item in value.items():
                self._note((*steps, key), item, Source(join(source.value, key), join(source.value, key)))


def _same_thing(there: dict[str, Any], value: dict[str, Any]) -> bool:
    return all(value[tag] == there[tag] for tag in TAGS if tag in value and tag in there)


def _copy(value: Any) -> Any:
    """A copy of mappings; what stands in them is never changed."""
    return {key: _copy(item) for key, item in value.items()} if isinstance(value, dict) else value
