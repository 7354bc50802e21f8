"""Check large products: Freivalds' check of the whole, and the oracle for a tile of each block.

Freivalds' check costs O(n^2), the oracle O(n^3). Freivalds' check detects any error larger than
the rounding of a whole row. Lower precision may stay below that, but affects every element, so
the oracle also computes one tile of each block, chosen by the seed.
"""

import math
from collections.abc import Sequence

import numpy as np

from .._bounds.compare import Expected, Verdict, compare
from .._bounds.model import Model
from .._bounds.tracked import track
from .._core.array import ShardedArray
from .._core.sharding import Index, NamedSharding, Shard
from .._core.source import Source
from .._matmul.check import FULL_CHECK_WORK, tolerance_of
from .._matmul.freivalds import freivalds
from .._runtimes.collective import total
from .._runtimes.runtime import current, local_devices
from ._execute import CaseRun
from ._oracle.tiles import around, within

_WORK = FULL_CHECK_WORK // 8
"""Up to this many multiplications, the oracle computes the whole product."""

_SIDE = 16  # side length of the tile of each block that the oracle computes


def is_large_product(run: CaseRun) -> bool:
    """Whether the run's program is a product that is too large for its oracle."""
    if not run.case.factors:
        return False
    number, transposed = run.case.factors[0]
    summed = run.plans[f"input {number}"].shape[0 if transposed else 1]
    return math.prod(run.plans["output 0"].shape) * summed > _WORK


def check_by_freivalds(run: CaseRun, sources: Sequence[Source]) -> Verdict | None:
    """Freivalds' check of a run's product; None if a block is on a wrong device. Collective."""
    product = run.arrays["output 0"]
    if not _right_everywhere(_is_well_placed(product)):
        return None
    x, y = _factors(run, sources)
    shardings = []
    for number, transposed in run.case.factors:
        sharding = run.plans[f"input {number}"].sharding
        axes = sharding.axes(2)
        shardings.append(NamedSharding(sharding.mesh, axes[::-1] if transposed else axes))
    left, right = shardings
    tolerance = tolerance_of(product, x.shape[1], (left, right), run.precision, random=run.random)
    return freivalds(x, y, product, (left, right), tolerance)


def compare_sample(
    run: CaseRun, sources: Sequence[Source], model: Model | None, shards: Sequence[Shard]
) -> list[Verdict]:
    """Compare one tile of the copies of a block with the product of its rows and columns."""
    block = shards[0].index
    random = np.random.Philox(key=[run.seed % 2**64, sum(s.start for s in block)])
    bits = random.random_raw(len(block))
    at = [
        s.start + int(b) % max(1, s.stop - s.start)
        for s, b in zip(block, np.atleast_1d(bits), strict=True)
    ]
    tile = around(block, at, _SIDE)
    expected, inside = _product(run, sources, model, tile), within(tile, block)
    start = tuple(s.start for s in tile)
    return [compare(shard.data[inside], expected, start) for shard in shards]


def _factors(run: CaseRun, sources: Sequence[Source]) -> list[Source]:
    return [
        _Transposed(sources[number]) if transposed else sources[number]
        for number, transposed in run.case.factors
    ]


def _product(run: CaseRun, sources: Sequence[Source], model: Model | None, tile: Index) -> Expected:
    """A tile of the product. A user's oracle might read the whole inputs, so it is not used."""
    x, y = _factors(run, sources)
    summed = slice(0, x.shape[1])
    rows, columns = x.read((tile[0], summed)), y.read((summed, tile[1]))
    if model is None:
        return Expected(rows @ columns, None)
    found = track(rows, model) @ track(columns, model)
    return Expected(found.value, found.bound)


class _Transposed:
    """A matrix with rows and columns exchanged."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.shape = source.shape[::-1]
        self.dtype = source.dtype
        self.random = source.random

    def read(self, index: Index) -> np.ndarray:
        return self._source.read(index[::-1]).T


def _is_well_placed(array: ShardedArray) -> bool:
    wanted = array.sharding.devices_indices_map(array.shape)
    shards = array.addressable_shards
    here = [device.position for device in local_devices() if device.position in wanted]
    return sorted(shard.device.position for shard in shards) == here and all(
        shard.index == wanted[shard.device.position]
        and shard.data.shape == tuple(s.stop - s.start for s in shard.index)
        and shard.data.dtype == array.dtype
        for shard in shards
    )


def _right_everywhere(here: bool) -> bool:
    running = current()
    wrong = total(running.backend, running.group, np.array([0 if here else 1]))
    return int(wrong[0]) == 0
