"""A Cloud TPU slice by its name or shape: chips, VMs, devices, memory, speeds, and its picture."""

import dataclasses
import difflib
import itertools
import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ..counted import counted
from ..document.terminal import COLOURS
from ..errors import InvalidArgumentError, check_count
from .generations import (
    ALIASES,
    GENERATIONS,
    GIB,
    GKE,
    Generation,
    Shape,
    count,
    default_shape,
    host_bounds,
    shape_text,
    shapes,
    slice_name,
    wraparound,
)

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.text import Text

_FORMS = (
    "name a slice as v6e-16, v5litepod-16, v5p-32 or v4-64, a generation and shape as v6e:4x4 or "
    "v5p:2x2x4, or, as GKE does, tpu-v5p-slice:2x2x4 or ct6e-standard-4t:4x4"
)

EXAMPLE = "such as v6e-16 (`pyreactant topology --all` lists them)"
"""What a message adds that asks for a slice."""


def no_such_slice(name: str) -> InvalidArgumentError:
    """The error for a name that is not a slice's, with the nearest names."""
    near = nearest(name)
    return InvalidArgumentError(
        f"no Cloud TPU slice is called {name!r}; the nearest are {', '.join(near)} ({_FORMS})"
    )


def nearest(name: str) -> list[str]:
    """At most four names of slices that resemble a wrong name.

    They are of the generation with the most similar name and have the nearest numbers of chips, by
    ratio, in the form of the wrong name.
    """
    text = name.strip().lower()[:100]
    generation = _generation(text)
    _, *rest = re.split(r"[^a-z0-9]+", text)
    numbers = [int(n[:9]) for n in re.findall(r"[0-9]+", rest[-1] if rest else "")] or [1]
    by_shape = len(numbers) > 1
    chips = max(1, math.prod(numbers) if by_shape else numbers[0] / generation.cores_per_chip)
    close = sorted(shapes(generation), key=lambda shape: abs(math.log(math.prod(shape) / chips)))
    if by_shape:
        return [f"{generation.name}:{shape_text(shape)}" for shape in close[:4]]
    return [name for s in close if ":" not in (name := slice_name(generation, s))][:3]


def _generation(text: str) -> Generation:
    """The generation whose name a wrong name has, or resembles most."""
    head, words = text.partition(":")[0], re.split(r"[^a-z0-9]+", text)
    gke = [name for name in sorted(GKE, key=len, reverse=True) if head.startswith(name)]
    aliases = [word for word in words if word in ALIASES]
    if not gke and not aliases and head.startswith(("tpu-", "ct")):
        gke = difflib.get_close_matches(head, GKE, n=1, cutoff=0.0)
    if gke:
        return GENERATIONS[GKE[gke[0]].generation]
    aliases = aliases or difflib.get_close_matches(words[0], ALIASES, n=1, cutoff=0.0)
    return GENERATIONS[ALIASES[aliases[0]]]


def _names(generation: Generation, shape: Shape) -> Iterator[str]:
    chips = math.prod(shape)
    number = count(generation, chips)
    if generation.cores_per_chip == 2:
        yield f"{generation.prefix}-{number} counts TensorCores, two per chip"
    if generation.prefix != generation.name:
        yield (
            f"Cloud TPU calls it {generation.prefix}-{number}, "
            f"libtpu {generation.name}:{shape_text(shape)}"
        )
    usual = default_shape(generation, chips)
    if usual is not None and usual != shape:
        yield (
            f"{generation.prefix}-{number} alone is {shape_text(usual)}; ask for this one with "
            f"--type={generation.name} --topology={shape_text(shape)}"
        )
    if generation.runtime_version is None:
        yield "Cloud TPU's API does not offer it: GKE and Compute Engine do, without a runtime name"


def _hosts(generation: Generation, shape: Shape, bounds: Shape) -> Iterator[str]:
    if shape != generation.one_vm:
        return
    name = f"{generation.prefix}-{count(generation, math.prod(shape))}"
    whole, machine = math.prod(shape), generation.machine
    if bounds == host_bounds(generation, shape):
        yield (
            f"{name} is one VM of {whole} chips in Cloud TPU and as GKE's {machine}-{whole}t; "
            f"GKE's {machine}-4t makes it two hosts of 4 "
            f"(name it {machine}-4t:{shape_text(shape)}), and so does libtpu by default"
        )
    else:
        yield (
            f"two hosts of 4 chips is GKE's {machine}-4t and libtpu's default; "
            f"{name} of Cloud TPU and GKE's {machine}-{whole}t are one VM of {whole}"
        )


def _devices(generation: Generation) -> Iterator[str]:
    if generation.cores_per_chip == 2 and generation.devices_per_chip == 1:
        line = "one JAX device per chip: its two cores work as one (megacore)"
        if generation.name == "v4":
            line += "; libtpu describes two devices per chip unless chip_config_name='megacore'"
        yield line
    elif generation.devices_per_chip == 2:
        share = generation.hbm_bytes_per_chip / 2 / GIB
        yield f"two JAX devices per chip, one for each core, with {share:g} GiB of HBM each"


_BY_COUNT = re.compile(r"([a-z0-9]+)-([0-9]{1,6})")
_BY_SHAPE = re.compile(r"([a-z0-9-]+)[:-]([0-9]{1,4}(?:x[0-9]{1,4}){1,2})")
_MACHINE = re.compile(r"([a-z0-9]+-[a-z]+)-([0-9])t")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """One slice or several equal ones, as plain data; numbers are totals unless noted.

    Attributes:
        name: Shortest name that `topology` reads back, such as "v6e-16" or "v5p:4x4x16".
        generation: "v2", "v3", "v4", "v5e", "v5p", "v6e" or "tpu7x".
        num_slices: Number of slices, joined by the data-center network.
        shape: Chips along each dimension of one slice's ICI network.
        wraparound: For each dimension, whether its links form a ring.
        chips: Number of chips.
        cores: Number of TensorCores.
        hosts: Number of VMs; one process runs on each.
        chips_per_host: Number of chips of one VM.
        host_bounds: Chips of one VM along three dimensions.
        devices: Number of JAX devices.
        devices_per_process: Number of local JAX devices of a process.
        devices_per_chip: 1 if the cores of a chip form one device, otherwise 2.
        hbm_bytes: Memory of one device that the compiler can use.
        hbm_bytes_per_chip: Published memory of one chip.
        peak_flops: FLOP/s of one chip by element type: "bfloat16", and "int8" and "float8" if
            published.
        hbm_bandwidth: Bytes/s of one chip.
        ici_bandwidth: Bytes/s of one chip over all its links, both directions added.
        ici_links: Links of a chip with a neighbour on every side.
        dcn_bandwidth: Bytes/s of one chip between slices; None if not published.
        runtime_version: Name of the TPU VM image; None if Cloud TPU's API does not offer the slice.
        machine_type: GKE's machine type, or None.
        accelerator_type: Cloud TPU's name, the value of TPU_ACCELERATOR_TYPE on a VM.
        libtpu_name: libtpu's name of one slice, such as "v6e:4x4".
        chip_config: libtpu's `chip_config_name`.
        notes: Differences between the names of Cloud TPU, GKE and the runtime.
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
        """Keywords of `jax.experimental.topologies.get_topology_desc` for exactly this slice.

        Without them, libtpu assumes two VMs for v6e-8 and two devices per chip for v4.
        """
        options: dict[str, Any] = {
            "topology_name": self.libtpu_name,
            "chips_per_host_bounds": self.host_bounds,
            "chip_config_name": self.chip_config,
        }
        return options if self.num_slices == 1 else {**options, "num_slices": self.num_slices}

    def host_of(self, chip: tuple[int, ...]) -> int:
        """The VM of the chip at these coordinates; in slice 0 that is the process index."""
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


def slices_text(topology: Topology) -> str:
    """The slice, or how many of them: "v6e-16", "v6e-16 x 2 slices"."""
    several = f" x {topology.num_slices} slices" if topology.num_slices > 1 else ""
    return f"{topology.name}{several}"


def topology(name: str, num_slices: int = 1) -> Topology:
    """A slice by its name.

    Args:
        name: A slice ("v6e-16", "v5litepod-16" or "v5e-16", "v5p-32", "v4-64", "tpu7x-8"), a
            generation and shape ("v6e:4x4", "v5p:2x2x4"), or as GKE names it: a label and its
            topology ("tpu-v5p-slice:2x2x4"), a machine type and a topology
            ("ct6e-standard-4t:2x4"), or the machine type of a slice that is one VM
            ("ct6e-standard-8t").
        num_slices: Number of equal slices.

    Raises:
        InvalidArgumentError: No slice has this name; the message has the nearest names.

    Examples:
        >>> slices = pr.topology("v6e-16")
        >>> slices.chips, slices.hosts, slices.devices
        (16, 4, 16)
    """
    check_count("num_slices", num_slices)
    if not isinstance(name, str):
        raise InvalidArgumentError(f"a slice is named as 'v6e-16' or 'v6e:4x4', got {name!r}")
    return _build(name, *_parse(name), num_slices)


def topologies(max_chips: int = 256) -> Iterator[Topology]:
    """One slice of every generation and shape with at most `max_chips` chips."""
    for generation in GENERATIONS.values():
        for shape in shapes(generation, max_chips):
            yield topology(f"{generation.name}:{shape_text(shape)}")


class _Named(NamedTuple):
    """What a name says: a generation, a shape, and the chips of a VM; None for Cloud TPU's own."""

    generation: Generation
    shape: Shape
    per_host: int | None = None


def _parse(name: str) -> _Named:
    text = name.strip().lower()
    if text in GKE and not GKE[text].chips:
        generation = GENERATIONS[GKE[text].generation]
        shape = generation.one_vm if GKE[text].one_vm else shapes(generation)[3]
        raise InvalidArgumentError(
            f"{name!r} is GKE's label for all slices of {generation.name}; add the topology of the "
            f"slice, as in {text}:{shape_text(shape or ())}"
        )
    if by_count := _BY_COUNT.fullmatch(text):
        named = _by_count(by_count[1], int(by_count[2]))
    elif by_shape := _BY_SHAPE.fullmatch(text):
        named = _by_shape(by_shape[1], tuple(map(int, by_shape[2].split("x"))))
    elif _MACHINE.fullmatch(text):
        named = _by_shape(text, None)
    else:
        named = None
    if named is None:
        raise no_such_slice(name)
    return named


def _by_count(alias: str, number: int) -> _Named | None:
    generation = GENERATIONS.get(ALIASES.get(alias, ""))
    if generation is None or number % generation.cores_per_chip:
        return None
    shape = default_shape(generation, number // generation.cores_per_chip)
    return None if shape is None else _Named(generation, shape)


def _by_shape(head: str, shape: Shape | None) -> _Named | None:
    """The slice of a generation, a label or a machine type; without a shape, of one VM."""
    machine = _MACHINE.fullmatch(head)
    gke = GKE.get(machine[1] if machine else head)
    generation = GENERATIONS.get(gke.generation if gke else ALIASES.get(head, ""))
    per_host = int(machine[2]) if machine else None
    if generation is None or (per_host is not None and (gke is None or per_host not in gke.chips)):
        return None
    if shape is None:
        shape = default_shape(generation, per_host or 0)
    if shape not in shapes(generation):
        return None
    on_host = math.prod(host_bounds(generation, shape, per_host))
    if on_host != (per_host or on_host) or (gke and gke.one_vm and on_host != math.prod(shape)):
        return None
    return _Named(generation, shape, per_host)


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
        notes=(
            *_names(generation, shape),
            *_hosts(generation, shape, bounds),
            *_devices(generation),
        ),
    )


_MOST_LAYERS, _GAP = 16, "   "


def layer(slices: Topology, z: int) -> list[list[int]]:
    """The VM of each chip of one layer, as one list of numbers (by x) for each y."""
    columns, rows = slices.shape[:2]
    return [[slices.host_of((x, y, z)) for x in range(columns)] for y in range(rows)]


@dataclasses.dataclass(frozen=True, slots=True)
class SlicePicture:
    """The chips of one slice with the number of their VM; lines separate the VMs.

    Slices of three dimensions are drawn layer by layer along z, side by side if they fit.
    """

    topology: Topology

    def __rich_console__(
        self, console: "Console", options: "ConsoleOptions"
    ) -> "Iterator[RenderableType]":
        from rich.text import Text

        shape = self.topology.shape
        deep = shape[2] if len(shape) == 3 else 1
        pictures = [self._layer(z) for z in range(min(deep, _MOST_LAYERS))]
        width = pictures[0][-1].cell_len + len(_GAP)
        beside = max(1, (options.max_width + len(_GAP)) // width)
        for start in range(0, len(pictures), beside):
            for lines in zip(*pictures[start : start + beside], strict=True):
                yield Text(_GAP).join(lines)
        if deep > _MOST_LAYERS:
            yield Text(
                f"... and {counted(deep - _MOST_LAYERS, 'more layer')}, up to VM {self._last}"
            )

    @property
    def _last(self) -> int:
        """The number of the last VM of one slice."""
        return self.topology.hosts // self.topology.num_slices - 1

    def _layer(self, z: int) -> "list[Text]":
        """The lines of one layer, all of the same width: title, x, then each row of chips."""
        from rich.text import Text

        cell = len(str(self._last)) + 1
        every_x, every_y = self.topology.host_bounds[:2]
        rows = layer(self.topology, z)
        columns = range(len(rows[0]))
        name = len(f"y={len(rows) - 1}")
        groups = [columns[x : x + every_x] for x in columns[::every_x]]
        bars = ["─" * (cell * len(group) + 1) for group in groups]
        heads = "  ".join("".join(f"{x:>{cell}}" for x in group) for group in groups)
        lines = [Text(f"{'x=':>{name + 2}}{heads}  ")]
        if len(self.topology.shape) == 3:
            lines.insert(0, Text(f"{'':>{name}} z={z}"))
        for y, row in enumerate(rows):
            if y % every_y == 0:
                left, middle, right = "┌┬┐" if y == 0 else "├┼┤"
                lines.append(Text(" " * (name + 1) + left + middle.join(bars) + right))
            line = Text(f"{f'y={y}':>{name}} │")
            for host, same in itertools.groupby(row):
                line.append("".join(f"{host:>{cell}}" for _ in same), COLOURS[host % len(COLOURS)])
                line.append(" │")
            lines.append(line)
        lines.append(Text(" " * (name + 1) + "└" + "┴".join(bars) + "┘"))
        longest = max(line.cell_len for line in lines)
        for line in lines:
            line.pad_right(longest - line.cell_len)
        return lines
