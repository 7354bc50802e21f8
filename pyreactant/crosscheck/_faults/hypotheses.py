"""One test for each kind of fault: compute what the block would hold, and compare."""

import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from ..._bounds.compare import Expected, wrong_elements
from ..._core.dtypes import finfo, is_float, wide
from .._records.verdict import Kind
from .factors import wrong_factor
from .moves import shifted, transposed, wrong_halo
from .precision import lower_precision
from .reductions import equal_parts, lost_parts, own_part_alone, partial_sum
from .subject import Reason, Wrong

_FAR = 2.0**20

_OF_RANGE = 0.15
"""Random bits have exponents with a standard deviation of 0.29 of their range."""

_ALIKE = 4.0
"""Right values have about one size if the standard deviation of their exponents is smaller."""


def looks_uninitialised(got: np.ndarray, expected: Expected) -> str | None:
    """How the wrong elements of a tile resemble unwritten memory; None if they do not."""
    wrong = wrong_elements(got, expected)
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
    alike = _spread(expected.value) < _ALIKE  # not those of wide inputs
    if of_all_sizes or (alike and _far(some, expected.value)):
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


Test = Callable[[Wrong], Iterator[Reason]]

_NEAR = 4.0  # units in the last place


def _uninitialised(wrong: Wrong) -> Iterator[Reason]:
    found = looks_uninitialised(wrong.values, wrong.right)
    if found:
        yield Kind.UNINITIALISED, found


def _stale(wrong: Wrong) -> Iterator[Reason]:
    if wrong.subject.before is not None and wrong.holds(wrong.subject.before.block(wrong.tile)):
        yield Kind.UNINITIALISED, f"{_some(wrong)} the result of the previous call"
    for number, oracle in enumerate(wrong.subject.inputs):
        same = oracle.source.shape == wrong.shape and oracle.source.dtype == wrong.got.dtype
        if same and wrong.holds(oracle.block(wrong.tile)):
            yield (
                Kind.UNINITIALISED,
                f"{_some(wrong)} the block of input {number} at the same place",
            )


def _some(wrong: Wrong) -> str:
    """What holds other values: the block, or only a few elements, perhaps a cache line."""
    count = wrong.verdict.wrong
    if 2 * count > wrong.got.size:
        return "it holds"
    at = np.flatnonzero(wrong.wrong)
    in_a_row = len(at) == count and len(at) > 1 and np.ptp(at) == count - 1
    line = f", {count * wrong.got.itemsize} bytes in a row, hold" if in_a_row else " hold"
    return f"{count} of its {wrong.got.size} elements{line}"


def _off_by_rounding(wrong: Wrong) -> Iterator[Reason]:
    ulps = wrong.verdict.ulps
    if ulps <= _NEAR and is_float(wrong.got.dtype) and not wrong.verdict.wrong_patterns:
        yield Kind.ROUNDING, f"it is off by up to {ulps:.2g} ULP, and every bit must be right"


def _non_finite(wrong: Wrong) -> Iterator[Reason]:
    if wrong.verdict.wrong_patterns:
        count = wrong.verdict.wrong_patterns
        yield Kind.NON_FINITE, f"{count} elements differ from the oracle in NaN or infinity"


REASONS: list[tuple[Kind, Test]] = [
    (Kind.UNINITIALISED, _uninitialised),
    (Kind.UNINITIALISED, _stale),
    (Kind.MISSING_REDUCTION, partial(partial_sum, own=True)),
    (Kind.MISSING_REDUCTION, equal_parts),
    (Kind.TRANSPOSED, transposed),
    (Kind.HALO, wrong_halo),
    (Kind.SHIFTED, shifted),
    (Kind.MISSING_REDUCTION, own_part_alone),
]
"""Every one that fits is reported."""

LAST_REASONS: list[tuple[Kind, Test]] = [
    (Kind.MISSING_REDUCTION, partial(partial_sum, own=False)),
    (Kind.PARTS, lost_parts),
    (Kind.ROUNDING, _off_by_rounding),
    (Kind.FACTOR, wrong_factor),
    (Kind.LOWER_PRECISION, lower_precision),
    (Kind.NON_FINITE, _non_finite),
]
"""Tried in this order if none of `REASONS` fits; the first that fits is reported."""
