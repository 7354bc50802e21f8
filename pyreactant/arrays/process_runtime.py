"""The runtime of this process, as far as plain data needs it.

A mesh over all devices, the sharding of a JAX array and the call of a program need the runtime,
which imports this data. So `pyreactant/__init__` says where the runtime is: it sets `find`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol


class ProcessRuntime(Protocol):
    """What data asks the runtime; `runtimes/for_data.py` answers."""

    def devices(self) -> Sequence[object]:
        """All devices of the run; the runtime starts if none runs."""

    def to_jax(self, data: Any, /) -> Any:
        """JAX's mesh or sharding for ours; StateError if the runtime is not JAX."""

    def mesh_from_jax(self, mesh: Any, /) -> Any:
        """Our mesh for JAX's; StateError if the runtime is not JAX."""

    def call(self, program: Any, args: tuple[Any, ...], static: Mapping[str, Any], /) -> Any:
        """Run a program on placed arrays. Collective."""


find: Callable[[], ProcessRuntime]
