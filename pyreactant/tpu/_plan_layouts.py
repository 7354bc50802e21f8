"""Which meshes and specs a product could have, and the few of them that are worth compiling."""

import functools
import itertools
from collections.abc import Sequence

import numpy as np

from .._mesh import Mesh
from .._sharding import Axes
from ._plan_choose import factorisations, promising
from ._plan_layout import SLICE_AXIS, Found, Layout, Role, Spec, specs_of
from ._plan_links import Loads, along_network, loads_of
from ._plan_machine import Machine
from ._plan_model import NONE, Product, costs, divisible, every_layout, regular
from ._topology import Topology

_NAMES = "xyz"
_THREE_AXES = 512
"""Devices up to which meshes have three axes: beyond, there are too many to go through."""


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
        held = (
            found.memory
            if machine.memory_bytes is None
            else np.where(found.memory > machine.memory_bytes, np.inf, found.memory)
        )
        too_large += int(np.isinf(held).sum())
        held = np.where(regular(cut), held, np.inf)
        for index in promising(found.seconds, held, 4 * keep):
            roles = tuple(
                (
                    int(cut["x"][a, index]),
                    int(cut["y"][a, index]),
                    int(cut["c"][a, index]),
                    int(found.loops[a, index]),
                )
                for a in range(len(sizes))
            )
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
        np.array([one.memory_bytes for one in layouts]),
        keep,
    )
    return Found(tuple(layouts[i] for i in order), considered, too_large)


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
        mesh,
        (x, y),
        c,
        float(found.memory[0]),
        sum(received),
        float(found.local[0]),
        inside,
        sum(received[:outer]) / machine.slice_bandwidth,
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
        mesh,
        specs,
        out_spec,
        found.memory_bytes,
        found.received_bytes,
        found.local_seconds,
        found.link_seconds,
        found.slice_seconds,
    )


def _axes(entry: Axes) -> tuple[str, ...]:
    return () if entry is None else (entry,) if isinstance(entry, str) else entry
