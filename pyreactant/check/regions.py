"""Regions of arrays: how large they are, and where one lies in another."""

import math
from collections.abc import Sequence

import numpy as np

from ..arrays.sharding import Index
from ..arrays.source import Source


def whole_index(shape: Sequence[int]) -> Index:
    """The index of a whole array."""
    return tuple(slice(0, n) for n in shape)


def read_whole(source: Source) -> np.ndarray:
    """All elements of an array."""
    return source.read(whole_index(source.shape))


def elements_of(index: Index) -> int:
    """Elements of a block."""
    return math.prod(s.stop - s.start for s in index)


def common(block: Index, other: Index) -> Index | None:
    """The intersection of two regions; None if it is empty."""
    both = tuple(
        slice(max(a.start, b.start), min(a.stop, b.stop)) for a, b in zip(block, other, strict=True)
    )
    return both if all(s.start < s.stop for s in both) else None


def around(index: Index, element: Sequence[int], lengths: int | Sequence[int]) -> Index:
    """The part of a block around an element, at most that long in each dimension."""
    tile = []
    most = [lengths] * len(index) if isinstance(lengths, int) else lengths
    for s, at, length in zip(index, element, most, strict=True):
        start = min(max(s.start, at - length // 2), max(s.start, s.stop - length))
        tile.append(slice(start, min(s.stop, start + length)))
    return tuple(tile)


def within(tile: Index, block: Index) -> Index:
    """The index of a tile relative to its block."""
    return tuple(
        slice(t.start - b.start, t.stop - b.start) for t, b in zip(tile, block, strict=True)
    )


def moved(tile: Index, block: Index, other: Index) -> Index:
    """The tile at the same place in another block."""
    return tuple(
        slice(t.start - b.start + o.start, t.stop - b.start + o.start)
        for t, b, o in zip(tile, block, other, strict=True)
    )


def pieces(part: slice, length: int) -> list[slice]:
    """Slices of a length that cover a range."""
    starts = range(part.start, part.stop, length)
    return [slice(start, min(start + length, part.stop)) for start in starts]
