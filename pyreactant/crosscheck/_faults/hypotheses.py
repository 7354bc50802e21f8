"""One test for each kind of fault: compute what the block would hold, and compare."""

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from ..._bounds.compare import Expected, fits
from ..._core.dtypes import as_dtype, finfo, is_float, wide
from .._oracle.oracle import OutputOracle
from .._oracle.tiles import within
from .._records.verdict import Kind
from .subject import Wrong

_FAR = 2.0**20

_OF_RANGE = 0.15
"""Random bits have exponents with a standard deviation of 0.29 of their range."""


def looks_uninitialised(got: np.ndarray, expected: Expected) -> str | None:
    """How the wrong elements of a tile resemble unwritten memory; None if they do not."""
    wrong = _wrong(got, expected)
    some = got[wrong]
    if not some.size:
        return None
    if is_float(got.dtype) and not np.isfinite(some).any():
        half = some.size * 2 >= got.size
        return "it holds NaN or infinity" if half else None
    if not np.count_nonzero(some):
        return "it holds zeros"
    if some.size > 3 and (some == some.flat[0]).all():
        return f"every wrong element is {some.flat[0]}"
    if not is_float(got.dtype):
        return None
    info = finfo(got.dtype)
    whole = math.log2(float(info.max)) - math.log2(float(info.tiny))
    of_all_sizes = _spread(some) > _OF_RANGE * whole > 2 * _spread(expected.value)
    if of_all_sizes or _far(some, expected.value):
        return "its numbers vary in magnitude like unwritten memory"
    return None


def _far(values: np.ndarray, right: np.ndarray) -> bool:
    """Whether most numbers have a very different magnitude from the right ones."""
    with np.errstate(all="ignore"):
        sizes = np.abs(wide(values))
        usual = float(np.median(np.abs(right)))
        far = ~np.isfinite(sizes) | (sizes > _FAR * usual) | (sizes * _FAR < usual)
    return bool(np.mean(far) > 0.5)


def _spread(values: np.ndarray) -> float:
    """Standard deviation of the binary logarithms of the finite, nonzero values."""
    with np.errstate(all="ignore"):
        sizes = np.abs(wide(values))
        logs = np.log2(sizes)
    logs = logs[np.isfinite(logs)]
    return float(logs.std()) if logs.size > 3 else 0.0


def looks_rounded(got: np.ndarray, expected: Expected) -> str | None:
    """How the elements of a tile resemble lower precision; None if they do not."""
    if not is_float(got.dtype) or not got.size:
        return None
    with np.errstate(all="ignore"):
        value = expected.value.astype(np.complex128 if got.dtype.kind == "c" else np.float64)
        error = np.abs(got.astype(value.dtype) - value)
        sizes = np.abs(value)
    if not np.isfinite(error).all():
        return None
    eps = float(finfo(got.dtype).eps)
    small = error.max() <= 2.0**-4 * sizes.max()
    spread = (error > 2 * eps * sizes).mean() >= 0.25
    if not (small and spread):
        return None
    held = next((name for name in _shorter(got.dtype) if _representable(got, name)), None)
    if held:
        return f"its elements are rounded to {held}"
    bits = -np.log2(max(error.max() / sizes.max(), eps))
    return f"it is accurate to about {bits:.0f} bits"


def _wrong(got: np.ndarray, expected: Expected) -> np.ndarray:
    """Which elements are wrong."""
    if expected.bound is None:
        return np.asarray(got != expected.value.astype(got.dtype, copy=False))
    with np.errstate(all="ignore"):
        error = np.abs(got.astype(expected.value.dtype) - expected.value)
        return ~(error <= expected.allowed(got.dtype))


def _shorter(dtype: np.dtype[np.generic]) -> list[str]:
    part = dtype.itemsize // (2 if dtype.kind == "c" else 1)
    return [name for name in ("bfloat16", "float16", "float32") if as_dtype(name).itemsize < part]


def _representable(got: np.ndarray, name: str) -> bool:
    parts = [got.real, got.imag] if got.dtype.kind == "c" else [got]
    with np.errstate(all="ignore"):
        return all((part.astype(as_dtype(name)).astype(part.dtype) == part).all() for part in parts)


Reason = tuple[Kind, str]
Test = Callable[[Wrong], Iterator[Reason]]

_NEAR = 4.0  # units in the last place


def _uninitialised(wrong: Wrong) -> Iterator[Reason]:
    expected = wrong.oracle.block(wrong.tile)
    found = looks_uninitialised(wrong.seen(wrong.tile), expected)
    if found:
        yield Kind.UNINITIALISED, found


def _stale(wrong: Wrong) -> Iterator[Reason]:
    if wrong.subject.before is not None and wrong.holds(wrong.subject.before.block(wrong.tile)):
        yield Kind.UNINITIALISED, "it holds the result of the previous call"
    for number, oracle in enumerate(wrong.subject.inputs):
        same = oracle.source.shape == wrong.shape and oracle.source.dtype == wrong.got.dtype
        if same and wrong.holds(oracle.block(wrong.tile)):
            yield Kind.UNINITIALISED, f"it holds the block of input {number} at the same place"


def _partial(wrong: Wrong, *, own: bool) -> Iterator[Reason]:
    """A partial sum: that of the device's own mesh position, or of another one."""
    if not isinstance(wrong.oracle, OutputOracle):
        return
    mesh = wrong.subject.plan.sharding.mesh
    at = np.unravel_index(mesh.device_ids.index(wrong.device), mesh.shape)
    place = dict(zip(mesh.axis_names, map(int, at), strict=True))
    for one in wrong.subject.partial_sums:
        here = all(place[axis] == number for axis, number in one.where.items())
        if here == own and wrong.holds(wrong.oracle.partial(wrong.tile, one.masks)):
            yield Kind.MISSING_REDUCTION, one.text
            return


def _factor(wrong: Wrong) -> Iterator[Reason]:
    """A sum over devices with equal values that was omitted or done twice."""
    expected = wrong.oracle.block(wrong.tile)
    mesh = wrong.subject.plan.sharding.mesh
    for count in range(1, len(mesh.axis_names) + 1):
        for axes in itertools.combinations(mesh.axis_names, count):
            factor = math.prod(mesh.axis_size(axis) for axis in axes)
            if factor == 1:
                continue
            over = f"{' and '.join(axes)} ({factor} devices)"
            if wrong.holds(_times(expected, 1 / factor)):
                yield (
                    Kind.MISSING_REDUCTION,
                    f"it is 1/{factor} of the right value, as if the sum over {over} were missing",
                )
                return
            if wrong.holds(_times(expected, factor)):
                yield (
                    Kind.MISSING_REDUCTION,
                    f"it is {factor} times the right value, as if summed twice over {over}",
                )
                return


def _times(expected: Expected, factor: float) -> Expected:
    if expected.bound is None:
        value = expected.value
        if factor > 1:
            return Expected(value * np.asarray(factor).astype(value.dtype), None)
        whole = round(1 / factor)
        return Expected(value // whole if value.dtype.kind in "iu" else value * factor, None)
    return Expected(expected.value * factor, expected.bound * factor)


def _transposed(wrong: Wrong) -> Iterator[Reason]:
    got = wrong.got
    expected = wrong.oracle.block(wrong.tile)
    local = within(wrong.tile, wrong.block)
    for a, b in itertools.combinations(range(got.ndim), 2):
        if got.shape[a] == got.shape[b] and fits(got.swapaxes(a, b)[local], expected):
            yield Kind.TRANSPOSED, f"its dimensions {a} and {b} are exchanged"
            return
    if got.ndim > 1 and fits(np.reshape(got.ravel(), got.shape, order="F")[local], expected):
        yield Kind.TRANSPOSED, "it was written in column-major order and read in row-major order"
        return
    if got.ndim == 2 and wrong.shape[0] == wrong.shape[1]:
        value = wrong.oracle.block((wrong.tile[1], wrong.tile[0]))
        bound = None if value.bound is None else value.bound.T
        if wrong.holds(Expected(value.value.T, bound)):
            yield Kind.TRANSPOSED, "the whole array is transposed"


def _halo(wrong: Wrong) -> Iterator[Reason]:
    oracle = wrong.oracle
    if not isinstance(oracle, OutputOracle):
        return
    for dimension in range(len(wrong.shape)):
        if not oracle.has_halo(wrong.block, dimension):
            continue
        for by in (1, -1):
            if wrong.holds(oracle.shifted_halo(wrong.tile, wrong.block, dimension, by)):
                yield (
                    Kind.HALO,
                    f"its neighbours' elements along dimension {dimension} are off by {by:+d}",
                )
                return


def _shifted(wrong: Wrong) -> Iterator[Reason]:
    tile = wrong.tile
    for dimension, whole in enumerate(wrong.shape):
        for by in (1, -1):
            s = tile[dimension]
            # Only positions whose neighbour lies in the tile can be compared.
            start, stop = max(s.start, s.start - by), min(s.stop, s.stop - by)
            if stop - start < 2 or whole < 3:
                continue
            inner = [*tile]
            inner[dimension] = slice(start, stop)
            from_there = [*tile]
            from_there[dimension] = slice(start + by, stop + by)
            seen = wrong.seen(tuple(inner))
            right = wrong.oracle.block(tuple(inner))
            if not fits(seen, right) and fits(seen, wrong.oracle.block(tuple(from_there))):
                yield Kind.SHIFTED, f"it is shifted by {-by:+d} along dimension {dimension}"
                return


def _alone(wrong: Wrong) -> Iterator[Reason]:
    if not isinstance(wrong.oracle, OutputOracle):
        return
    for dimension, cut in enumerate(wrong.subject.plan.sharding.cuts(len(wrong.shape))):
        if cut == 1:
            continue
        expected = wrong.oracle.alone(wrong.tile, wrong.block, dimension)
        if expected.value.shape == wrong.seen(wrong.tile).shape and wrong.holds(expected):
            yield (
                Kind.MISSING_REDUCTION,
                f"it was computed from its own part of dimension {dimension} only",
            )
            return


def _off_by_rounding(wrong: Wrong) -> Iterator[Reason]:
    ulps = wrong.verdict.ulps
    if ulps <= _NEAR and is_float(wrong.got.dtype) and not wrong.verdict.wrong_patterns:
        yield Kind.ROUNDING, f"it is off by up to {ulps:.2g} ULP, and every bit must be right"


def _rounded(wrong: Wrong) -> Iterator[Reason]:
    found = looks_rounded(wrong.seen(wrong.tile), wrong.oracle.block(wrong.tile))
    if found:
        yield Kind.LOWER_PRECISION, found


def _non_finite(wrong: Wrong) -> Iterator[Reason]:
    if wrong.verdict.wrong_patterns:
        count = wrong.verdict.wrong_patterns
        yield Kind.NON_FINITE, f"{count} elements differ from the oracle in NaN or infinity"


REASONS: list[tuple[Kind, Test]] = [
    (Kind.UNINITIALISED, _uninitialised),
    (Kind.UNINITIALISED, _stale),
    (Kind.MISSING_REDUCTION, partial(_partial, own=True)),
    (Kind.MISSING_REDUCTION, _factor),
    (Kind.TRANSPOSED, _transposed),
    (Kind.HALO, _halo),
    (Kind.SHIFTED, _shifted),
    (Kind.MISSING_REDUCTION, _alone),
]
"""Every one that fits is reported."""

LAST_REASONS: list[tuple[Kind, Test]] = [
    (Kind.MISSING_REDUCTION, partial(_partial, own=False)),
    (Kind.ROUNDING, _off_by_rounding),
    (Kind.LOWER_PRECISION, _rounded),
    (Kind.NON_FINITE, _non_finite),
]
"""Tried in this order if none of `REASONS` fits; the first that fits is reported."""
