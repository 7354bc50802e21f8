"""A device, and the block of an array that it holds."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .sharding import Index


@dataclass(frozen=True, slots=True)
class Device:
    """One device of the run.

    Attributes:
        position: Index in `pyreactant.devices()`, dense over all processes; `Mesh.device_ids`
            are positions.
        process_index: The process that owns the device.
        id: The runtime's own id. Not dense: JAX starts process 1's CPU devices at 2048.
        platform: "cpu", "gpu" or "tpu".
        kind: The vendor's name, such as "TPU v6e".

    Examples:
        >>> device = pr.devices()[5]
        >>> device.platform, device.position, device.process_index
        ('cpu', 5, 0)
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
        device: The device that holds it.
        index: Its place in the global array, one slice per dimension.

    Examples:
        >>> shard = x.addressable_shards[5]
        >>> shard.device.position, shard.index, shard.data.shape
        (5, (slice(4, 8, None), slice(2, 4, None)), (4, 2))
    """

    device: Device
    index: Index
    _read: Callable[[], np.ndarray]
    _read_into: Callable[[np.ndarray], object] | None = None
    """Writes the block into existing memory. Without it, blocks are copied twice."""

    @property
    def data(self) -> np.ndarray:
        """The block, copied from the device to the host if needed; do not write to it."""
        return self._read()
