"""Trees: nested containers whose leaves are arrays, as arguments and results of programs.

JAX flattens trees in its own runtime, with every type that is registered there. Elsewhere optree
does, which knows the same containers and needs no jax.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from ..base.errors import InvalidArgumentError

NAMESPACE = "pyreactant"
"""Where optree keeps the dataclasses that `OpTrees` registers."""

IsLeaf = Callable[[Any], bool]


Keys = tuple[str | int, ...]
"""Where a leaf is: names in dictionaries and classes, numbers in sequences."""


def path_text(keys: Sequence[str | int]) -> str:
    """A leaf's place, for messages: "['w'][0]"."""
    return "".join(f"[{key!r}]" for key in keys)


class Trees(Protocol):
    """How a runtime flattens trees. A structure can be hashed and compared."""

    def flatten(self, tree: Any, is_leaf: IsLeaf | None = None) -> tuple[list[Any], Any]:
        """The leaves, and the structure without them."""

    def unflatten(self, structure: Any, leaves: Sequence[Any]) -> Any:
        """The tree of that structure with these leaves."""

    def is_leaf(self, structure: Any) -> bool:
        """Whether a structure is a single leaf."""

    def up_to(self, prefix: Any, tree: Any) -> list[Any]:
        """The parts of a tree below each leaf of a structure; ValueError if it does not fit."""

    def keys(self, tree: Any, is_leaf: IsLeaf | None = None) -> list[Keys]:
        """Where each leaf is."""


def broadcast(
    trees: Trees, prefix: Any, tree: Any, is_leaf: IsLeaf, what: str, of: str
) -> list[Any]:
    """For each leaf of a tree its entry in a prefix of the tree.

    Args:
        trees: How to flatten.
        prefix: A tree that may end earlier: one entry then serves all leaves below it.
        tree: The whole tree.
        is_leaf: What counts as an entry of the prefix.
        what: What the entries are, for the message.
        of: What the tree is, for the message.

    Raises:
        InvalidArgumentError: The prefix has another structure than the tree.
    """
    entries, structure = trees.flatten(prefix, is_leaf)
    try:
        parts = trees.up_to(structure, tree)
    except ValueError:
        raise InvalidArgumentError(
            f"{what} must have the structure of {of}, {outline(trees, tree)}, or be a prefix of "
            f"it, got {outline(trees, prefix, is_leaf)}"
        ) from None
    return [
        entry for entry, part in zip(entries, parts, strict=True) for _ in trees.flatten(part)[0]
    ]


def outline(trees: Trees, tree: Any, is_leaf: IsLeaf | None = None) -> str:
    """The structure of a tree in a short text, with "*" for each leaf."""
    leaves, structure = trees.flatten(tree, is_leaf)
    text = repr(trees.unflatten(structure, [_STAR] * len(leaves)))
    return text if len(text) <= 200 else f"{text[:200]}..."


class _Star:
    def __repr__(self) -> str:
        return "*"


_STAR = _Star()


class OpTrees:
    """Trees by optree, for runtimes without jax: dict, list, tuple, namedtuple, dataclass, None."""

    def flatten(self, tree: Any, is_leaf: IsLeaf | None = None) -> tuple[list[Any], Any]:
        import optree

        while True:
            try:
                leaves, structure = optree.tree_flatten(tree, is_leaf=is_leaf, namespace=NAMESPACE)
            except RecursionError:
                raise too_deep() from None
            new = {kind for kind in set(map(type, leaves)) if is_user_dataclass(kind)}
            new -= _registered
            if new and is_leaf is not None:
                new -= {type(leaf) for leaf in leaves if is_leaf(leaf)}
            if not new:
                return leaves, structure
            for kind in new:
                _register(kind)

    def unflatten(self, structure: Any, leaves: Sequence[Any]) -> Any:
        import optree

        return optree.tree_unflatten(structure, leaves)

    def is_leaf(self, structure: Any) -> bool:
        return bool(structure.is_leaf())

    def up_to(self, prefix: Any, tree: Any) -> list[Any]:
        self.flatten(tree)  # registers the dataclasses in it
        return list(prefix.flatten_up_to(tree))

    def keys(self, tree: Any, is_leaf: IsLeaf | None = None) -> list[Keys]:
        import optree

        def key(entry: Any) -> str | int:
            if isinstance(entry, optree.NamedTupleEntry):
                return str(entry.field)
            number = isinstance(entry.entry, int) and not isinstance(entry, optree.MappingEntry)
            return entry.entry if number else str(entry.entry)

        self.flatten(tree, is_leaf)
        places = optree.tree_accessors(tree, is_leaf=is_leaf, namespace=NAMESPACE)
        return [tuple(map(key, place)) for place in places]


_registered: set[type] = set()


_OURS = __package__.partition(".")[0] + "."


def too_deep() -> InvalidArgumentError:
    """The error for a tree that cannot be flattened."""
    return InvalidArgumentError(
        "a tree of arrays must not contain itself, nor be nested deeper than Python allows; pass "
        "lists and dictionaries of arrays"
    )


@functools.cache
def is_user_dataclass(kind: type) -> bool:
    """Whether a type is a dataclass; those of pyreactant itself are leaves."""
    return dataclasses.is_dataclass(kind) and not kind.__module__.startswith(_OURS)


def data_fields(kind: Any) -> tuple[list[str], list[str]]:
    """The fields of a dataclass that hold arrays, and those marked as static.

    A field is static with ``field(metadata={"static": True})``, as in JAX.
    """
    data: list[str] = []
    static: list[str] = []
    for field in dataclasses.fields(kind):
        (static if field.metadata.get("static") else data).append(field.name)
    return data, static


def rebuild_dataclass(kind: type, values: Iterable[tuple[str, Any]]) -> Any:
    """A dataclass with these fields, without a call of its constructor, which may check them."""
    made: Any = object.__new__(kind)
    for name, value in values:
        object.__setattr__(made, name, value)  # it may be frozen
    return made


def _register(kind: type) -> None:
    import optree

    data, static = data_fields(kind)

    def flatten(value: Any) -> tuple[Any, Any, Any]:
        fixed = tuple(getattr(value, name) for name in static)
        return [getattr(value, name) for name in data], fixed, tuple(data)

    def unflatten(fixed: Any, children: Any) -> Any:
        return rebuild_dataclass(kind, zip((*data, *static), (*children, *fixed), strict=True))

    optree.register_pytree_node(kind, flatten, unflatten, namespace=NAMESPACE)
    _registered.add(kind)
