"""The TPU generations: published figures of a chip, and the compiler's figures.

Sources, by column:

- cores, bfloat16 / int8 / float8 peak, HBM, HBM bandwidth: "Key specifications" on Google's pages
  cloud.google.com/tpu/docs/{v3,v4,v5e,v5p,v6e,tpu7x}; v2 from Jouppi et al., "Ten Lessons From
  Three Generations Shaped Google's TPUv4i" (ISCA 2021), table 1; int8 of v5p from the
  announcement of v5p (Google Cloud blog, December 2023), which JAX repeats (jax/_src/tpu_info.py).
- ICI, all links of a chip, both directions: the same pages ("Bidirectional ICI bandwidth per
  chip"); v4 from Jouppi et al., "TPU v4" (ISCA 2023): 6 links of 50 GB/s each way; v2 and v3 from
  Jouppi et al., "A domain-specific supercomputer" (CACM 2020): 4 links of 496 and 656 Gbit/s.
- data-center network: "DCN bandwidth per chip" on the tpu7x page; v5e: 6.4 Tbit/s of a pod of 256.
- HBM that the compiler can use: from libtpu's error for a program that is too large, "exceeds
  available HBM (31.24G)", in libtpu 0.0.50 (0.0.42 gives at most 0.01G more). It is less than the
  chip has, because the runtime reserves a part (v5p: the published 95 is rounded down).
- devices: JAX has one device per chip if both cores work as one ("megacore", v4 and v5p).
- GKE's machine types and values of the node label cloud.google.com/gke-tpu-accelerator:
  cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus.
"""

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """The figures that all slices of a generation share.

    Attributes:
        name: libtpu's name, such as "v5e".
        prefix: Prefix of Cloud TPU's accelerator types, such as "v5litepod".
        cores_per_chip: TensorCores of a chip; N in "v5p-N" counts them.
        devices_per_chip: JAX devices of a chip.
        dimensions: Number of dimensions of the ICI network.
        torus_side: A dimension that is a multiple of it forms a ring.
        one_vm: A shape beyond 2x2 that Cloud TPU puts on one VM.
        hbm_bytes: Memory of a device that the compiler can use.
        hbm_bytes_per_chip: Published memory of a chip.
        peak_flops: FLOP/s of a chip by element type.
        hbm_bandwidth: Bytes/s of a chip.
        ici_bandwidth: Bytes/s of a chip, over all links, both directions added.
        dcn_bandwidth: Bytes/s of a chip between slices; None if not published.
        max_chips: Number of chips of the largest slice.
        runtime_version: TPU VM image for JAX; None if Cloud TPU's API does not offer one.
        machine: GKE's machine type without "-4t", or None.
    """

    name: str
    prefix: str
    cores_per_chip: int = 2
    devices_per_chip: int = 1
    dimensions: int = 3
    torus_side: int = 4
    one_vm: tuple[int, ...] | None = None
    hbm_bytes: int
    hbm_bytes_per_chip: int
    peak_flops: Mapping[str, float] = field(hash=False)
    hbm_bandwidth: float
    ici_bandwidth: float
    dcn_bandwidth: float | None = None
    max_chips: int
    runtime_version: str | None = "tpu-ubuntu2204-base"
    machine: str | None = None

    @property
    def ici_links(self) -> int:
        """Number of links of a chip, two for each dimension."""
        return 2 * self.dimensions

    @property
    def chip_config(self) -> str:
        """The `chip_config_name` of libtpu that gives this number of devices."""
        return "megacore" if self.cores_per_chip > self.devices_per_chip else "default"


def _gib(amount: float) -> int:
    return int(amount * GIB)


_ALL = (
    Generation(
        name="v2",
        prefix="v2",
        devices_per_chip=2,
        dimensions=2,
        torus_side=16,
        hbm_bytes=_gib(7.48),
        hbm_bytes_per_chip=_gib(16),
        peak_flops={"bfloat16": 46e12},
        hbm_bandwidth=700e9,
        ici_bandwidth=8 * 62e9,
        max_chips=256,
    ),
    Generation(
        name="v3",
        prefix="v3",
        devices_per_chip=2,
        dimensions=2,
        torus_side=32,
        hbm_bytes=_gib(15.48),
        hbm_bytes_per_chip=_gib(32),
        peak_flops={"bfloat16": 123e12},
        hbm_bandwidth=900e9,
        ici_bandwidth=8 * 82e9,
        max_chips=1024,
    ),
    Generation(
        name="v4",
        prefix="v4",
        hbm_bytes=_gib(30.75),
        hbm_bytes_per_chip=_gib(32),
        peak_flops={"bfloat16": 275e12, "int8": 275e12},
        hbm_bandwidth=1200e9,
        ici_bandwidth=12 * 50e9,
        max_chips=4096,
        machine="ct4p-hightpu",
    ),
    Generation(
        name="v5e",
        prefix="v5litepod",
        cores_per_chip=1,
        dimensions=2,
        torus_side=16,
        one_vm=(2, 4),
        hbm_bytes=_gib(15.75),
        hbm_bytes_per_chip=_gib(16),
        peak_flops={"bfloat16": 197e12, "int8": 393e12},
        hbm_bandwidth=819e9,
        ici_bandwidth=400e9,
        dcn_bandwidth=6.4e12 / 8 / 256,
        max_chips=256,
        runtime_version="v2-alpha-tpuv5-lite",
        machine="ct5lp-hightpu",
    ),
    Generation(
        name="v5p",
        prefix="v5p",
        hbm_bytes=_gib(95.73),
        hbm_bytes_per_chip=_gib(95),
        peak_flops={"bfloat16": 459e12, "int8": 918e12, "float8": 459e12},
        hbm_bandwidth=2765e9,
        ici_bandwidth=1200e9,
        dcn_bandwidth=50e9 / 8,
        max_chips=6144,
        runtime_version="v2-alpha-tpuv5",
        machine="ct5p-hightpu",
    ),
    Generation(
        name="v6e",
        prefix="v6e",
        cores_per_chip=1,
        dimensions=2,
        torus_side=16,
        one_vm=(2, 4),
        hbm_bytes=_gib(31.24),
        hbm_bytes_per_chip=_gib(32),
        peak_flops={"bfloat16": 918e12, "int8": 1836e12, "float8": 918e12},
        hbm_bandwidth=1638e9,
        ici_bandwidth=800e9,
        dcn_bandwidth=100e9 / 8,
        max_chips=256,
        runtime_version="v2-alpha-tpuv6e",
        machine="ct6e-standard",
    ),
    Generation(
        name="tpu7x",
        prefix="tpu7x",
        devices_per_chip=2,
        hbm_bytes=_gib(94.74),
        hbm_bytes_per_chip=_gib(192),
        peak_flops={"bfloat16": 2307e12, "float8": 4614e12},
        hbm_bandwidth=7380e9,
        ici_bandwidth=1200e9,
        dcn_bandwidth=100e9 / 8,
        max_chips=9216,
        runtime_version=None,
        machine="tpu7x-standard",
    ),
)

GENERATIONS: Mapping[str, Generation] = {g.name: g for g in _ALL}

ALIASES: Mapping[str, str] = {
    **{name: g.name for g in _ALL for name in (g.prefix, g.name)},
    "v5lite": "v5e",
    "v7x": "tpu7x",
}
"""All spellings of a generation, with its name."""


class GkeName(NamedTuple):
    """What GKE means by a name.

    Attributes:
        generation: Name of the generation.
        chips: The numbers N of a machine type "NAME-Nt": chips of a VM; () for a label.
        one_vm: Whether all slices are one VM.
    """

    generation: str
    chips: tuple[int, ...] = ()
    one_vm: bool = False


GKE: Mapping[str, GkeName] = {
    "tpu-v4-podslice": GkeName("v4"),
    "tpu-v5-lite-device": GkeName("v5e", one_vm=True),
    "tpu-v5-lite-podslice": GkeName("v5e"),
    "tpu-v5p-slice": GkeName("v5p"),
    "tpu-v6e-slice": GkeName("v6e"),
    "ct4p-hightpu": GkeName("v4", (4,)),
    "ct5l-hightpu": GkeName("v5e", (1, 4, 8), one_vm=True),
    "ct5lp-hightpu": GkeName("v5e", (1, 4, 8)),
    "ct5p-hightpu": GkeName("v5p", (1, 2, 4)),
    "ct6e-standard": GkeName("v6e", (1, 4, 8)),
    "tpu7x-standard": GkeName("tpu7x", (1, 4)),
}
"""GKE's labels and machine types; its label of tpu7x is the name of the generation."""


def gke_label(generation: str) -> str | None:
    """GKE's label of the nodes of a generation; None if GKE has none."""
    labels = [
        name
        for name, gke in GKE.items()
        if gke.generation == generation and not gke.chips and not gke.one_vm
    ]
    own = generation if GENERATIONS[generation].machine else None
    return next(iter(labels), own)


# The shapes of each generation, and the one that "v5p-N" means.
#
# Sources: "Configurations" on cloud.google.com/tpu/docs/{v2,v3,v4,v5e,v5p,v6e,tpu7x}. A slice of
# v4, v5p or tpu7x either has one of a few shapes smaller than a cube of 4x4x4 chips, or consists of
# such cubes, with its sides in ascending order. N in v2-N to v4-N, v5p-N and tpu7x-N counts
# TensorCores, two per chip; in v5litepod-N and v6e-N it counts chips.

Shape = tuple[int, ...]

_SQUARES: dict[str, tuple[Shape, ...]] = {
    "v2": ((2, 2), (4, 4), (8, 8), (8, 16), (16, 16)),
    "v3": ((2, 2), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16), (16, 32), (32, 32)),
    "v5e": ((1, 1), (2, 2), (2, 4), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16)),
    "v6e": ((1, 1), (2, 2), (2, 4), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16)),
}
_BELOW_A_CUBE: tuple[Shape, ...] = ((2, 2, 1), (2, 2, 2), (2, 2, 4), (2, 4, 4))
_SINGLE_CHIP: dict[str, tuple[Shape, ...]] = {"tpu7x": ((1, 1, 1),)}


@functools.cache
def shapes(generation: Generation, max_chips: int | None = None) -> tuple[Shape, ...]:
    """Every shape of a generation's slices, ascending."""
    most = min(max_chips or generation.max_chips, generation.max_chips)
    if generation.dimensions == 2:
        known = [*_SQUARES[generation.name]]
    else:
        known = [*_SINGLE_CHIP.get(generation.name, ()), *_BELOW_A_CUBE, *_cubes(most // 64)]
    return tuple(
        sorted((s for s in known if math.prod(s) <= most), key=lambda s: (math.prod(s), sum(s)))
    )


def _cubes(most: int) -> Iterator[Shape]:
    for a in range(1, math.isqrt(most) + 1):
        for b in range(a, most // a + 1):
            for c in range(b, most // (a * b) + 1):
                yield 4 * a, 4 * b, 4 * c


def default_shape(generation: Generation, chips: int) -> Shape | None:
    """The shape that "v5p-N" means: the nearest to a cube or square. None if there is none.

    Of shapes with the same number of chips, the nearest to a cube has the smallest sum of sides.
    """
    fitting = [shape for shape in shapes(generation) if math.prod(shape) == chips]
    return min(fitting, key=sum, default=None)


def host_bounds(generation: Generation, shape: Shape, chips_per_host: int | None = None) -> Shape:
    """Chips of one VM: 2x2, or the whole slice if it is smaller or 2x4.

    Args:
        chips_per_host: 1, 4 or 8, from a GKE machine type; None for Cloud TPU's own choice.

    Returns:
        Chips along three dimensions, as in libtpu's `chips_per_host_bounds`.
    """
    padded = (*shape, 1, 1)[:3]
    if shape == generation.one_vm and chips_per_host in (None, math.prod(shape)):
        return padded
    return tuple(min(side, most) for side, most in zip(padded, (2, 2, 1), strict=True))


def wraparound(generation: Generation, shape: Shape) -> tuple[bool, ...]:
    """Whether the links of each dimension form a ring.

    In two dimensions, a dimension does if it is that of a whole pod. In three, all do if the slice
    consists of whole cubes of 4x4x4.
    """
    rings = tuple(side % generation.torus_side == 0 for side in shape)
    return rings if generation.dimensions == 2 else (all(rings),) * 3


def slice_name(generation: Generation, shape: Shape) -> str:
    """The shortest name: "v6e-16", or "v5p:4x4x16" because v5p-512 is another shape."""
    chips = math.prod(shape)
    if default_shape(generation, chips) != shape:
        return f"{generation.name}:{shape_text(shape)}"
    return f"{generation.name}-{count(generation, chips)}"


def count(generation: Generation, chips: int) -> int:
    """The number N in "v6e-N" or "v5p-N"."""
    return chips * generation.cores_per_chip


def shape_text(shape: Shape) -> str:
    """(2, 2, 4) as "2x2x4"."""
    return "x".join(map(str, shape))
