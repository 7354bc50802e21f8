"""Shardings in our form: JAX's are taken wherever ours are."""

from typing import Any

from .._core.sharding import NamedSharding


def is_sharding(node: object) -> bool:
    """Whether a node of a tree is one of our shardings."""
    return isinstance(node, NamedSharding)


def as_sharding(sharding: Any) -> Any:
    """Our form of a `jax.sharding.NamedSharding`; anything else as it is."""
    if isinstance(sharding, NamedSharding):
        return sharding
    if hasattr(sharding, "mesh") and hasattr(sharding, "spec"):
        return NamedSharding(sharding.mesh, sharding.spec)
    return sharding
