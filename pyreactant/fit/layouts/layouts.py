"""The layouts of a product or a program: all meshes and specs, and the few worth compiling."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ...arrays.matmul import Spec, default_out_spec
from ...arrays.mesh import Mesh
from ...arrays.sharding import Axes, NamedSharding, as_axes, as_entry
from ...arrays.text import spec_text
from ...base.slices.topology import Topology
from .machine import Machine, along_network
from .model import LOOPS, NONE, Product, costs, divisible, every_layout, regular

Role = tuple[int, int, int, int]
"""The dimensions of x, y and c that an axis cuts, and the loop that it divides."""

SLICE_AXIS = "slice"
"""Name of the mesh axis over the slices."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A mesh and specs, with the figures of the closed forms.

    Attributes:
        mesh: The devices; with device_ids if their order follows the chips' network.
        specs: Specs of the arguments.
        out_spec: Spec of the output; None leaves it to the compiler.
        memory_bytes: Bytes of the blocks on each device, a lower bound.
        received_bytes: Bytes that each device receives in a call; None without a closed form.
        local_seconds: Time of computing, or of reading and writing memory if that is longer.
        link_seconds: Time until the busiest link has carried its data, or all data is received.
        slice_seconds: Time to receive data from other slices.
    """

    mesh: Mesh
    specs: tuple[Spec, ...]
    out_spec: Spec | None
    memory_bytes: float
    received_bytes: float | None = None
    local_seconds: float = 0.0
    link_seconds: float = 0.0
    slice_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """The sum of all parts, as if nothing overlapped; it chooses what to compile."""
        return self.local_seconds + self.link_seconds + self.slice_seconds

    @property
    def sizes_text(self) -> str:
        """The mesh without the order of its devices, as the command line takes it."""
        axes = zip(self.mesh.axis_names, self.mesh.shape, strict=True)
        return ",".join(f"{name}={size}" for name, size in axes)

    def texts(self) -> tuple[str, ...]:
        """The specs of the arguments and of the output, as the command line takes them."""
        specs = (*self.specs, *(() if self.out_spec is None else (self.out_spec,)))
        return tuple(spec_text(NamedSharding(self.mesh, spec).spec) for spec in specs)

    def flags(self) -> tuple[str, ...]:
        """Options of `pyreactant matmul` for a product in this layout."""
        x, y, *out = self.texts()
        flags = ["--mesh", self.sizes_text, "--spec", x]
        flags += ["--y-spec", y] if y != x else []
        usual = default_out_spec(*(NamedSharding(self.mesh, spec) for spec in self.specs))
        if out and out[0] != spec_text(NamedSharding(self.mesh, usual).axes(2)):
            flags += ["--out-spec", out[0]]
        if not self.mesh.all_devices:
            flags += ["--device-ids", ",".join(map(str, self.mesh.device_ids))]
        return tuple(flags)


@dataclass(frozen=True, slots=True)
class Choice:
    """The layouts that the closed forms chose.

    Attributes:
        layouts: Layouts, the best first.
        considered: Number of layouts considered.
        too_large: Number of these that cannot fit.
    """

    layouts: tuple[Layout, ...]
    considered: int
    too_large: int


def specs_of(mesh: Mesh, roles: Sequence[Role]) -> tuple[Spec, Spec, Spec]:
    """The specs of x, y and the product.

    In each dimension, the axes that divide its loop come first, ordered by how many arrays they cut
    along that loop. Then the part that a device holds is one piece of the part that it needs, if
    any order achieves this (see `model`).
    """
    x, y, c = (_spec(mesh, roles, name) for name in "xyc")
    return x, y, c


def _spec(mesh: Mesh, roles: Sequence[Role], name: str) -> Spec:
    entries: list[Axes] = []
    for dimension, loop in enumerate(LOOPS[name], 1):
        here = [
            (-aligned_entries(role, loop) if role[3] == loop else 1, axis)
            for axis, role in zip(mesh.axis_names, roles, strict=True)
            if role["xyc".index(name)] == dimension
        ]
        entries.append(as_entry(tuple(axis for _, axis in sorted(here, key=lambda pair: pair[0]))))
    return tuple(entries)


def aligned_entries(role: Role, loop: int) -> int:
    """How many of x, y and c an axis cuts along a loop."""
    return sum(
        bool(cut) and LOOPS[name][cut - 1] == loop
        for name, cut in zip("xyc", role[:3], strict=True)
    )


def factorisations(number: int, parts: int, least: int = 2) -> Iterator[tuple[int, ...]]:
    """All products of at most `parts` factors that give a number, factors in ascending order."""
    if number >= least or number == 1:
        yield (number,)
    if parts > 1:
        for factor in range(least, math.isqrt(number) + 1):
            if number % factor == 0:
                for rest in factorisations(number // factor, parts - 1, factor):
                    yield (factor, *rest)


def promising(seconds: np.ndarray, memory: np.ndarray, keep: int) -> list[int]:
    """Indices of at most `keep` layouts, fastest first, chosen front by front.

    The first front are the layouts that no other beats in both time and memory, the next front
    those that only layouts of the first beat, and so on. Half of the places go to the fastest of a
    front, the others to its smallest. Layouts without finite time or memory are left out, and so
    are duplicates.
    """
    points = {
        (float(f"{seconds[i]:.6g}"), float(f"{memory[i]:.6g}")): int(i)
        for i in reversed(range(len(seconds)))
        if np.isfinite(seconds[i] + memory[i])
    }
    order = [points[point] for point in sorted(points)]
    chosen: set[int] = set()
    left = order
    while left and len(chosen) < keep:
        front, least = [], math.inf
        for index in left:
            if memory[index] < least:
                front.append(index)
                least = memory[index]
        room = keep - len(chosen)
        fastest = front[: room - room // 2]
        chosen |= {*fastest, *front[len(fastest) :][::-1][: room - len(fastest)]}
        left = [index for index in left if index not in set(front)]
    return [index for index in order if index in chosen]


_NAMES = "xyz"
_THREE_AXES = 512
"""Largest number of devices for meshes of three axes; more give too many layouts."""


def product_layouts(product: Product, machine: Machine, keep: int) -> Choice:
    """The best layouts of a product.

    It combines all meshes of up to three axes (of several slices: one axis over the slices and two
    within each) with all specs of x, y and the product that divide the sizes, drops those that
    cannot fit, and keeps the ones that `promising` chooses.

    Args:
        product: Sizes of the product.
        machine: The devices.
        keep: Number of layouts.
    """
    considered = too_large = 0
    best: dict[object, tuple[tuple[int, ...], tuple[Role, ...], float, float]] = {}
    outer = () if machine.num_slices == 1 else (machine.num_slices,)
    inside = (3 if machine.devices <= _THREE_AXES else 2) - len(outer)
    for inner in sorted(factorisations(machine.devices, inside), key=len):  # few axes first
        sizes = (*outer, *inner)
        cut = every_layout(len(sizes))
        fits = divisible(product, sizes, cut)
        if inner == (1,):  # an axis of one device cuts nothing
            fits &= ~np.any([array[-1] for array in cut.values()], axis=0)
        cut = {name: array[:, fits] for name, array in cut.items()}
        considered += cut["x"].shape[1]
        figures = costs(product, sizes, cut, machine.speeds(len(sizes)))
        held = (
            figures.memory
            if machine.memory_bytes is None
            else np.where(figures.memory > machine.memory_bytes, np.inf, figures.memory)
        )
        too_large += int(np.isinf(held).sum())
        held = np.where(regular(cut), held, np.inf)
        for index in promising(figures.seconds, held, 4 * keep):
            of_axes = (cut["x"], cut["y"], cut["c"], figures.loops)
            roles = tuple(zip(*(array[:, index].tolist() for array in of_axes), strict=True))
            key = _same(sizes, roles, len(outer))
            entry = sizes, roles, float(figures.seconds[index]), float(held[index])
            if key not in best or entry[2] < best[key][2]:
                best[key] = entry
    entries = list(best.values())
    chosen = promising(
        np.array([e[2] for e in entries]), np.array([e[3] for e in entries]), 2 * keep
    )
    layouts = [_best_order(product, machine, *entries[i][:2]) for i in chosen]
    order = promising(
        np.array([layout.seconds for layout in layouts]),
        np.array([layout.memory_bytes for layout in layouts]),
        keep,
    )
    return Choice(tuple(layouts[i] for i in order), considered, too_large)


def _same(sizes: tuple[int, ...], roles: tuple[Role, ...], outer: int) -> object:
    """A key that is equal for layouts that differ only in names, order and number of axes."""
    merged: dict[Role, int] = {}
    for size, role in zip(sizes[outer:], roles[outer:], strict=True):
        merged[role] = merged.get(role, 1) * size
    return roles[:outer], frozenset(merged.items())


def _best_order(
    product: Product, machine: Machine, sizes: tuple[int, ...], roles: tuple[Role, ...]
) -> Layout:
    """The order of axes and of devices with the least busy links."""
    outer = 0 if machine.num_slices == 1 else 1
    candidates = []
    natural = sorted(range(outer, len(sizes)), key=lambda axis: (roles[axis][0] or 3, axis))
    for order in itertools.permutations(natural):  # axes that cut rows of x first
        axes = (*range(outer), *order)
        ordered = tuple(sizes[a] for a in axes)
        candidates += [
            _layout(product, machine, mesh, tuple(roles[a] for a in axes))
            for mesh in _product_meshes(machine.topology, ordered, outer)
        ]
        if not candidates[0].received_bytes:
            break
    # min keeps the first of equals, which is the plain order of devices.
    return min(candidates, key=lambda layout: round(layout.seconds, 12))


@functools.lru_cache(maxsize=256)
def _product_meshes(
    topology: Topology | None, sizes: tuple[int, ...], outer: int
) -> tuple[Mesh, ...]:
    names = ((SLICE_AXIS,) * outer + tuple(_NAMES))[: len(sizes)]
    meshes = [Mesh(sizes, names)]
    if topology is not None and len(sizes) > outer + 1:
        deep = len(topology.shape)
        for order in (tuple(reversed(range(deep))), tuple(range(deep))):
            ids = along_network(topology, order)
            if ids != list(range(len(ids))):
                meshes.append(Mesh(sizes, names, ids))
    return tuple(meshes)


def _layout(product: Product, machine: Machine, mesh: Mesh, roles: Sequence[Role]) -> Layout:
    cut = {name: np.array([[role[i]] for role in roles]) for i, name in enumerate("xyc")}
    speeds = machine.speeds(len(roles))
    figures = costs(product, mesh.shape, cut, speeds)
    received = [float(amount) for amount in figures.received[:, 0]]
    outer = 0 if machine.num_slices == 1 else 1
    inside = sum(received[outer:]) / machine.exchange_bandwidth
    if machine.topology is not None:
        busy = [0.0] * outer + received[outer:]
        inside = max(inside, machine.link_seconds(mesh, busy))
    x, y, c = specs_of(mesh, roles)
    return Layout(
        mesh,
        (x, y),
        c,
        float(figures.memory[0]),
        sum(received),
        float(figures.local[0]),
        inside,
        sum(received[:outer]) / machine.slice_bandwidth,
    )


def layout_of(
    product: Product, machine: Machine, mesh: Mesh, specs: tuple[Spec, Spec], out_spec: Spec
) -> Layout:
    """A given layout with the figures of the closed forms."""
    roles = []
    for axis in mesh.axis_names:
        x, y, c = (
            next((d for d, entry in enumerate(spec, 1) if axis in as_axes(entry)), 0)
            for spec in (*specs, out_spec)
        )
        roles.append((x, y, c, NONE))
    layout = _layout(product, machine, mesh, roles)
    return dataclasses.replace(layout, specs=specs, out_spec=out_spec)


# Layouts of programs other than a product, by their arguments alone.
#
# There is no closed form for the computation and communication of any function, so the only bound
# is memory: each device holds its blocks of the arguments and reads them once. The compiler gives
# the rest.

Shape = tuple[int, ...]
_LIMIT = 20_000
"""Most combinations of specs to consider on one mesh."""


def program_layouts(
    shapes: tuple[Shape, ...], itemsize: int, machine: Machine, keep: int
) -> Choice:
    """Layouts of a program's arguments, those with the smallest blocks first.

    Args:
        shapes: Shapes of the arguments.
        itemsize: Bytes of an element.
        machine: The devices.
        keep: Number of layouts.
    """
    layouts = []
    for mesh in _program_meshes(machine):
        choices = [list(_specs(mesh, shape)) for shape in shapes]
        for block in itertools.islice(itertools.product(*choices), _LIMIT):
            size = float(itemsize * sum(elements for _, elements in block))
            seconds = size / machine.memory_bandwidth
            specs = tuple(spec for spec, _ in block)
            layouts.append(Layout(mesh, specs, None, size, None, seconds))
    memory = np.array([layout.memory_bytes for layout in layouts])
    limit = math.inf if machine.memory_bytes is None else machine.memory_bytes
    held = np.where(memory > limit, np.inf, memory)
    chosen = promising(np.array([layout.local_seconds for layout in layouts]), held, keep)
    return Choice(tuple(layouts[i] for i in chosen), len(layouts), int(np.isinf(held).sum()))


def _program_meshes(machine: Machine) -> Iterator[Mesh]:
    outer = () if machine.num_slices == 1 else (machine.num_slices,)
    names = (SLICE_AXIS,) * len(outer)
    for inner in sorted(factorisations(machine.devices, 2), key=len):
        for order in sorted(set(itertools.permutations(inner))):
            yield Mesh((*outer, *order), (*names, *"xy"[: len(order)]))


def _specs(mesh: Mesh, shape: Shape) -> Iterator[tuple[Spec, int]]:
    """All specs with each mesh axis on one dimension or none, and the elements of a block.

    Those with the most cuts come first.
    """
    places = [*range(len(shape)), None]
    for choice in itertools.product(places, repeat=len(mesh.axis_names)):
        entries = tuple(
            tuple(a for a, where in zip(mesh.axis_names, choice, strict=True) if where == dimension)
            for dimension in range(len(shape))
        )
        cuts = [math.prod(mesh.axis_size(axis) for axis in e) for e in entries]
        if all(side % cut == 0 for side, cut in zip(shape, cuts, strict=True)):
            yield tuple(map(as_entry, entries)), math.prod(shape) // math.prod(cuts)
