"""Sources that read another source differently, most of them as a faulty program would."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ...arrays.array import ShardedArray
from ...arrays.sharding import Index
from ...arrays.source import Source
from ..regions import common, within


class Altered:
    """Base class of sources that change the blocks of another source.

    Args:
        source: The other source.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.shape = source.shape
        self.dtype = source.dtype
        self.random = source.random


class PlacedSource(Altered):
    """A source that reads blocks from this process's devices and regenerates the others.

    Generating random numbers again costs more than many programs do. The blocks on the devices
    have been compared with digests of the generated ones.

    Args:
        source: The source of the array.
        array: The placed array; its blocks on this process's devices must be right.
    """

    def __init__(self, source: Source, array: ShardedArray) -> None:
        super().__init__(source)
        self._blocks: dict[str, tuple[Index, np.ndarray]] = {}
        for shard in array.addressable_shards:
            key = str(shard.index)
            if key not in self._blocks:
                self._blocks[key] = (shard.index, shard.data)

    def read(self, index: Index) -> np.ndarray:
        """One block, from the devices if they hold all of it."""
        pieces = []
        for block, data in self._blocks.values():
            both = common(index, block)
            if both is not None:
                pieces.append((both, data[within(both, block)]))
        wanted = tuple(s.stop - s.start for s in index)
        if sum(part.size for _, part in pieces) != np.prod(wanted, dtype=np.int64):
            return self._source.read(index)
        if len(pieces) == 1:
            return pieces[0][1]
        whole = np.empty(wanted, self.dtype)
        for both, part in pieces:
            whole[within(both, index)] = part
        return whole


class Transposed(Altered):
    """A matrix with rows and columns exchanged."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.shape = source.shape[::-1]

    def read(self, index: Index) -> np.ndarray:
        return self._source.read(index[::-1]).T


class Absolute(Altered):
    """A source with the absolute values of another one."""

    def read(self, index: Index) -> np.ndarray:
        block = self._source.read(index)
        return block if block.dtype.kind in "bu" else np.abs(block).astype(self.dtype)


class Rounded(Altered):
    """A source with fewer bits in the significands of its numbers."""

    def __init__(self, source: Source, bits: int) -> None:
        super().__init__(source)
        self._bits = bits

    def read(self, index: Index) -> np.ndarray:
        block = self._source.read(index)
        if block.dtype.kind in "biu":
            return block
        if block.dtype.kind == "c":
            return (self._short(block.real) + 1j * self._short(block.imag)).astype(self.dtype)
        return self._short(block).astype(self.dtype)

    def _short(self, x: np.ndarray) -> np.ndarray:
        part, exponent = np.frexp(x.astype(np.float64))
        short: np.ndarray = np.ldexp(np.rint(np.ldexp(part, self._bits)), exponent - self._bits)
        return short


class Rearranged(Altered):
    """A source whose elements along a dimension come from other places, or are zero.

    Args:
        source: The other source.
        dimension: The dimension.
        places: From where the elements at some positions come; outside the source for zeros.
        length: The length of the dimension; None for that of the source.
    """

    def __init__(
        self,
        source: Source,
        dimension: int,
        places: Callable[[np.ndarray], np.ndarray],
        length: int | None = None,
    ) -> None:
        super().__init__(source)
        self._dimension, self._places, self._length = dimension, places, source.shape[dimension]
        if length is not None:
            shape = [*source.shape]
            shape[dimension] = length
            self.shape = tuple(shape)

    def read(self, index: Index) -> np.ndarray:
        wanted = index[self._dimension]
        places = self._places(np.arange(wanted.start, wanted.stop))
        inside = (places >= 0) & (places < self._length)
        places = np.where(inside, places, np.max(places, where=inside, initial=0))
        first, there = int(np.min(places)), list(index)
        there[self._dimension] = slice(first, int(np.max(places)) + 1)
        block = np.take(self._source.read(tuple(there)), places - first, axis=self._dimension)
        zero: Any = np.zeros((), self.dtype)
        shape = [-1 if d == self._dimension else 1 for d in range(len(index))]
        return np.where(inside.reshape(shape), block, zero)


def masked(source: Source, dimension: int, mask: np.ndarray) -> Source:
    """A source with zeros except at some positions along a dimension."""
    return Rearranged(source, dimension, lambda at: np.where(mask[at], at, -1))


def beside(source: Source, inside: slice, dimension: int, by: int) -> Source:
    """A source whose elements outside a range of a dimension are shifted."""
    last = source.shape[dimension] - 1

    def places(at: np.ndarray) -> np.ndarray:
        outside = (at < inside.start) | (at >= inside.stop)
        return np.clip(at + np.where(outside, by, 0), 0, last)

    return Rearranged(source, dimension, places)


def exchanged(source: Source, inside: slice, dimension: int, width: int) -> Source:
    """A source whose elements on both sides of a range are exchanged; zero beyond its ends."""
    low, high = inside.start, inside.stop

    def places(at: np.ndarray) -> np.ndarray:
        left, right = (at >= low - width) & (at < low), (at >= high) & (at < high + width)
        return at + (high - low + width) * (np.where(left, 1, 0) - np.where(right, 1, 0))

    return Rearranged(source, dimension, places)


def alone(source: Source, own: slice, dimension: int) -> Source:
    """A source restricted to a range of a dimension."""
    length = own.stop - own.start
    return Rearranged(source, dimension, lambda at: at + own.start, length)


class Only(Altered):
    """A source that is zero outside a block, or everywhere if the block is None."""

    def __init__(self, source: Source, block: Index | None) -> None:
        super().__init__(source)
        self._block = block

    def read(self, index: Index) -> np.ndarray:
        block: np.ndarray = np.zeros([s.stop - s.start for s in index], self.dtype)
        both = None if self._block is None else common(index, self._block)
        if both is not None:
            block[within(both, index)] = self._source.read(both)
        return block


class Stale(Altered):
    """A source whose elements outside a range of a dimension are those of an older source."""

    def __init__(self, source: Source, inside: slice, dimension: int, old: Source) -> None:
        super().__init__(source)
        self._inside = inside
        self._dimension = dimension
        self._old = old

    def read(self, index: Index) -> np.ndarray:
        block = self._old.read(index).copy()
        own = list(index)
        own[self._dimension] = self._inside
        both = common(index, tuple(own))
        if both is not None:
            block[within(both, index)] = self._source.read(both)
        return block
