"""Frozen data as plain JSON, and back by the types of its fields."""

import functools
import types
from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import Enum
from typing import Any, Self, Union, get_args, get_origin, get_type_hints

from ..bounds.verdict import plain


class Plain:
    """A dataclass that JSON holds: `from_dict` reads what `to_dict` wrote.

    Numbers that are not finite become text. The fields of a verdict, `values`, lie beside the
    others.
    """

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        cls: Any = type(self)
        own = {name: plain(getattr(self, name)) for name in _readers(cls)}
        return own | own.pop("values", {})

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """What `to_dict` described; other keys are ignored.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: `data` is no such description.
        """
        any_class: Any = cls
        readers = _readers(any_class).items()
        given = {name: read(data if name == "values" else data[name]) for name, read in readers}
        return cls(**given)


@functools.cache
def _readers(cls: type[Any]) -> dict[str, Callable[[Any], Any]]:
    hints = get_type_hints(cls)
    return {field.name: _reader(hints[field.name]) or _same for field in fields(cls)}


def _same(value: Any) -> Any:
    return value


def _reader(kind: Any) -> Callable[[Any], Any] | None:
    """What makes a value of this type from plain data; None if plain data is such a value."""
    parts = [_reader(part) for part in get_args(kind) if part not in (type(None), ...)]
    first, origin = (parts[-1] if parts else None), get_origin(kind)  # of a mapping, the values
    if origin is tuple:
        return lambda value: tuple(map(first or _same, value))
    if first is None or (origin in (types.UnionType, Union) and len(parts) > 1):
        return _reader_of_one(kind)
    if origin in (types.UnionType, Union):
        return lambda value: None if value is None else first(value)
    if issubclass(origin, Mapping):
        return lambda value: {key: first(item) for key, item in value.items()}
    return lambda value: [first(item) for item in value]


def _reader_of_one(kind: Any) -> Callable[[Any], Any] | None:
    if hasattr(kind, "from_dict"):
        reader: Callable[[Any], Any] = kind.from_dict
        return reader
    return kind if kind is float or (isinstance(kind, type) and issubclass(kind, Enum)) else None
