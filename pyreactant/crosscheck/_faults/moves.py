"""Faults that move elements: transposed and shifted blocks, and halos."""

import itertools
from collections.abc import Iterator

import numpy as np

from ..._bounds.compare import Expected, wrong_elements
from .._oracle.oracle import OutputOracle
from .._oracle.tiles import within
from .._records.verdict import Kind
from .subject import Reason, Wrong, explains, fits

_LINE = 256
"""Elements along a dimension that are tried for shifts."""

_LINES = 4


def transposed(wrong: Wrong) -> Iterator[Reason]:
    got = wrong.got
    local = within(wrong.tile, wrong.block)
    for a, b in itertools.combinations(range(got.ndim), 2):
        if got.shape[a] == got.shape[b] and _turned(wrong, got.swapaxes(a, b)[local]):
            yield Kind.TRANSPOSED, f"its dimensions {a} and {b} are exchanged"
            return
    row, column = "row-major order", "column-major order"
    for written, read, back in (
        (column, row, np.reshape(got.ravel(), got.shape, order="F")),
        (row, column, np.reshape(got.ravel(order="F"), got.shape)),
    ):
        if got.ndim > 1 and _turned(wrong, back[local]):
            yield Kind.TRANSPOSED, f"it was written in {written} and read in {read}"
            return
    if got.ndim == 2 and wrong.shape[0] == wrong.shape[1]:
        value = wrong.oracle.block((wrong.tile[1], wrong.tile[0]))
        bound = None if value.bound is None else value.bound.T
        if wrong.holds(Expected(value.value.T, bound)):
            yield Kind.TRANSPOSED, "the whole array is transposed"


def _turned(wrong: Wrong, back: np.ndarray) -> bool:
    """Whether the block is right once it is turned back."""
    return bool(wrong.wrong.any()) and fits(back, wrong.right)


def wrong_halo(wrong: Wrong) -> Iterator[Reason]:
    oracle = wrong.oracle
    if not isinstance(oracle, OutputOracle):
        return
    for dimension in range(len(wrong.shape)):
        width = oracle.halo(wrong.block, dimension)
        if not width:
            continue
        where, theirs = (wrong.tile, wrong.block, dimension), "its neighbours' elements along"
        for by in (1, -1):
            if wrong.holds(oracle.shifted_halo(*where, by)):
                yield Kind.HALO, f"{theirs} dimension {dimension} are off by {by:+d}"
                return
        own = wrong.block[dimension].stop - wrong.block[dimension].start
        for one in sorted({1, 2, width} if 2 * width <= own else {1, 2}):
            if wrong.holds(oracle.exchanged_halos(*where, one)):
                yield Kind.HALO, f"{theirs} dimension {dimension} are exchanged"
                return
        before = wrong.subject.before
        if isinstance(before, OutputOracle) and wrong.holds(oracle.stale_halo(*where, before)):
            yield Kind.HALO, f"{theirs} dimension {dimension} are those of the previous call"
            return


def shifted(wrong: Wrong) -> Iterator[Reason]:
    """The block, or its wrong elements, moved by any number of positions along a dimension."""
    worst = wrong.verdict.worst["element"] if wrong.verdict.worst else None
    for dimension, own in enumerate(wrong.block):
        if worst is None or own.stop - own.start < 3:
            continue
        line = _line(wrong, worst, dimension)
        got = np.moveaxis(wrong.seen(line), dimension, -1)
        whole = wrong.oracle.block(line)
        right = _moved(whole, dimension)
        bad = wrong_elements(got, right)
        for by in sorted(range(1 - got.shape[-1], got.shape[-1]), key=abs):
            if by and _is_shifted(got, right, bad, by):
                yield Kind.SHIFTED, f"it is shifted by {by:+d} along dimension {dimension}"
                return


def _line(wrong: Wrong, worst: list[int], dimension: int) -> tuple[slice, ...]:
    """A few lines of the block along a dimension, through the worst element."""
    tile = []
    for d, (own, at) in enumerate(zip(wrong.block, worst, strict=True)):
        length = _LINE if d == dimension else _LINES if len(wrong.block) < 3 else 2
        start = min(max(own.start, at - length // 2), max(own.start, own.stop - length))
        tile.append(slice(start, min(own.stop, start + length)))
    return tuple(tile)


def _moved(expected: Expected, dimension: int) -> Expected:
    value = np.moveaxis(np.asarray(expected.value), dimension, -1)
    bound = expected.bound
    return Expected(value, None if bound is None else np.moveaxis(bound, dimension, -1))


def _is_shifted(got: np.ndarray, right: Expected, bad: np.ndarray, by: int) -> bool:
    """Whether the wrong elements are those `by` positions before, where these are in the lines."""
    n = got.shape[-1]
    here = slice(max(0, by), min(n, n + by))
    there = slice(max(0, -by), min(n, n - by))
    inside = bad[..., here]
    # Elements that come from outside are not known; most must come from inside.
    if 2 * np.count_nonzero(inside) <= np.count_nonzero(bad):
        return False
    bound = right.bound
    source = Expected(right.value[..., there], None if bound is None else bound[..., there])
    own = Expected(right.value[..., here], None if bound is None else bound[..., here])
    return explains(got[..., here], own, source, inside)
