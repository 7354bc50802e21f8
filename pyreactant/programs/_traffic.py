"""Bytes that a device receives, at most, in closed form.

The counts of ring and pairwise algorithms (Thakur, Rabenseifner and Gropp, "Optimization of
Collective Communication Operations in MPICH", 2005), as `pyreactant.tpu` counts them too: of g
devices each receives (g-1)/g of the whole, twice that where partial sums become sums everywhere.
"""

import math
from collections.abc import Callable, Iterable

from .._dtypes import as_dtype
from .._mesh import Mesh
from .._sharding import Index, NamedSharding
from ._case import Case, Layout
from ._letters import Letters

Count = Callable[[Mesh, Layout, int, str], int | None]


def all_reduce(whole: int, devices: int) -> int:
    """Of `whole` bytes that each of some devices has a part of the sum of."""
    return 2 * whole * (devices - 1) // devices


def all_to_all(block: int, devices: int) -> int:
    """Each device keeps one of its block's parts and gives the others away."""
    return block * (devices - 1) // devices


def reduced(letters: Letters, passes: int = 1) -> Count:
    """Each device sums what it has, then the parts are summed over the devices.

    For layouts that cut each letter in one way wherever it stands; None for others. Letters in
    `whole` are reduced too, `passes` times: a softmax finds a maximum and a sum.
    """

    def count(mesh: Mesh, layout: Layout, size: int, dtype: str) -> int | None:
        axes = letters.axes(layout)
        if axes is None:
            return None
        total = 0
        for output in letters.outputs:
            kept = "".join(letter for letter in output if letter not in letters.whole)
            summed = set("".join(letters.inputs)) - set(kept)
            devices = math.prod(letters.cut_of(letter, mesh, axes) for letter in summed)
            whole = letters.block_elements(kept, mesh, axes, size) * as_dtype(dtype).itemsize
            total += passes * all_reduce(whole, devices)
        return total

    return count


def fetched(case: Case, mesh: Mesh, layout: Layout, size: int, dtype: str) -> int:
    """Each device fetches what its blocks of the outputs depend on and it does not hold."""
    inputs = case.inputs(size, dtype)
    outputs = () if case.outputs is None else case.outputs(size, dtype)
    shapes = tuple(one.shape for one in inputs)
    held = [
        NamedSharding(mesh, spec).devices_indices_map(one.shape)
        for spec, one in zip(layout.in_specs, inputs, strict=True)
    ]
    wanted = [
        NamedSharding(mesh, spec).devices_indices_map(one.shape)
        for spec, one in zip(layout.out_specs, outputs, strict=True)
    ]
    most = 0
    for device in mesh.device_ids:
        total = 0
        for i, one in enumerate(inputs):
            needs = [case.needs(o, blocks[device], shapes)[i] for o, blocks in enumerate(wanted)]
            need = _hull(needs)
            missing = _volume(need) - _volume(_both(need, held[i][device]))
            total += missing * as_dtype(one.dtype).itemsize
        most = max(most, total)
    return most


def _volume(index: Iterable[slice]) -> int:
    return math.prod(max(0, s.stop - s.start) for s in index)


def _both(one: Index, other: Index) -> Index:
    return tuple(
        slice(max(a.start, b.start), min(a.stop, b.stop)) for a, b in zip(one, other, strict=True)
    )


def _hull(indices: list[Index]) -> Index:
    return tuple(
        slice(min(s.start for s in along), max(s.stop for s in along))
        for along in zip(*indices, strict=True)
    )
