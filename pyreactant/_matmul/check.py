"""Is the product right? An oracle in float64 where that is affordable, else Freivalds' check.

Both read the operands from where they came from, not from the devices, and compare every block
that this process's devices hold, copies too. Nothing is gathered but vectors and verdicts.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from .._bounds.product import Tolerance, product_tolerance
from .._core.array import ShardedArray
from .._core.device import Shard
from .._core.sharding import Index, NamedSharding
from .._core.source import Source
from .._core.text import block_text
from .._runtimes.runtime import current
from .freivalds import Check, freivalds, merge, merge_everywhere

FULL_CHECK_WORK = 4096**3
"""Up to this many multiplications (m k n) the whole product is computed again."""

_TILE_BYTES = 64 * 2**20


def check_product(
    x: Source,
    y: Source,
    c: ShardedArray,
    shardings: tuple[NamedSharding, NamedSharding],
    precision: str | None,
) -> Check:
    """Check ``c`` against ``x @ y``. Collective; the verdict is the same on every process.

    Args:
        x: Shape (m, k), where the left operand came from.
        y: Shape (k, n), the right one.
        c: The product; all its copies are checked.
        shardings: Of x and of y.
        precision: With which c was computed.
    """
    (m, k), n = x.shape, y.shape[1]
    mesh = c.sharding.mesh
    summed_over = {*shardings[0].axes(2)[1], *shardings[1].axes(2)[0]}
    tolerance = product_tolerance(
        c.dtype,
        k,
        current().backend.devices()[0].platform,
        precision,
        math.prod(mesh.axis_size(axis) for axis in summed_over),
        x.random and y.random,
    )
    if m * k * n > FULL_CHECK_WORK:
        return freivalds(x, y, c, shardings, tolerance)
    return _full(x, y, c, tolerance)


def _full(x: Source, y: Source, c: ShardedArray, tolerance: Tolerance) -> Check:
    method = "integer product" if c.dtype.kind in "iu" else "float64 product"
    shards: dict[str, list[Shard]] = {}
    for shard in c.addressable_shards:
        shards.setdefault(block_text(shard.index), []).append(shard)
    checks = []
    left, right = _Tiles(x), _Tiles(y)
    for same in shards.values():
        if c.dtype.kind in "iu":
            expected = _integer_block(x, y, same[0].index)
            checks += [_compare_integers(shard, expected) for shard in same]
        else:
            expected, scale = _float_block(left, right, x.shape[1], same[0].index)
            checks += [_compare_floats(shard, expected, scale, tolerance) for shard in same]
    return _note(merge_everywhere(merge(checks or [Check(method)])), c)


class _Tiles:
    """A matrix in float64, tile by tile; the last are kept, as blocks share rows and columns."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._kept: dict[tuple[int, ...], tuple[np.ndarray, np.ndarray]] = {}

    def read(self, index: Index) -> tuple[np.ndarray, np.ndarray]:
        """A tile and its squared absolute values."""
        key = tuple(end for s in index for end in (s.start, s.stop))
        if key not in self._kept:
            kind = np.complex128 if self._source.dtype.kind == "c" else np.float64
            tile = self._source.read(index).astype(kind)
            if sum(2 * t.nbytes for t, _ in self._kept.values()) > _TILE_BYTES:
                self._kept.clear()
            self._kept[key] = tile, np.square(np.abs(tile))
        return self._kept[key]


def _float_block(x: _Tiles, y: _Tiles, k: int, index: Index) -> tuple[np.ndarray, np.ndarray]:
    """One block of the product in float64, and norm(x_i) * norm(y_j) for its elements."""
    rows, columns = index
    shape = (rows.stop - rows.start, columns.stop - columns.start)
    expected: Any = np.zeros(shape)
    x_squares, y_squares = np.zeros(shape[0]), np.zeros(shape[1])
    with np.errstate(all="ignore"):
        for part in _cut(k, max(sum(shape), 1) * 16):
            (a, a_squares), (b, b_squares) = x.read((rows, part)), y.read((part, columns))
            expected = expected + a @ b
            x_squares += a_squares.sum(axis=1)
            y_squares += b_squares.sum(axis=0)
    return expected, np.sqrt(np.outer(x_squares, y_squares))


def _cut(k: int, bytes_per_k: int) -> Iterable[slice]:
    step = max(1, _TILE_BYTES // bytes_per_k)
    return (slice(start, min(start + step, k)) for start in range(0, k, step))


def _compare_floats(
    shard: Shard, expected: np.ndarray, scale: np.ndarray, tolerance: Tolerance
) -> Check:
    got = shard.data.astype(expected.dtype)
    if not got.size:
        return Check("float64 product")
    with np.errstate(all="ignore"):
        allowed = tolerance.relative * scale + tolerance.absolute
        error = np.abs(got - expected)
        finite = np.isfinite(got) & np.isfinite(expected)
        same = ~np.isfinite(got) & ~np.isfinite(expected)
        if got.dtype.kind == "f":
            same &= (np.isnan(got) & np.isnan(expected)) | (got == expected)
        # Where the exact element, or a partial sum on the way, is beyond the largest number.
        beyond = (np.abs(expected) + allowed >= tolerance.largest) | (scale >= tolerance.largest)
        overflow = beyond & np.isfinite(expected)
        right = np.where(finite, error <= allowed, same | (overflow & ~np.isfinite(got)))
        ratio = np.where(finite, error / np.where(allowed > 0, allowed, np.inf), 0.0)
        usual = np.max(
            error / (tolerance.usual * scale + tolerance.absolute), initial=0, where=finite
        )
    ratio[finite & ~right & (ratio <= 1)] = np.inf  # an error where none is allowed
    ratio[~finite & ~right] = np.inf
    at = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
    return Check(
        "float64 product",
        bool(right.all()),
        float(np.max(error, initial=0.0, where=finite)),
        float(allowed[at]) if finite[at] else 0.0,
        float(ratio[at]),
        int((~right).sum()),
        int((~finite & right).sum()),
        float(usual),
        worst=None if right.all() else _where(shard, at, got[at], expected[at]),
    )


def _integer_block(x: Source, y: Source, index: Index) -> np.ndarray:
    """One block of the product modulo 2**bits, as the runtimes compute it."""
    rows, columns = index
    everything = slice(0, x.shape[1])
    a, b = x.read((rows, everything)), y.read((everything, columns))
    largest = [max(abs(int(z.min(initial=0))), abs(int(z.max(initial=0)))) for z in (a, b)]
    if largest[0] * largest[1] * max(x.shape[1], 1) < 2**53:
        # Exact in float64, and far faster than NumPy's integer product.
        return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64).astype(x.dtype)
    return a @ b


def _compare_integers(shard: Shard, expected: np.ndarray) -> Check:
    wrong = shard.data != expected
    if not wrong.any():
        return Check("integer product")
    at = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    distance = np.abs(shard.data.astype(np.float64) - expected.astype(np.float64))
    return Check(
        "integer product",
        False,
        float(distance.max()),
        0.0,
        float("inf"),
        int(wrong.sum()),
        worst=_where(shard, at, shard.data[at], expected[at]),
    )


def _where(shard: Shard, at: tuple[Any, ...], got: Any, expected: Any) -> dict[str, Any]:
    element = [int(i) + s.start for i, s in zip(at, shard.index, strict=True)]
    return {
        "process": shard.device.process_index,
        "device": str(shard.device),
        "block": block_text(shard.index),
        "element": element,
        "got": str(got),
        "expected": str(expected),
    }


def _note(check: Check, c: ShardedArray) -> Check:
    block = c.sharding.shard_shape(c.shape)
    total = math.prod(block) * c.sharding.mesh.size
    if not total:
        return replace(check, note="the product has no elements")
    if check.non_finite == total:
        return replace(check, note="every element is NaN or infinite, as the oracle's are")
    if check.non_finite:
        return replace(check, note=f"{check.non_finite} elements are NaN or infinite, as expected")
    if check.passed and check.usual > 1:
        return replace(
            check,
            note=f"within the worst case of rounding, but {check.usual:.1f} times what it usually "
            "makes: was it computed in lower precision than asked?",
        )
    return check
