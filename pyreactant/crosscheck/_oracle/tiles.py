"""Cut blocks into tiles, so that a check needs little extra memory."""

import math
from collections.abc import Callable, Iterator, Sequence

from ..._core.sharding import Index


def size(index: Index) -> int:
    """Elements of a block."""
    return math.prod(s.stop - s.start for s in index)


_WORTH_IT = 0.8
"""Cut or merge only if the cost falls below this fraction of the previous cost."""


def cut(index: Index, cost: Callable[[Index], int], limit: int) -> Iterator[Index]:
    """Cut a block into equal tiles (the last one along each dimension may be smaller).

    Args:
        index: Index of the block.
        cost: Bytes that a tile needs, including its inputs.
        limit: Bytes a tile should need at most. A tile needs more only if smaller tiles would
            hardly be cheaper, as with a Fourier transform, which reads everything.
    """
    lengths = [s.stop - s.start for s in index]
    while (now := _dearest(index, lengths, cost)) > limit:
        halves = [
            (_dearest(index, [*lengths[:d], -(-n // 2), *lengths[d + 1 :]], cost), -n, d)
            for d, n in enumerate(lengths)
            if n > 1
        ]
        if not halves or min(halves)[0] > _WORTH_IT * now:
            break
        lengths[min(halves)[2]] = -(-lengths[min(halves)[2]] // 2)
    yield from _grid(index, lengths)


def merge(blocks: Sequence[Index], cost: Callable[[Index], int]) -> list[Index]:
    """Merge blocks that share many of their inputs into larger regions.

    Args:
        blocks: Distinct blocks with the same number of dimensions.
        cost: As for `cut`.
    """
    regions = list(blocks)
    for d in range(len(blocks[0]) if blocks else 0):
        rows: dict[str, list[Index]] = {}
        for one in regions:
            rows.setdefault(str((*one[:d], *one[d + 1 :])), []).append(one)
        regions = [region for row in rows.values() for region in _merged(row, d, cost)]
    return regions


def _merged(row: list[Index], d: int, cost: Callable[[Index], int]) -> list[Index]:
    """Regions that differ in one dimension only, merged if that is cheaper."""
    whole = list(row[0])
    whole[d] = slice(min(one[d].start for one in row), max(one[d].stop for one in row))
    together = tuple(whole)
    cheaper = cost(together) < _WORTH_IT * sum(map(cost, row))
    return [together] if cheaper else row


def common(one: Index, other: Index) -> Index | None:
    """The intersection of two regions; None if it is empty."""
    both = tuple(
        slice(max(a.start, b.start), min(a.stop, b.stop)) for a, b in zip(one, other, strict=True)
    )
    return both if all(s.start < s.stop for s in both) else None


def around(index: Index, element: Sequence[int], length: int) -> Index:
    """The part of a block around an element, at most `length` long in each dimension."""
    tile = []
    for s, at in zip(index, element, strict=True):
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


def _dearest(index: Index, lengths: Sequence[int], cost: Callable[[Index], int]) -> int:
    """The larger cost of the first and last tiles; for a cumulative sum the last costs most."""
    first = tuple(slice(s.start, s.start + n) for s, n in zip(index, lengths, strict=True))
    last = tuple(slice(s.stop - n, s.stop) for s, n in zip(index, lengths, strict=True))
    return max(cost(first), cost(last))


def _grid(index: Index, lengths: Sequence[int]) -> Iterator[Index]:
    if not index:
        yield ()
        return
    head, length = index[0], lengths[0]
    for start in range(head.start, head.stop, max(length, 1)):
        for rest in _grid(index[1:], lengths[1:]):
            yield (slice(start, min(start + length, head.stop)), *rest)
