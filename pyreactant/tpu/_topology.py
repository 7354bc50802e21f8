"""What a Cloud TPU slice is, by its name or shape: chips, VMs, devices, memory, speeds."""

import dataclasses
import itertools
import math
import re
from collections.abc import Iterator
from typing import Any

from .._errors import InvalidArgumentError
from ._generations import ALIASES, GENERATIONS, Generation
from ._nearest import no_such_slice
from ._notes import notes
from ._slices import (
    Shape,
    count,
    default_shape,
    host_bounds,
    shape_text,
    shapes,
    slice_name,
    wraparound,
)

_BY_COUNT = re.compile(r"([a-z0-9]+)-([0-9]{1,6})")
_BY_SHAPE = re.compile(r"([a-z0-9]+):([0-9]{1,4}(?:x[0-9]{1,4}){1,2})")
_BY_MACHINE = re.compile(r"([a-z0-9]+-[a-z]+)-([148])t:([0-9]{1,4}(?:x[0-9]{1,4}){1,2})")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """One or several equal slices, as plain data; numbers are of all slices, unless it says else.

    Attributes:
        name: Shortest name that `topology` reads back, such as "v6e-16" or "v5p:4x4x16".
        generation: "v2", "v3", "v4", "v5e", "v5p", "v6e" or "tpu7x".
        num_slices: Joined by the data-center network.
        shape: Chips along each dimension of one slice's ICI network.
        wraparound: For each dimension whether its links close to a ring.
        chips: Of all slices.
        cores: TensorCores.
        hosts: VMs; one process runs on each.
        chips_per_host: On one VM.
        host_bounds: Which chips of a slice one VM has, along three dimensions.
        devices: As JAX sees them.
        devices_per_process: Of them, local ones.
        devices_per_chip: 1, also where two cores are one device; else 2.
        hbm_bytes: Of one device, as the compiler sees it.
        hbm_bytes_per_chip: As published.
        peak_flops: FLOP/s of one chip by element type: "bfloat16", and "int8" and "float8" where
            they are published.
        hbm_bandwidth: Bytes/s of one chip.
        ici_bandwidth: Bytes/s of one chip over all of its links, both directions added.
        ici_links: Of one chip that has a neighbour on every side.
        dcn_bandwidth: Bytes/s of one chip between slices; None where nothing is published.
        runtime_version: Of the TPU VM image; None where Cloud TPU's API does not offer the slice.
        machine_type: GKE's; None where it has none.
        accelerator_type: Cloud TPU's name, and what TPU_ACCELERATOR_TYPE says on a VM.
        libtpu_name: Of one slice, such as "v6e:4x4".
        chip_config: libtpu's `chip_config_name`.
        notes: Where Cloud TPU, GKE and the runtime name the same thing differently.
    """

    name: str
    generation: str
    num_slices: int
    shape: tuple[int, ...]
    wraparound: tuple[bool, ...]
    chips: int
    cores: int
    hosts: int
    chips_per_host: int
    host_bounds: tuple[int, ...]
    devices: int
    devices_per_process: int
    devices_per_chip: int
    hbm_bytes: int
    hbm_bytes_per_chip: int
    peak_flops: dict[str, float] = dataclasses.field(hash=False)
    hbm_bandwidth: float
    ici_bandwidth: float
    ici_links: int
    dcn_bandwidth: float | None
    runtime_version: str | None
    machine_type: str | None
    accelerator_type: str
    libtpu_name: str
    chip_config: str
    notes: tuple[str, ...]

    @property
    def description_options(self) -> dict[str, Any]:
        """Keywords of `jax.experimental.topologies.get_topology_desc` that describe just this.

        Without them libtpu takes two VMs for v6e-8 and two devices a chip for v4.
        """
        options: dict[str, Any] = {
            "topology_name": self.libtpu_name,
            "chips_per_host_bounds": self.host_bounds,
            "chip_config_name": self.chip_config,
        }
        return options if self.num_slices == 1 else {**options, "num_slices": self.num_slices}

    def host_of(self, chip: tuple[int, ...]) -> int:
        """The VM, within its slice, of the chip at these coordinates; process index of slice 0."""
        host = 0
        sides = (*self.shape, 1, 1)[:3]
        for place, side, bound in reversed(
            list(zip((*chip, 0, 0)[:3], sides, self.host_bounds, strict=True))
        ):
            host = host * (side // bound) + place // bound
        return host

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        return dataclasses.asdict(self)


def topology(name: str, num_slices: int = 1) -> Topology:
    """What a slice is.

    Args:
        name: A slice ("v6e-16", "v5litepod-16" or "v5e-16", "v5p-32", "v4-64", "tpu7x-8"), a
            generation and shape ("v6e:4x4", "v5p:2x2x4"), or a machine type of GKE and a shape
            ("ct6e-standard-4t:2x4").
        num_slices: How many equal ones.

    Raises:
        InvalidArgumentError: There is no such slice; the message has the nearest ones.
    """
    if not isinstance(num_slices, int) or isinstance(num_slices, bool) or num_slices < 1:
        raise InvalidArgumentError(f"num_slices must be a whole number from 1, got {num_slices!r}")
    if not isinstance(name, str):
        raise InvalidArgumentError(f"a slice is named as 'v6e-16' or 'v6e:4x4', got {name!r}")
    return _build(name, *_parse(name), num_slices)


def topologies(max_chips: int = 256) -> Iterator[Topology]:
    """Every slice of every generation with at most so many chips, one of each."""
    for generation in GENERATIONS.values():
        for shape in shapes(generation, max_chips):
            yield topology(f"{generation.name}:{shape_text(shape)}")


def _parse(name: str) -> tuple[Generation, Shape, int | None]:
    """The generation, the shape, and how many chips a VM has where the name says it."""
    text = name.strip().lower()
    if found := _BY_COUNT.fullmatch(text):
        generation = GENERATIONS.get(ALIASES.get(found[1], ""))
        if generation is not None:
            per_count = generation.cores_per_chip if generation.counts_cores else 1
            chips, rest = divmod(int(found[2]), per_count)
            shape = None if rest else default_shape(generation, chips)
            if shape is not None:
                return generation, shape, None
    elif found := _BY_SHAPE.fullmatch(text):
        generation = GENERATIONS.get(ALIASES.get(found[1], ""))
        shape = tuple(map(int, found[2].split("x")))
        if generation is not None and shape in shapes(generation):
            return generation, shape, None
    elif found := _BY_MACHINE.fullmatch(text):
        fitting = (g for g in GENERATIONS.values() if g.machine == found[1])
        shape, per_host = tuple(map(int, found[3].split("x"))), int(found[2])
        for generation in fitting:
            bounds = host_bounds(generation, shape, per_host)
            if shape in shapes(generation) and math.prod(bounds) == per_host:
                return generation, shape, per_host
    raise no_such_slice(name)


def _build(
    asked: str, generation: Generation, shape: Shape, per_host: int | None, num_slices: int
) -> Topology:
    bounds = host_bounds(generation, shape, per_host)
    chips, chips_per_host = math.prod(shape), math.prod(bounds)
    as_in_cloud = bounds == host_bounds(generation, shape)
    return Topology(
        name=slice_name(generation, shape) if as_in_cloud else asked.strip().lower(),
        generation=generation.name,
        num_slices=num_slices,
        shape=shape,
        wraparound=wraparound(generation, shape),
        chips=num_slices * chips,
        cores=num_slices * chips * generation.cores_per_chip,
        hosts=num_slices * (chips // chips_per_host),
        chips_per_host=chips_per_host,
        host_bounds=bounds,
        devices=num_slices * chips * generation.devices_per_chip,
        devices_per_process=chips_per_host * generation.devices_per_chip,
        devices_per_chip=generation.devices_per_chip,
        hbm_bytes=generation.hbm_bytes,
        hbm_bytes_per_chip=generation.hbm_bytes_per_chip,
        peak_flops=dict(generation.peak_flops),
        hbm_bandwidth=generation.hbm_bandwidth,
        ici_bandwidth=generation.ici_bandwidth,
        ici_links=generation.ici_links,
        dcn_bandwidth=generation.dcn_bandwidth,
        runtime_version=generation.runtime_version,
        machine_type=generation.machine and f"{generation.machine}-{chips_per_host}t",
        accelerator_type=f"{generation.prefix}-{count(generation, chips)}",
        libtpu_name=f"{generation.name}:{shape_text(shape)}",
        chip_config=generation.chip_config,
        notes=notes(generation, shape, bounds),
    )


def chips(found: Topology) -> Iterator[tuple[int, ...]]:
    """Coordinates of the chips of one slice, the first dimension the fastest, as libtpu does."""
    for place in itertools.product(*(range(side) for side in reversed(found.shape))):
        yield place[::-1]
