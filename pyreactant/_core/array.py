"""ShardedArray: one global array, of which each device holds a block."""

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np

from .._errors import NotAddressableError
from . import progress
from .device import Device, Shard
from .mesh import Mesh
from .sharding import NamedSharding

if TYPE_CHECKING:
    from rich.console import RenderableType


class Aval(NamedTuple):
    """An array's abstract value: shape, dtype and sharding, without the data."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    sharding: NamedSharding


class ArrayReader(Protocol):
    """What an array asks of the runtime that holds it; `AbstractBackend` states the laws."""

    name: ClassVar[str]

    def devices(self) -> tuple[Device, ...]:
        """All devices of the run."""

    def addressable_shards(self, value: Any) -> list[Shard]:
        """The blocks on this process's devices."""

    def is_fully_addressable(self, mesh: Mesh) -> bool:
        """Whether all devices of a mesh belong to this process."""

    def gather(self, value: Any, sharding: NamedSharding) -> np.ndarray:
        """The whole array on every process. Collective."""

    def block_until_ready(self, value: Any) -> None:
        """Wait until the blocks on this process's devices are computed."""


class ShardedArray:
    """A global array in blocks on the devices of a mesh; made by `device_put` and programs.

    Attributes:
        value: The runtime's own array (for JAX a `jax.Array`).
        aval: Shape, dtype and sharding.
    """

    __slots__ = ("_backend", "aval", "value")

    def __init__(self, value: Any, aval: Aval, backend: ArrayReader) -> None:
        self.value = value
        self.aval = aval
        self._backend = backend

    @property
    def shape(self) -> tuple[int, ...]:
        """Global shape, the same on every process."""
        return self.aval.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return self.aval.dtype

    @property
    def sharding(self) -> NamedSharding:
        """The mesh and the partition spec."""
        return self.aval.sharding

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def addressable_shards(self) -> list[Shard]:
        """The blocks on this process's devices, by device position; no communication."""
        return self._backend.addressable_shards(self.value)

    @property
    def is_fully_addressable(self) -> bool:
        """Whether this process can read every block without communication."""
        return self._backend.is_fully_addressable(self.sharding.mesh)

    def gather(self) -> np.ndarray:
        """The whole array in C order, on every process. Collective."""
        if self.is_fully_addressable:
            return self._assemble()
        with progress.collective():
            return self._backend.gather(self.value, self.sharding)

    def block_until_ready(self) -> "ShardedArray":
        """Wait until the blocks on this process's devices are computed."""
        progress.waiting += 1
        try:
            self._backend.block_until_ready(self.value)
        finally:
            progress.waiting -= 1
        return self

    def _assemble(self) -> np.ndarray:
        whole = np.empty(self.shape, self.dtype)
        seen = set()
        for shard in self.addressable_shards:
            start = tuple(s.start for s in shard.index)
            if start not in seen:
                seen.add(start)
                if shard._read_into is None:
                    whole[shard.index] = shard.data
                else:
                    # The ellipsis gives a view for 0-d arrays too.
                    place: Any = (*shard.index, ...)
                    shard._read_into(whole[place])
        return whole

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if not self.is_fully_addressable:
            raise NotAddressableError(
                f"{self!r} lies partly on devices of other processes, so this process cannot "
                "read all of it; call gather() on every process, or use addressable_shards"
            )
        if copy is False:
            raise ValueError("a ShardedArray cannot become a NumPy array without a copy")
        return self._assemble().astype(dtype or self.dtype, copy=False)

    def __repr__(self) -> str:
        return (
            f"ShardedArray(shape={self.shape}, dtype={self.dtype}, mesh={self.sharding.mesh!r}, "
            f"spec={self.sharding.spec}, backend={self._backend.name!r})"
        )

    def _repr_html_(self) -> str:
        from .draw import html

        return html(self.sharding, self.shape, self._backend.devices(), title=repr(self))

    def __rich__(self) -> "RenderableType":
        from .draw import Drawing

        return Drawing(self.sharding, self.shape, self._backend.devices(), title=repr(self))
