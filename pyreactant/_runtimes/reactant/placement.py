"""The partition spec that describes where a compiler placed an array."""

import itertools
from collections.abc import Iterable, Mapping

import numpy as np

from ..._core.mesh import Mesh
from ..._core.sharding import Index, NamedSharding


def find_sharding(
    meshes: Iterable[Mesh], shape: tuple[int, ...], placement: Mapping[int, Index]
) -> NamedSharding | None:
    """A sharding whose placement oracle equals a placement, on the first mesh that has one.

    Args:
        meshes: Where to look, in order of preference.
        shape: Global shape.
        placement: For each device position the block that it holds.

    Returns:
        The sharding with the fewest axes, or None where no partition spec says this.
    """
    for mesh in meshes:
        if set(mesh.device_ids) != set(placement):
            continue
        entries = [_axes(mesh, dimension, placement) for dimension in range(len(shape))]
        if None in entries:
            continue
        while entries and not entries[-1]:
            entries.pop()
        used = [axis for entry in entries for axis in entry or ()]
        if len(used) != len(set(used)):
            continue
        found = NamedSharding(mesh, entries)
        if _equals(found, shape, placement):
            return found
    return None


def _axes(mesh: Mesh, dimension: int, placement: Mapping[int, Index]) -> tuple[str, ...] | None:
    """The mesh axes that cut a dimension, major to minor; None if no axes explain its blocks."""
    starts = np.array([placement[d][dimension].start for d in mesh.device_ids])
    grid = np.searchsorted(np.unique(starts), starts).reshape(mesh.shape)
    steps = {}
    for number, (axis, size) in enumerate(zip(mesh.axis_names, mesh.shape, strict=True)):
        if size > 1:
            # The distance in blocks from the first device to the next along this axis.
            step = int(np.take(grid, 1, axis=number).flat[0] - grid.flat[0])
            if step:
                steps[axis] = step
    axes = sorted(steps, key=lambda axis: -steps[axis])
    sizes = [mesh.axis_size(axis) for axis in axes]
    strides = [*itertools.accumulate(reversed([*sizes, 1]), lambda a, b: a * b)][::-1][1:]
    return tuple(axes) if [steps[axis] for axis in axes] == strides else None


def _equals(
    sharding: NamedSharding, shape: tuple[int, ...], placement: Mapping[int, Index]
) -> bool:
    if any(size % cut for size, cut in zip(shape, sharding.cuts(len(shape)), strict=True)):
        return False
    return sharding.devices_indices_map(shape) == dict(placement)
