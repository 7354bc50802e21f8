"""Blocks in tiles, so that checking one needs little memory beside it."""

import math
from collections.abc import Callable, Iterator, Sequence

from ..._core.sharding import Index


def size(index: Index) -> int:
    """Elements of a block."""
    return math.prod(s.stop - s.start for s in index)


_WORTH_IT = 0.8
"""What is cut, or put together, must cost less than this part of what it cost before."""


def cut(index: Index, cost: Callable[[Index], int], limit: int) -> Iterator[Index]:
    """A block in equal tiles (but for the last along each dimension).

    Args:
        index: The block.
        cost: Bytes that a tile needs, with what it is computed from.
        limit: Bytes that are fine; a tile costs more only where making it smaller in any
            dimension would hardly make it cheaper, as of a Fourier transform, which needs all.
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
    """Regions that hold all blocks, of those together that share much of what they need.

    Args:
        blocks: All different, and of the same number of dimensions.
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
    """Regions that differ in one dimension alone, as one if that is cheaper."""
    whole = list(row[0])
    whole[d] = slice(min(one[d].start for one in row), max(one[d].stop for one in row))
    together = tuple(whole)
    cheaper = cost(together) < _WORTH_IT * sum(map(cost, row))
    return [together] if cheaper else row


def common(one: Index, other: Index) -> Index | None:
    """What two regions have in common; None where that is nothing."""
    both = tuple(
        slice(max(a.start, b.start), min(a.stop, b.stop)) for a, b in zip(one, other, strict=True)
    )
    return both if all(s.start < s.stop for s in both) else None


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


def _dearest(index: Index, lengths: Sequence[int], cost: Callable[[Index], int]) -> int:
    """What the first or the last tile of these lengths costs: of sums so far it is the last."""
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
