"""Where in a block the wrong elements are: a small grid of counts."""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

MOST = 16
"""Most lines, and most columns, of the grid."""

_AT_ONCE = 2**20
"""Elements that are counted at once."""


def grid_of(shape: Sequence[int]) -> tuple[int, int]:
    """Lines and columns of the grid of a block; all dimensions but the last run down."""
    columns = shape[-1] if shape else 1
    return min(math.prod(shape[:-1]), MOST), min(columns, MOST)


def cell_sizes(length: int, cells: int) -> list[int]:
    """The number of positions in each cell, of lines or columns of this length."""
    ends = [-(-cell * length // cells) for cell in range(cells + 1)]
    return [stop - start for start, stop in itertools.pairwise(ends)]


def count_wrong(wrong: np.ndarray, start: Sequence[int], shape: Sequence[int]) -> np.ndarray:
    """The number of wrong elements in each cell of a block's grid.

    Args:
        wrong: Which elements of a tile are wrong.
        start: Position of the tile's first element in the block.
        shape: Shape of the block.

    Returns:
        Counts, of shape `grid_of(shape)` and dtype int64.
    """
    found = np.zeros(grid_of(shape), np.int64)
    if not wrong.size:
        return found
    more = (1,) * (2 - len(shape))  # a scalar is one line of one element
    tile = wrong.reshape((*more, *wrong.shape))
    whole, first = (*more, *shape), (*(0 for _ in more), *start)
    lines = _line_numbers(tile.shape[:-1], first[:-1], whole[:-1])
    lines = lines * found.shape[0] // math.prod(whole[:-1])
    columns = (first[-1] + np.arange(tile.shape[-1])) * found.shape[1] // whole[-1]
    starts = np.flatnonzero(np.diff(columns, prepend=-1))
    flat = tile.reshape(-1, tile.shape[-1])
    for part in _pieces(*flat.shape):
        sums = np.add.reduceat(flat[part], starts, axis=1, dtype=np.int64)
        np.add.at(found, (lines[part, None], columns[starts]), sums)
    return found


def total(parts: Iterable[np.ndarray | None]) -> np.ndarray | None:
    """The sum of the grids of one block's tiles; None if no element was counted."""
    counted = [part for part in parts if part is not None]
    return np.sum(counted, axis=0) if counted else None


def _line_numbers(tile: Sequence[int], first: Sequence[int], whole: Sequence[int]) -> np.ndarray:
    """The number, in the whole block, of each line of a tile."""
    numbers = np.zeros(1, np.int64)
    for size, at, length in zip(tile, first, whole, strict=True):
        numbers = (numbers[:, None] * length + at + np.arange(size)).ravel()
    return numbers


def _pieces(lines: int, columns: int) -> Iterator[slice]:
    step = max(1, _AT_ONCE // columns)
    for start in range(0, lines, step):
        yield slice(start, start + step)
