"""Wrong device orders that a runtime may use, and what each device would then hold."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from ..._core.mesh import Mesh
from ..._core.sharding import Index, NamedSharding
from ..._errors import ShardingError
from .._records.verdict import Kind

Order = tuple[Kind, str, dict[int, Index]]
"""A kind, its description, and which block each device holds."""

_ALL_PERMUTATIONS = 4  # axes; with more, only swaps of two axes and the reversal are tried


def orders(sharding: NamedSharding, shape: Sequence[int]) -> list[Order]:
    """Wrong orders that give at least one device a wrong block."""
    right = sharding.devices_indices_map(shape)
    found = []
    for kind, description, other in _meshes(sharding.mesh):
        try:
            blocks = NamedSharding(other, sharding.spec).devices_indices_map(shape)
        except ShardingError:  # blocks would not be equal
            continue
        if blocks != right:
            found.append((kind, description, blocks))
    return found


def blocks_of(sharding: NamedSharding, shape: Sequence[int]) -> list[Index]:
    """All distinct blocks that devices hold, in the right device order or a wrong one."""
    maps = [sharding.devices_indices_map(shape), *(order[2] for order in orders(sharding, shape))]
    seen: dict[tuple[tuple[int, int], ...], Index] = {}
    for blocks in maps:
        for index in blocks.values():
            seen.setdefault(tuple((s.start, s.stop) for s in index), index)
    return list(seen.values())


def _meshes(mesh: Mesh) -> Iterator[tuple[Kind, str, Mesh]]:
    ids = np.array(mesh.device_ids)
    reverse = tuple(reversed(range(len(mesh.shape))))
    for permutation in _permutations(len(mesh.shape)):
        names = [mesh.axis_names[axis] for axis in permutation]
        axes_text = f"({', '.join(mesh.axis_names)}) taken as ({', '.join(names)})"
        yield Kind.AXES_SWAPPED, f"mesh axes {axes_text}", Mesh(mesh.shape, names, ids)
        # The same devices, counted with the axes in another order.
        shape = [mesh.shape[axis] for axis in permutation]
        grid = ids.reshape(shape).transpose(np.argsort(permutation))
        if permutation == reverse:
            description = "devices in column-major order"
            yield Kind.COLUMN_MAJOR, description, Mesh(mesh.shape, mesh.axis_names, grid)
        else:
            description = f"devices counted with axes {axes_text}"
            yield Kind.AXES_SWAPPED, description, Mesh(mesh.shape, mesh.axis_names, grid)


def _permutations(axes: int) -> Iterator[tuple[int, ...]]:
    right = tuple(range(axes))
    if axes <= _ALL_PERMUTATIONS:
        yield from (p for p in itertools.permutations(right) if p != right)
        return
    yield tuple(reversed(right))
    for a, b in itertools.combinations(right, 2):
        yield tuple(b if i == a else a if i == b else i for i in right)
