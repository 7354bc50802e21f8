"""Whether values, of JSON or of a user, have the annotated types of a dataclass."""

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Mapping
from typing import Any

_WORDS = {
    bool: "True or False",
    int: "a whole number (int)",
    float: "a finite number (float)",
    str: "text",
    tuple: "a list of texts",
    types.NoneType: "None",
}


def fits(value: Any, annotation: Any) -> bool:
    """Whether a value has an annotated type; int is a float, bool is not a number."""
    return any(_is(value, kind) for kind in _kinds(annotation))


def words(annotation: Any) -> str:
    """An annotated type for a message, such as "text or None"."""
    return " or ".join(_WORDS[kind] for kind in _kinds(annotation))


def is_made_of(kind: type, data: Mapping[str, Any]) -> bool:
    """Whether a dataclass takes these values of some of its fields, each with its type."""
    annotations = _annotations(kind)
    return all(
        name in annotations and fits(value, annotations[name]) for name, value in data.items()
    )


def _is(value: Any, kind: type) -> bool:
    if isinstance(value, bool):
        return kind is bool
    if kind is float:
        return isinstance(value, int | float) and math.isfinite(value)
    if kind is tuple:
        return isinstance(value, tuple) and all(isinstance(part, str) for part in value)
    return isinstance(value, kind)


@functools.cache
def _kinds(annotation: Any) -> tuple[type, ...]:
    parts = typing.get_args(annotation) if isinstance(annotation, types.UnionType) else [annotation]
    return tuple(typing.get_origin(part) or part for part in parts)


@functools.cache
def _annotations(kind: type) -> dict[str, Any]:
    return {field.name: field.type for field in dataclasses.fields(kind)}
