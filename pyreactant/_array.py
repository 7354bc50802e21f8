"""ShardedArray: one global array, of which each device holds a block."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import _supervised
from ._errors import NotAddressableError
from ._sharding import Index, NamedSharding

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ._backend import AbstractBackend


@dataclass(frozen=True, slots=True)
class Device:
    """One device of the run.

    Attributes:
        position: Index in `pyreactant.devices()`, dense over all processes; what
            `Mesh.device_ids` means.
        process_index: The process that the device belongs to.
        id: The runtime's own id. Not dense: JAX starts process 1's CPU devices at 2048.
        platform: "cpu", "gpu" or "tpu".
        kind: The maker's name, for instance "TPU v6e".
    """

    position: int
    process_index: int
    id: int
    platform: str
    kind: str

    def __str__(self) -> str:
        return f"{self.platform}:{self.position}"


@dataclass(frozen=True, slots=True)
class Shard:
    """The block of an array on one addressable device.

    Attributes:
        device: Where it lies.
        index: Which block of the global array it is, one slice per dimension.
    """

    device: Device
    index: Index
    _read: Callable[[], np.ndarray]
    _read_into: Callable[[np.ndarray], object] | None = None
    """Where the runtime can write to memory that is there; without it blocks are copied twice."""

    @property
    def data(self) -> np.ndarray:
        """The block, copied from the device to the host where needed; do not write to it."""
        return self._read()


class Aval(NamedTuple):
    """What is known of an array without its data: its abstract value."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    sharding: NamedSharding


class ShardedArray:
    """A global array in blocks on the devices of a mesh; made by `device_put` and programs.

    Attributes:
        value: The runtime's own array (for JAX a `jax.Array`).
        aval: Shape, dtype and sharding.
    """

    __slots__ = ("_backend", "aval", "value")

    def __init__(self, value: Any, aval: Aval, backend: "AbstractBackend") -> None:
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
        with _supervised.collective():
            return self._backend.gather(self.value, self.sharding)

    def block_until_ready(self) -> "ShardedArray":
        """Wait until the blocks on this process's devices are computed."""
        _supervised.waiting += 1
        try:
            self._backend.block_until_ready(self.value)
        finally:
            _supervised.waiting -= 1
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
                    # With an ellipsis it is memory also where there are no dimensions.
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
        from ._draw import html

        return html(self.sharding, self.shape, self._backend.devices(), title=repr(self))

    def __rich__(self) -> "RenderableType":
        from ._draw import Drawing

        return Drawing(self.sharding, self.shape, self._backend.devices(), title=repr(self))
