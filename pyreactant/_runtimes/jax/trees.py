"""Trees by JAX, with every type that is registered there, and dataclasses that are not."""

import functools
from collections.abc import Sequence
from typing import Any

import jax

from ..._core.tree import IsLeaf, data_fields, is_user_dataclass, rebuilt


class DataclassNode:
    """What JAX sees of a dataclass that its user has not registered with it.

    Registering the dataclass itself would be seen by the whole process, and its user could no
    longer do so.
    """

    __slots__ = ("children", "fixed", "kind")

    def __init__(self, kind: type, fixed: tuple[Any, ...], children: Sequence[Any]) -> None:
        self.kind, self.fixed, self.children = kind, fixed, children

    @classmethod
    def of(cls, value: Any) -> "DataclassNode":
        """The node of a dataclass."""
        data, static = data_fields(type(value))
        fixed = tuple(getattr(value, name) for name in static)
        return cls(type(value), fixed, [wrapped(getattr(value, name)) for name in data])

    def restored(self) -> Any:
        """The dataclass."""
        data, static = data_fields(self.kind)
        values = (*map(_restored, self.children), *self.fixed)
        return rebuilt(self.kind, zip((*data, *static), values, strict=True))


def _flatten_with_keys(node: DataclassNode) -> Any:
    data, _ = data_fields(node.kind)
    keys = map(jax.tree_util.GetAttrKey, data)
    return list(zip(keys, node.children, strict=True)), (node.kind, node.fixed)


jax.tree_util.register_pytree_with_keys(
    DataclassNode,
    _flatten_with_keys,
    lambda kind, children: DataclassNode(kind[0], kind[1], list(children)),
    lambda node: (node.children, (node.kind, node.fixed)),
)


class JaxTrees:
    """Flattens as `jax.tree` does, and dataclasses that JAX does not know."""

    def flatten(self, tree: Any, is_leaf: IsLeaf | None = None) -> tuple[list[Any], Any]:
        """As `Trees.flatten`."""
        leaves, structure = jax.tree.flatten(tree, is_leaf=is_leaf)
        if any(map(is_user_dataclass, set(map(type, leaves)))):
            return jax.tree.flatten(wrapped(tree, is_leaf), is_leaf=is_leaf)
        return leaves, structure

    def unflatten(self, structure: Any, leaves: Sequence[Any]) -> Any:
        """As `Trees.unflatten`."""
        tree = jax.tree.unflatten(structure, leaves)
        return _restored(tree) if _has_dataclasses(structure) else tree

    def is_leaf(self, structure: Any) -> bool:
        """As `Trees.is_leaf`."""
        return jax.tree_util.treedef_is_leaf(structure) and structure.num_leaves == 1

    def up_to(self, prefix: Any, tree: Any) -> list[Any]:
        """As `Trees.up_to`."""
        return list(prefix.flatten_up_to(wrapped(tree)))

    def paths(self, tree: Any) -> list[str]:
        """As `Trees.paths`."""
        found = jax.tree.leaves_with_path(wrapped(tree))
        return [jax.tree_util.keystr(path) for path, _ in found]


def wrapped(tree: Any, is_leaf: IsLeaf | None = None) -> Any:
    """A tree that JAX can flatten: with nodes in place of dataclasses that it does not know."""

    def wrap(leaf: Any) -> Any:
        kind: type = type(leaf)
        if is_user_dataclass(kind) and not (is_leaf is not None and is_leaf(leaf)):
            return DataclassNode.of(leaf)
        return leaf

    return jax.tree.map(wrap, tree, is_leaf=is_leaf)


def _restored(tree: Any) -> Any:
    def restore(leaf: Any) -> Any:
        return leaf.restored() if isinstance(leaf, DataclassNode) else leaf

    return jax.tree.map(restore, tree, is_leaf=lambda node: isinstance(node, DataclassNode))


@functools.lru_cache(maxsize=1024)
def _has_dataclasses(structure: Any) -> bool:
    return DataclassNode.__name__ in str(structure)
