"""The devices of a plan, of an absent slice or of this machine, and the load of their links.

XLA's estimate ignores where the devices of a mesh axis are on the network; the loads count it. The
devices of each group along an axis form two rings in opposite directions, each with half of the
data (the all-gather and reduce-scatter that use both directions of every link). A ring visits the
chips row by row, back and forth. A block travels from a chip to the next one along the dimensions
in turn, the short way round if a dimension forms a ring. With `load` the most blocks over any link
in one step, halved for the halved data, all blocks of g - 1 steps have arrived after

    seconds = received bytes * load / bytes per second of a link in one direction.

Axes that exchange at the same time share links, whose loads add up; so loads are kept per link.
"""

import functools
import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...arrays.mesh import Mesh
from ...base.errors import InvalidArgumentError, argument, check_count
from ...base.slices.topology import Topology
from ..request import peak_of
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

    def link_seconds(self, mesh: Mesh, received: Sequence[float]) -> float:
        """Time until the busiest link has carried its data, with all axes exchanging at once.

        Args:
            mesh: A mesh of the slice's devices.
            received: Bytes that a device receives along each axis.
        """
        assert self.topology is not None
        total: dict[Link, float] = {}
        for amount, loads in zip(received, loads_of(self.topology, mesh), strict=True):
            if amount:
                for link, load in loads.items():
                    total[link] = total.get(link, 0.0) + amount * load
        return max(total.values(), default=0.0) / self.link_bandwidth


def slice_machine(slice_: Topology, dtype: str) -> Machine:
    """A slice, by its published speeds; see `Topology`."""
    peak = slice_.peak_flops[peak_of(dtype, slice_)]
    share = slice_.devices_per_chip
    one_way = slice_.ici_bandwidth / 2
    return Machine(
        devices=slice_.devices // slice_.num_slices,
        num_slices=slice_.num_slices,
        memory_bytes=slice_.hbm_bytes,
        flops=peak / share,
        memory_bandwidth=slice_.hbm_bandwidth / share,
        exchange_bandwidth=one_way / share,
        slice_bandwidth=(slice_.dcn_bandwidth or _DCN) / share,
        link_bandwidth=one_way / slice_.ici_links,
        topology=slice_,
    )


def local_machine(platform: str, devices: int) -> Machine:
    """This machine's devices, whose speeds will be measured."""
    if platform not in ("cpu", "gpu"):
        raise InvalidArgumentError(
            f"{argument('platform')} must be cpu or gpu, got {platform!r}; give "
            f"{argument('topology')} to plan for a TPU slice"
        )
    check_count("devices", devices)
    return Machine(
        devices, 1, None, _CPU_FLOPS, _CPU_MEMORY, _CPU_EXCHANGE, _CPU_EXCHANGE, 0.0, None, platform
    )


Chip = tuple[int, int, int, int]
"""The slice, and the coordinates in its network along three dimensions."""

Link = tuple[Chip, int, int]
"""A link from a chip along a dimension, up (1) or down (-1)."""


def chips_of(slice_: Topology) -> list[Chip]:
    """The chip of each device, by its position in `pyreactant.devices()` on the slice.

    Positions are ordered by process, then by JAX's id, which counts the chips of a VM (first
    dimension fastest) and then the devices of a chip.
    """
    sides = (*slice_.shape, 1, 1)[:3]
    bounds = slice_.host_bounds
    corners = [range(0, side, bound) for side, bound in zip(sides, bounds, strict=True)]
    chips = []
    for piece in range(slice_.num_slices):
        for z0, y0, x0 in itertools.product(*reversed(corners)):
            for z, y, x in itertools.product(*(range(bound) for bound in reversed(bounds))):
                chips += [(piece, x0 + x, y0 + y, z0 + z)] * slice_.devices_per_chip
    return chips


def along_network(slice_: Topology, order: Sequence[int]) -> list[int]:
    """Positions of the devices ordered by their chips' coordinates, not by their VMs.

    Args:
        slice_: The slice or slices.
        order: The dimensions, slowest first, such as (2, 1, 0).
    """
    chips = chips_of(slice_)
    return sorted(
        range(len(chips)), key=lambda i: (chips[i][0], *(chips[i][1 + d] for d in order), i)
    )


@functools.lru_cache(maxsize=256)
def loads_of(slice_: Topology, mesh: Mesh) -> tuple[Mapping[Link, float], ...]:
    """The load that each axis of a mesh puts on each link; between slices others are used."""
    chips = chips_of(slice_)
    places = [chips[position] for position in mesh.device_ids]
    return tuple(_axis_load(slice_, mesh, places, axis) for axis in range(len(mesh.shape)))


def _axis_load(
    slice_: Topology, mesh: Mesh, places: Sequence[Chip], axis: int
) -> Mapping[Link, float]:
    size = mesh.shape[axis]
    stride = math.prod(mesh.shape[axis + 1 :])
    busy: Counter[Link] = Counter()
    for start in range(len(places)):
        if start // stride % size:
            continue
        ring = _back_and_forth([places[start + i * stride] for i in range(size)])
        for here, after in zip(ring, ring[1:] + ring[:1], strict=True):
            if here[0] == after[0]:
                busy.update(_route(slice_, here, after))
                busy.update(_route(slice_, after, here))
    return {link: count / 2 for link, count in busy.items()}


def _back_and_forth(chips: Sequence[Chip]) -> list[Chip]:
    """The chips row by row, every second row backwards, so that the next chip is near."""
    rows = {y: i for i, y in enumerate(sorted({chip[2] for chip in chips}))}
    layers = {z: i for i, z in enumerate(sorted({chip[3] for chip in chips}))}

    def place(chip: Chip) -> tuple[int, int, int, int]:
        piece, x, y, z = chip
        y_turned = -y if layers[z] % 2 else y
        backwards = (rows[y] + layers[z] * (len(rows) - 1)) % 2
        return piece, z, y_turned, -x if backwards else x

    return sorted(chips, key=place)


def _route(slice_: Topology, start: Chip, end: Chip) -> list[Link]:
    links = []
    here = list(start)
    rings = (*slice_.wraparound, False, False)
    for dimension, side in enumerate(slice_.shape, 1):
        way = end[dimension] - here[dimension]
        if rings[dimension - 1] and abs(way) > side // 2:
            way -= side if way > 0 else -side
        step = 1 if way > 0 else -1
        for _ in range(abs(way)):
            links.append((tuple(here), dimension, step))
            here[dimension] = (here[dimension] + step) % side
    return links  # type: ignore[return-value]
