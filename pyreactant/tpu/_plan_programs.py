"""Which meshes and specs another program than a product could have: by its arguments alone.

No closed form is known for what a function computes and sends, so the only bounds are those of
memory: the blocks of the arguments must be there, and be read once. The compiler says the rest.
"""

import itertools
import math
from collections.abc import Iterator

import numpy as np

from .._mesh import Mesh
from ._plan_choose import factorisations, promising
from ._plan_layout import SLICE_AXIS, Found, Layout, Spec
from ._plan_machine import Machine

Shape = tuple[int, ...]
_LIMIT = 20_000
"""Combinations of specs that are looked at on one mesh."""


def program_layouts(shapes: tuple[Shape, ...], itemsize: int, machine: Machine, keep: int) -> Found:
    """Layouts of a program's arguments, those with the smallest blocks first.

    Args:
        shapes: Of the arguments.
        itemsize: Bytes of an element.
        machine: On what.
        keep: How many.
    """
    found = []
    for mesh in _meshes(machine):
        choices = [list(_specs(mesh, shape)) for shape in shapes]
        for specs in itertools.islice(itertools.product(*choices), _LIMIT):
            size = itemsize * sum(
                math.prod(shape) / _cut(mesh, spec)
                for shape, spec in zip(shapes, specs, strict=True)
            )
            seconds = size / machine.memory_bandwidth
            found.append(Layout(mesh, specs, None, size, None, seconds))
    memory = np.array([one.memory_bytes for one in found])
    limit = math.inf if machine.memory_bytes is None else machine.memory_bytes
    held = np.where(memory > limit, np.inf, memory)
    chosen = promising(np.array([one.local_seconds for one in found]), held, keep)
    return Found(tuple(found[i] for i in chosen), len(found), int(np.isinf(held).sum()))


def _meshes(machine: Machine) -> Iterator[Mesh]:
    outer = () if machine.num_slices == 1 else (machine.num_slices,)
    names = (SLICE_AXIS,) * len(outer)
    for inner in sorted(factorisations(machine.devices, 2), key=len):
        for order in sorted(set(itertools.permutations(inner))):
            yield Mesh((*outer, *order), (*names, *"xy"[: len(order)]))


def _specs(mesh: Mesh, shape: Shape) -> Iterator[Spec]:
    """Ways to cut an array with each axis along one dimension, or none; most cut first."""
    places = [*range(len(shape)), None]
    for choice in itertools.product(places, repeat=len(mesh.axis_names)):
        entries = tuple(
            tuple(a for a, where in zip(mesh.axis_names, choice, strict=True) if where == dimension)
            for dimension in range(len(shape))
        )
        spec = tuple(e if len(e) > 1 else e[0] if e else None for e in entries)
        cuts = [math.prod(mesh.axis_size(axis) for axis in e) for e in entries]
        if all(side % cut == 0 for side, cut in zip(shape, cuts, strict=True)):
            yield spec


def _cut(mesh: Mesh, spec: Spec) -> int:
    axes = itertools.chain.from_iterable(
        () if e is None else (e,) if isinstance(e, str) else e for e in spec
    )
    return math.prod(mesh.axis_size(axis) for axis in axes)
