"""Inputs read from this process's devices, where they are known to hold them rightly."""

import numpy as np

from .._array import ShardedArray
from .._sharding import Index
from .._source import Source
from ._tiles import common, within


class Held:
    """A source that takes what this process holds already, and makes the rest again.

    Making random numbers again costs more than many programs do. What is read here was compared
    with a digest of what was made first.

    Args:
        source: Where the array came from.
        array: Placed from it, and found to be right on this process's devices.
    """

    def __init__(self, source: Source, array: ShardedArray) -> None:
        self._source = source
        self.shape = source.shape
        self.dtype = source.dtype
        self.random = source.random
        self._blocks: dict[str, tuple[Index, np.ndarray]] = {}
        for shard in array.addressable_shards:
            key = str(shard.index)
            if key not in self._blocks:
                self._blocks[key] = (shard.index, shard.data)

    def read(self, index: Index) -> np.ndarray:
        """One block, from the devices where they hold all of it."""
        found = []
        for block, data in self._blocks.values():
            both = common(index, block)
            if both is not None:
                found.append((both, data[within(both, block)]))
        wanted = tuple(s.stop - s.start for s in index)
        if sum(part.size for _, part in found) != np.prod(wanted, dtype=np.int64):
            return self._source.read(index)
        if len(found) == 1:
            return found[0][1]
        whole = np.empty(wanted, self.dtype)
        for both, part in found:
            whole[within(both, index)] = part
        return whole
