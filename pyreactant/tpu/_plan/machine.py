"""The devices of a plan: an absent slice, or this machine's devices."""

import re
from dataclasses import dataclass

from ..._arguments import argument
from ..._errors import InvalidArgumentError
from .._topology import Topology
from .model import Speeds

# Bandwidth between slices if not published: that of v5e, the smallest published one.
_DCN = 3.125e9
# Rough figures of one CPU device. They choose the candidates, which are then measured.
_CPU_FLOPS, _CPU_MEMORY, _CPU_EXCHANGE = 2e10, 5e9, 2e9


@dataclass(frozen=True, slots=True)
class Machine:
    """Devices and the speeds of each.

    Attributes:
        devices: Number of devices of each slice.
        num_slices: Number of slices; 1 for this machine.
        memory_bytes: Memory of a device; None if unknown.
        flops: FLOP/s of a device.
        memory_bandwidth: Bytes/s of a device.
        exchange_bandwidth: Bytes/s that a device receives at most.
        slice_bandwidth: Bytes/s that a device receives from other slices.
        link_bandwidth: Bytes/s of a link in one direction; 0 if unknown.
        topology: The slice; None for this machine.
        platform: "tpu", or the platform of this machine's devices.
    """

    devices: int
    num_slices: int
    memory_bytes: int | None
    flops: float
    memory_bandwidth: float
    exchange_bandwidth: float
    slice_bandwidth: float
    link_bandwidth: float
    topology: Topology | None
    platform: str = "tpu"

    def speeds(self, num_axes: int) -> Speeds:
        """Speeds on a mesh. With several slices, its first axis is over the slices."""
        inside = (self.exchange_bandwidth,) * num_axes
        axes = inside if self.num_slices == 1 else (self.slice_bandwidth, *inside[1:])
        return Speeds(self.flops, self.memory_bandwidth, axes)


def slice_machine(found: Topology, dtype: str) -> Machine:
    """A slice, by its published speeds; see `Topology`."""
    kind = "float8" if re.match("float8", dtype) else dtype.removeprefix("u")
    peak = found.peak_flops.get(kind, found.peak_flops["bfloat16"])
    share = found.devices_per_chip
    one_way = found.ici_bandwidth / 2
    return Machine(
        devices=found.devices // found.num_slices,
        num_slices=found.num_slices,
        memory_bytes=found.hbm_bytes,
        flops=peak / share,
        memory_bandwidth=found.hbm_bandwidth / share,
        exchange_bandwidth=one_way / share,
        slice_bandwidth=(found.dcn_bandwidth or _DCN) / share,
        link_bandwidth=one_way / found.ici_links,
        topology=found,
    )


def local_machine(platform: str, devices: int) -> Machine:
    """This machine's devices, whose speeds will be measured."""
    if platform not in ("cpu", "gpu"):
        raise InvalidArgumentError(
            f"{argument('platform')} must be cpu or gpu, got {platform!r}; give "
            f"{argument('topology')} to plan for a TPU slice"
        )
    if not isinstance(devices, int) or devices < 1:
        raise InvalidArgumentError(
            f"{argument('devices')} must be a whole number from 1, got {devices!r}"
        )
    return Machine(
        devices, 1, None, _CPU_FLOPS, _CPU_MEMORY, _CPU_EXCHANGE, _CPU_EXCHANGE, 0.0, None, platform
    )
