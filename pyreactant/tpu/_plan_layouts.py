"""Which meshes and specs a product could have, and the few of them that are worth compiling."""

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .._mesh import Mesh
from .._sharding import Axes
from ._plan_links import Loads, along_network, loads_of
from ._plan_machine import Machine
from ._plan_model import LOOPS, NONE, Product, costs, divisible, every_layout, regular
from ._topology import Topology

Spec = tuple[Axes, ...]
Role = tuple[int, int, int, int]
"""Which dimension of x, y and c an axis cuts, and which loop it divides."""

SLICE_AXIS = "slice"
_NAMES = "xyz"
_THREE_AXES = 512
"""Devices up to which meshes have three axes: beyond, there are too many to go through."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A mesh and the specs on it, with what the closed forms say.

    Attributes:
        mesh: The devices; with device_ids where their order follows the chips' network.
        specs: Of the arguments.
        out_spec: Of the output; None leaves it to the compiler.
        memory_bytes: Of the blocks on each device: it needs at least these.
        received_bytes: That each device receives in one call; None where no closed form is known.
        local_seconds: Of computing, and of reading and writing memory, the larger.
        link_seconds: Until the busiest link has carried all, or all is received.
        slice_seconds: Of what comes from other slices.
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
        """One after the other, nothing at the same time: for choosing what to compile."""
        return self.local_seconds + self.link_seconds + self.slice_seconds


@dataclass(frozen=True, slots=True)
class Found:
    """What the closed forms left.

    Attributes:
        layouts: Best first.
        considered: How many there were.
        too_large: How many of them cannot fit.
    """

    layouts: tuple[Layout, ...]
    considered: int
    too_large: int


def factorisations(number: int, parts: int, least: int = 2) -> Iterator[tuple[int, ...]]:
    """Ways to write a number as a product of at most `parts` factors, in ascending order."""
    if number >= least or number == 1:
        yield (number,)
    if parts > 1:
        for factor in range(least, math.isqrt(number) + 1):
            if number % factor == 0:
                for rest in factorisations(number // factor, parts - 1, factor):
                    yield (factor, *rest)


def product_layouts(product: Product, machine: Machine, keep: int) -> Found:
    """The best layouts of a product.

    All meshes of up to three axes (two within each of several slices, and one over the slices) are
    combined with all specs of x, y and the product that divide the sizes. What cannot fit goes
    first; of the rest stay those that no other one beats in time and memory, and the fastest.

    Args:
        product: What is multiplied.
        machine: On what.
        keep: How many.
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
        found = costs(product, sizes, cut, machine.speeds(len(sizes)))
        held = found.memory if machine.memory_bytes is None else np.where(
            found.memory > machine.memory_bytes, np.inf, found.memory
        )  # fmt: skip
        too_large += int(np.isinf(held).sum())
        held = np.where(regular(cut), held, np.inf)
        for index in promising(found.seconds, held, 4 * keep):
            roles = tuple(
                (int(cut["x"][a, index]), int(cut["y"][a, index]), int(cut["c"][a, index]),
                 int(found.loops[a, index])) for a in range(len(sizes))
            )  # fmt: skip
            key = _same(sizes, roles, len(outer))
            entry = sizes, roles, float(found.seconds[index]), float(held[index])
            if key not in best or entry[2] < best[key][2]:
                best[key] = entry
    entries = list(best.values())
    chosen = promising(
        np.array([e[2] for e in entries]), np.array([e[3] for e in entries]), 2 * keep
    )
    layouts = [_best_order(product, machine, *entries[i][:2]) for i in chosen]
    order = promising(
        np.array([one.seconds for one in layouts]),
        np.array([one.memory_bytes for one in layouts]), keep,
    )  # fmt: skip
    return Found(tuple(layouts[i] for i in order), considered, too_large)


def promising(seconds: np.ndarray, memory: np.ndarray, keep: int) -> list[int]:
    """Indices, fastest first: what nothing else beats in both, then the fastest of the rest.

    What has no finite time or memory is left out, and of equals all but one. The first half are
    the fastest of those that nothing beats, then the smallest of them, then those that only the
    ones before beat.
    """
    points = {
        (float(f"{seconds[i]:.6g}"), float(f"{memory[i]:.6g}")): int(i)
        for i in reversed(range(len(seconds))) if np.isfinite(seconds[i] + memory[i])
    }  # fmt: skip
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


def _same(sizes: tuple[int, ...], roles: tuple[Role, ...], outer: int) -> object:
    """Equal for layouts that differ only in the names, order and number of their axes."""
    merged: dict[Role, int] = {}
    for size, role in zip(sizes[outer:], roles[outer:], strict=True):
        merged[role] = merged.get(role, 1) * size
    return roles[:outer], frozenset(merged.items())


def _best_order(
    product: Product, machine: Machine, sizes: tuple[int, ...], roles: tuple[Role, ...]
) -> Layout:
    """The axes in the order, and the devices in the one, in which the links are least busy."""
    outer = 0 if machine.num_slices == 1 else 1
    candidates = []
    natural = sorted(range(outer, len(sizes)), key=lambda axis: (roles[axis][0] or 3, axis))
    for order in itertools.permutations(natural):  # axes that cut rows of x first
        axes = (*range(outer), *order)
        ordered = tuple(sizes[a] for a in axes)
        candidates += [
            _layout(product, machine, mesh, tuple(roles[a] for a in axes))
            for mesh in _meshes(machine.topology, ordered, outer)
        ]
        if not candidates[0].received_bytes:
            break
    # Python's min keeps the first of equals: the plain order of devices comes first.
    return min(candidates, key=lambda one: round(one.seconds, 12))


@functools.lru_cache(maxsize=256)
def _meshes(topology: Topology | None, sizes: tuple[int, ...], outer: int) -> tuple[Mesh, ...]:
    names = ((SLICE_AXIS,) * outer + tuple(_NAMES))[: len(sizes)]
    meshes = [Mesh(sizes, names)]
    if topology is not None and len(sizes) > outer + 1:
        deep = len(topology.shape)
        for order in (tuple(reversed(range(deep))), tuple(range(deep))):
            ids = along_network(topology, order)
            if ids != list(range(len(ids))):
                meshes.append(Mesh(sizes, names, ids))
    return tuple(meshes)


@functools.lru_cache(maxsize=256)
def _loads(topology: Topology, mesh: Mesh) -> Loads:
    return loads_of(topology, mesh)


def _layout(product: Product, machine: Machine, mesh: Mesh, roles: Sequence[Role]) -> Layout:
    cut = {name: np.array([[role[i]] for role in roles]) for i, name in enumerate("xyc")}
    speeds = machine.speeds(len(roles))
    found = costs(product, mesh.shape, cut, speeds)
    received = [float(amount) for amount in found.received[:, 0]]
    outer = 0 if machine.num_slices == 1 else 1
    inside = sum(received[outer:]) / machine.exchange_bandwidth
    if machine.topology is not None:
        busy = [0.0] * outer + received[outer:]
        inside = max(inside, _loads(machine.topology, mesh).seconds(busy, machine.link_bandwidth))
    x, y, c = specs_of(mesh, roles)
    return Layout(
        mesh, (x, y), c, float(found.memory[0]), sum(received), float(found.local[0]), inside,
        sum(received[:outer]) / machine.slice_bandwidth,
    )  # fmt: skip


def specs_of(mesh: Mesh, roles: Sequence[Role]) -> tuple[Spec, Spec, Spec]:
    """The specs of x, y and the product.

    In each dimension the axes that divide its loop come first, and of them first those that cut
    most of the operands along that loop; then what a device holds is one piece of what it needs,
    wherever an order can make it so (see `_plan_model`).
    """
    x, y, c = (_spec(mesh, roles, name) for name in "xyc")
    return x, y, c


def _spec(mesh: Mesh, roles: Sequence[Role], name: str) -> Spec:
    entries: list[Axes] = []
    for dimension, loop in enumerate(LOOPS[name], 1):
        here = [
            (-_aligned(role, loop) if role[3] == loop else 1, axis)
            for axis, role in zip(mesh.axis_names, roles, strict=True)
            if role["xyc".index(name)] == dimension
        ]
        names = tuple(axis for _, axis in sorted(here, key=lambda pair: pair[0]))
        entries.append(names if len(names) > 1 else names[0] if names else None)
    return tuple(entries)


def _aligned(role: Role, loop: int) -> int:
    """How many of x, y and c the axis cuts along a loop."""
    return sum(
        bool(cut) and LOOPS[name][cut - 1] == loop
        for name, cut in zip("xyc", role[:3], strict=True)
    )


def layout_of(
    product: Product, machine: Machine, mesh: Mesh, specs: tuple[Spec, Spec], out_spec: Spec
) -> Layout:
    """What the closed forms say of a layout that was chosen elsewhere."""
    roles = []
    for axis in mesh.axis_names:
        x, y, c = (
            next((d for d, entry in enumerate(spec, 1) if axis in _axes(entry)), 0)
            for spec in (*specs, out_spec)
        )
        roles.append((x, y, c, NONE))
    found = _layout(product, machine, mesh, roles)
    return Layout(
        mesh, specs, out_spec, found.memory_bytes, found.received_bytes, found.local_seconds,
        found.link_seconds, found.slice_seconds,
    )  # fmt: skip


def _axes(entry: Axes) -> tuple[str, ...]:
    return () if entry is None else (entry,) if isinstance(entry, str) else entry
