"""Blocks in tiles, so that checking one needs little memory beside it."""

import math
from collections.abc import Callable, Iterator, Sequence

from .._sharding import Index


def size(index: Index) -> int:
    """Elements of a block."""
    return math.prod(s.stop - s.start for s in index)


def cut(index: Index, cost: Callable[[Index], int], limit: int) -> Iterator[Index]:
    """A block in equal tiles (but for the last along each dimension).

    Args:
        index: The block.
        cost: Bytes that a tile needs, with what it is computed from.
        limit: Bytes that are fine; a tile costs more only where making it smaller in any
            dimension would not make it cheaper.
    """
    lengths = [s.stop - s.start for s in index]
    while (now := cost(_first(index, lengths))) > limit:
        halves = [
            (cost(_first(index, [*lengths[:d], -(-n // 2), *lengths[d + 1 :]])), -n, d)
            for d, n in enumerate(lengths)
            if n > 1
        ]
        if not halves or min(halves)[0] > 0.99 * now:
            break
        lengths[min(halves)[2]] = -(-lengths[min(halves)[2]] // 2)
    yield from _grid(index, lengths)


def around(index: Index, element: Sequence[int], length: int) -> Index:
    """The part of a block that is at most `length` long in each dimension and holds an element."""
    tile = []
    for s, at in zip(index, element, strict=True):
        start = min(max(s.start, at - length // 2), max(s.start, s.stop - length))
        tile.append(slice(start, min(s.stop, start + length)))
    return tuple(tile)


def within(tile: Index, block: Index) -> Index:
    """Where a tile lies in its block."""
    return tuple(
        slice(t.start - b.start, t.stop - b.start) for t, b in zip(tile, block, strict=True)
    )


def moved(tile: Index, block: Index, other: Index) -> Index:
    """The tile of another block that lies in it as `tile` does in `block`."""
    return tuple(
        slice(t.start - b.start + o.start, t.stop - b.start + o.start)
        for t, b, o in zip(tile, block, other, strict=True)
    )


def _first(index: Index, lengths: Sequence[int]) -> Index:
    return tuple(slice(s.start, s.start + n) for s, n in zip(index, lengths, strict=True))


def _grid(index: Index, lengths: Sequence[int]) -> Iterator[Index]:
    if not index:
        yield ()
        return
    head, length = index[0], lengths[0]
    for start in range(head.start, head.stop, max(length, 1)):
        for rest in _grid(index[1:], lengths[1:]):
            yield (slice(start, min(start + length, head.stop)), *rest)
