"""What plain data asks of this process's runtime; see `arrays/process_runtime.py`."""

from typing import Any

from .compile import call as call
from .runtime import current
from .runtime import devices as devices


def to_jax(data: Any) -> Any:
    """JAX's mesh or sharding for ours."""
    return current().backend.to_jax(data)


def mesh_from_jax(mesh: Any) -> Any:
    """Our mesh for JAX's."""
    return current().backend.mesh_from_jax(mesh)
