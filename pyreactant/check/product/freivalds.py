"""Freivalds' check of a product, shard by shard: C r against X (Y r) for random vectors r.

It costs O(n^2), the product O(n^3) (R. Freivalds, IFIP 1977). The vectors have entries +1 and
-1, so each element's rounding error e_ij enters a row's residual with a random sign, and
Hoeffding's inequality bounds it: ``|sum_j e_ij r_j| <= z norm(e_i)`` except with probability
``2 exp(-z^2 / 2)``. With ``norm(e_i) <= relative * norm(x_i) * norm(Y)`` (Frobenius) that is the
tolerance. A wrong element appears in every vector; several may cancel in one vector, but in all
of them only with probability 2**-vectors at most. Integers are checked exactly, modulo 2**64,
with random vectors of 64-bit numbers.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...arrays.array import ShardedArray
from ...arrays.runtimes.collective import total
from ...arrays.runtimes.runtime import current
from ...arrays.sharding import Index, NamedSharding, Shard
from ...arrays.source import Source
from ...base.counted import counted
from ...base.facts import usable_cores
from ..bounds.model import Tolerance
from ..bounds.verdict import FREIVALDS, Verdict, worst_of
from ..regions import pieces

VECTORS = 8
_DEVIATIONS = 7.0  # a right row fails once in 2e10
_TILE_BYTES = 4 * 2**20  # stays in a core's cache


_Tile = tuple[Index, Callable[[], np.ndarray]]


@dataclass(frozen=True, slots=True)
class _Sums:
    """Results of one pass over a matrix, summed over all processes.

    Attributes:
        product: The matrix times the vectors, shape (rows, vectors).
        squares: Squared norms of the rows without NaN and infinity, shape (rows,).
        bad_rows: Number of NaN and infinite elements in each row, shape (rows,).
        bad_columns: The same for each column, shape (columns,).
    """

    product: np.ndarray
    squares: np.ndarray
    bad_rows: np.ndarray
    bad_columns: np.ndarray


def freivalds(
    x: Source,
    y: Source,
    c: ShardedArray,
    shardings: tuple[NamedSharding, NamedSharding],
    tolerance: Tolerance,
) -> Verdict:
    """Check ``c`` against ``x @ y``. Collective.

    Args:
        x: Source of the left operand, shape (m, k).
        y: Source of the right operand, shape (k, n).
        c: The product; all its copies are checked.
        shardings: Shardings of x and y; each process reads only its own devices' blocks.
        tolerance: Tolerance of the product's elements.

    Returns:
        The verdict on the worst set of copies; its `wrong` counts rows.
    """
    kind = np.uint64 if c.dtype.kind in "iu" else np.complex128 if c.dtype.kind == "c" else float
    vectors = _vectors(y.shape[1], np.dtype(kind))
    y_sums = _pass(y.shape, _own_tiles(y, shardings[1]), vectors)
    if y_sums.bad_columns.any():
        # Columns with NaN or infinity are checked by pattern and excluded here.
        vectors[y_sums.bad_columns > 0] = 0
        y_sums = _pass(y.shape, _own_tiles(y, shardings[1]), vectors)
    x_sums = _pass(x.shape, _own_tiles(x, shardings[0]), y_sums.product)
    replicas = c.sharding.replica_ids(2)
    verdicts = []
    for replica in range(max(replicas.values()) + 1):
        shards = [s for s in c.addressable_shards if replicas[s.device.position] == replica]
        c_sums = _pass(c.shape, _shard_tiles(shards), vectors)
        if c.dtype.kind in "iu":
            verdicts.append(_compare_integer_rows(c, c_sums, x_sums))
        else:
            pattern = _wrong_pattern(shards, x_sums, y_sums)
            verdicts.append(_compare_float_rows(c_sums, x_sums, y_sums, tolerance, pattern))
    return worst_of(verdicts)


def _vectors(n: int, kind: np.dtype[Any]) -> np.ndarray:
    """Shape (n, VECTORS), the same on every process."""
    bits = np.random.Philox(key=[n, VECTORS]).random_raw((n, VECTORS))
    if kind == np.uint64:
        return bits
    return ((bits >> 63).astype(np.float64) * 2 - 1).astype(kind)


def _own_tiles(source: Source, sharding: NamedSharding) -> Iterator[_Tile]:
    """The blocks of a matrix on this process's devices; only one process reads each block."""
    replicas = sharding.replica_ids(2)
    for position, index in sharding.devices_indices_map(source.shape).items():
        owner = current().backend.devices()[position].process_index
        if replicas[position] == 0 and owner == current().group.process_index:
            for tile in _cut(index):
                yield tile, partial(source.read, tile)


def _shard_tiles(shards: list[Shard]) -> Iterator[_Tile]:
    for shard in shards:
        data, (rows, columns) = shard.data, shard.index
        for tile in _cut(shard.index):
            part = slice(tile[0].start - rows.start, tile[0].stop - rows.start)
            yield (tile[0], columns), partial(data.__getitem__, part)


def _cut(index: Index) -> Iterator[Index]:
    rows, columns = index
    step = max(1, _TILE_BYTES // (8 * max(1, columns.stop - columns.start)))
    for part in pieces(rows, step):
        yield part, columns


def _pass(shape: tuple[int, ...], tiles: Iterable[_Tile], vectors: np.ndarray) -> _Sums:
    """Multiply a matrix with the vectors, tile by tile, and sum over processes. Collective."""
    product = np.zeros((shape[0], vectors.shape[1]), vectors.dtype)
    squares, bad_rows, bad_columns = np.zeros(shape[0]), np.zeros(shape[0]), np.zeros(shape[1])
    # Generating, converting and multiplying a tile all release the GIL.
    with ThreadPoolExecutor(usable_cores()) as pool:
        for (rows, columns), sums in pool.map(lambda tile: _one_tile(tile, vectors), tiles):
            product[rows] += sums.product
            squares[rows] += sums.squares
            bad_rows[rows] += sums.bad_rows
            bad_columns[columns] += sums.bad_columns
    running = current()
    return _Sums(
        *(
            total(running.backend, running.group, part)
            for part in (product, squares, bad_rows, bad_columns)
        )
    )


def _one_tile(given: _Tile, vectors: np.ndarray) -> tuple[Index, _Sums]:
    index, read = given
    tile = _exact(read(), vectors.dtype)
    none = np.zeros(1)
    if vectors.dtype == np.uint64:
        return index, _Sums(tile @ vectors[index[1]], none, none, none)
    real = tile.view(np.float64)
    squares, bad_rows, bad_columns = np.einsum("ij,ij->i", real, real), none, none
    if not np.isfinite(squares).all():
        bad = ~np.isfinite(tile)
        bad_rows, bad_columns = bad.sum(axis=1), bad.sum(axis=0)
        tile = np.where(bad, 0, tile)
        real = tile.view(np.float64)
        squares = np.einsum("ij,ij->i", real, real)
    return index, _Sums(tile @ vectors[index[1]], squares, bad_rows, bad_columns)


def _exact(block: np.ndarray, kind: np.dtype[Any]) -> np.ndarray:
    """The block in the vectors' type, without loss (integers modulo 2**64)."""
    if kind == np.uint64 and block.dtype.kind == "i":
        return block.astype(np.int64).view(np.uint64)
    return np.ascontiguousarray(block, dtype=kind)


def _wrong_pattern(shards: list[Shard], x: _Sums, y: _Sums) -> int:
    """Number of elements that are finite where NaN or infinity must reach them. Collective."""
    wrong = 0
    for shard in shards:
        rows, columns = shard.index
        reached = (x.bad_rows[rows] > 0)[:, None] | (y.bad_columns[columns] > 0)
        if reached.any():
            wrong += int((np.isfinite(shard.data.astype(complex)) & reached).sum())
    running = current()
    return int(total(running.backend, running.group, np.array([wrong]))[0])


def _compare_integer_rows(c: ShardedArray, sums: _Sums, x: _Sums) -> Verdict:
    bits = np.uint64(2 ** (8 * c.dtype.itemsize) - 1)
    wrong = int(((sums.product - x.product) & bits != 0).any(axis=1).sum())
    return Verdict(FREIVALDS, ratio=math.inf if wrong else 0.0, wrong=wrong, note=_NOTE)


def _compare_float_rows(
    sums: _Sums, x: _Sums, y: _Sums, tolerance: Tolerance, wrong_pattern: int
) -> Verdict:
    """Compare rows of C r with X (Y r), given the sums of C, X and Y."""
    clean = x.bad_rows == 0
    residual = np.abs(sums.product - x.product).max(axis=1, initial=0.0) * clean
    n, k = y.bad_columns.size, x.bad_columns.size
    # The check's own rounding in float64, three products of lengths n, k and n.
    own = 3 * (k + n) * 2.0**-53 * np.sqrt(n)
    scale = np.sqrt(x.squares * y.squares.sum())
    allowed = (_DEVIATIONS * tolerance.relative + own) * scale
    allowed += _DEVIATIONS * tolerance.absolute * np.sqrt(n)
    # NaN or infinity without one in the operands is wrong, unless the exact element may overflow.
    reached = float((y.bad_columns > 0).sum())
    extra = (sums.bad_rows > reached) & clean & (scale < tolerance.largest)
    overflowed = (sums.bad_rows > reached) & clean & ~extra
    ratio = np.where(overflowed, 0.0, residual / np.where(allowed > 0, allowed, 1.0))
    ratio[(allowed == 0) & (residual > 0)] = np.inf
    ratio[extra] = np.inf
    wrong = int((ratio > 1).sum()) + wrong_pattern
    non_finite = int(sums.bad_rows.sum())
    bad = counted(non_finite, "element is", "elements are")
    row = int(np.argmax(ratio)) if ratio.size else 0
    return Verdict(
        FREIVALDS,
        error=float(residual.max(initial=0.0)),
        allowed=float(allowed[row]) if ratio.size else 0.0,
        ratio=math.inf if wrong_pattern else float(ratio.max(initial=0.0)),
        wrong=wrong,
        non_finite=non_finite,
        note=_NOTE + (f"; {bad} NaN or infinite" if non_finite else ""),
        worst={"row": row} if wrong else None,
    )


_NOTE = f"{VECTORS} random vectors; each row is checked as a whole"
