"""Trees by JAX, with every type that is registered there, and dataclasses that are not."""

from collections.abc import Sequence
from typing import Any

import jax

from ..._core.tree import IsLeaf, data_fields, is_user_dataclass


class JaxTrees:
    """Flattens as `jax.tree` does; a dataclass that JAX does not know is registered when seen."""

    def flatten(self, tree: Any, is_leaf: IsLeaf | None = None) -> tuple[list[Any], Any]:
        """As `Trees.flatten`."""
        while True:
            leaves, structure = jax.tree.flatten(tree, is_leaf=is_leaf)
            new = {kind for kind in set(map(type, leaves)) if is_user_dataclass(kind)}
            if new and is_leaf is not None:
                new -= {type(leaf) for leaf in leaves if is_leaf(leaf)}
            if not new:
                return leaves, structure
            for kind in new:
                data, static = data_fields(kind)
                jax.tree_util.register_dataclass(kind, data_fields=data, meta_fields=static)

    def unflatten(self, structure: Any, leaves: Sequence[Any]) -> Any:
        """As `Trees.unflatten`."""
        return jax.tree.unflatten(structure, leaves)

    def is_leaf(self, structure: Any) -> bool:
        """As `Trees.is_leaf`."""
        return jax.tree_util.treedef_is_leaf(structure) and structure.num_leaves == 1

    def up_to(self, prefix: Any, tree: Any) -> list[Any]:
        """As `Trees.up_to`."""
        self.flatten(tree)  # registers the dataclasses in it
        return list(prefix.flatten_up_to(tree))

    def paths(self, tree: Any) -> list[str]:
        """As `Trees.paths`."""
        self.flatten(tree)
        return [jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(tree)]
