"""The structure of arguments and results as plain data, which Julia reads and writes.

``julia/src/trees.jl`` is the other side: there a dict, a dataclass or a namedtuple is a NamedTuple,
a tuple a Tuple, a list a Vector (a Tuple if its parts have several types), and None nothing. A
NamedTuple that a program returns becomes a dict.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..._core.tree import data_fields, is_user_dataclass
from ..._errors import InvalidArgumentError

Described = int | tuple[Any, ...] | None
"""An array's number, None, or the kind of a container, its names if it has some, and its parts."""


def describe(tree: Any, what: str) -> Described:
    """The structure of arguments.

    Args:
        tree: The arguments, with a number in place of each array.
        what: The program, for the message.

    Raises:
        InvalidArgumentError: A container, a key or a static field cannot reach Julia.
    """
    if tree is None or isinstance(tree, int):
        return tree
    kind: type = type(tree)
    if is_user_dataclass(kind):
        return _describe_dataclass(tree, what)
    if isinstance(tree, dict):
        return _named([(key, describe(tree[key], what)) for key in _keys(tree, what)])
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return _named([(n, describe(getattr(tree, n), what)) for n in tree._fields])
    if type(tree) in (list, tuple):
        return (type(tree).__name__, *(describe(part, what) for part in tree))
    raise InvalidArgumentError(
        f"{what}: Julia takes trees of dicts, dataclasses, namedtuples, tuples, lists and None, "
        f"got a {type(tree).__name__}"
    )


def _named(parts: Sequence[tuple[str, Described]]) -> Described:
    return ("named", tuple(name for name, _ in parts), *(part for _, part in parts))


def _keys(tree: Mapping[Any, Any], what: str) -> Iterable[str]:
    for key in tree:
        if not isinstance(key, str):
            raise InvalidArgumentError(
                f"{what}: a dict reaches Julia as a NamedTuple, so its keys must be text, got "
                f"{key!r}"
            )
    # Equal dicts may have another order, which must not make another program.
    return tree if isinstance(tree, OrderedDict) else sorted(tree)


def _describe_dataclass(tree: Any, what: str) -> Described:
    data, static = data_fields(type(tree))
    parts = [(name, describe(getattr(tree, name), what)) for name in data]
    for name in static:
        value = getattr(tree, name)
        if not is_plain(value):
            raise InvalidArgumentError(
                f"{what}: static field {name!r} of {type(tree).__name__} must be a number, a text, "
                f"None or a tuple of these to reach Julia, got a {type(value).__name__}"
            )
        parts.append((name, ("value", value)))
    return _named(parts)


def is_plain(value: Any) -> bool:
    """Whether a value that is part of a program can reach Julia."""
    if isinstance(value, tuple):
        return all(map(is_plain, value))
    return value is None or isinstance(value, (bool, int, float, complex, str))


def rebuild(node: Any) -> Any:
    """The tree that Julia describes, with its number in place of each array."""
    if node is None or isinstance(node, int):
        return node
    kind, *parts = node
    if kind == "named":
        names, *parts = parts
        return {str(name): rebuild(part) for name, part in zip(names, parts, strict=True)}
    rebuilt = [rebuild(part) for part in parts]
    return tuple(rebuilt) if kind == "tuple" else rebuilt


def plain(node: Any) -> Any:
    """What Julia describes, as plain data for JSON."""
    if node is None or isinstance(node, (int, str)):
        return node
    return [plain(part) for part in node]
