"""Compare the elements of a block with what they should be, tile by tile."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._core.dtypes import EXTENDED, as_dtype, finfo
from ..._core.sharding import Index


@dataclass(frozen=True, slots=True)
class Expected:
    """A tile of what an array should hold.

    Attributes:
        value: In float64 or complex128, or as it is where it must be equal bit for bit.
        bound: How far rounding can bring a result from `value`, less the last rounding; None
            where it must be equal.
    """

    value: np.ndarray
    bound: np.ndarray | None

    def part(self, inside: Index) -> "Expected":
        """A part of the tile."""
        return Expected(self.value[inside], None if self.bound is None else self.bound[inside])

    def allowed(self, dtype: np.dtype[Any]) -> np.ndarray:
        """The bound and one unit in the last place, so that a neighbouring number passes too."""
        assert self.bound is not None
        with np.errstate(all="ignore"):
            last = ulp(np.abs(self.value) + self.bound, dtype)
            # Each of a complex number's two parts may be off by one.
            return self.bound + (2 * last if dtype.kind == "c" else last)


@dataclass(frozen=True, slots=True)
class Numbers:
    """How a block, or a tile of it, differs from what it should be.

    Attributes:
        elements: How many were compared.
        error: Largest distance.
        allowed: What is allowed where error over allowed is largest.
        ratio: That quotient.
        ulps: Largest distance in units in the last place.
        error_squares: Sum of squared distances.
        value_squares: Sum of squares of what it should be.
        wrong: Elements that are too far off, or NaN or infinite where they should not be.
        wrong_patterns: Those of them that are NaN or infinite where they should not be, or not.
        non_finite: Elements that are NaN or infinite and should be.
        worst: {"element": position in the block, "got", "expected", "allowed"}, if any is wrong.
    """

    elements: int = 0
    error: float = 0.0
    allowed: float = 0.0
    ratio: float = 0.0
    ulps: float = 0.0
    error_squares: float = 0.0
    value_squares: float = 0.0
    wrong: int = 0
    wrong_patterns: int = 0
    non_finite: int = 0
    worst: dict[str, Any] | None = None

    @property
    def relative_norm(self) -> float:
        """Norm of the error over that of the value."""
        if self.error_squares == 0:
            return 0.0
        return (
            math.sqrt(self.error_squares / self.value_squares) if self.value_squares else math.inf
        )


def join(parts: Iterable[Numbers]) -> Numbers:
    """The numbers of several tiles together."""
    tiles = list(parts) or [Numbers()]
    worst = max(tiles, key=lambda t: (t.wrong > 0, t.ratio))
    return Numbers(
        sum(t.elements for t in tiles),
        max(t.error for t in tiles),
        worst.allowed,
        worst.ratio,
        max(t.ulps for t in tiles),
        sum(t.error_squares for t in tiles),
        sum(t.value_squares for t in tiles),
        sum(t.wrong for t in tiles),
        sum(t.wrong_patterns for t in tiles),
        sum(t.non_finite for t in tiles),
        worst.worst,
    )


def compare(got: np.ndarray, expected: Expected, start: tuple[int, ...] = ()) -> Numbers:
    """Compare a tile.

    Args:
        got: What the device holds.
        expected: Of the same shape.
        start: Where the tile begins, added to the worst element's position.
    """
    if not got.size:
        return Numbers()
    start = start or (0,) * got.ndim
    if got.size > _AT_ONCE and len(got) > 1:
        return join(_in_pieces(got, expected, start))
    if expected.bound is None:
        return _compare_exact(got, expected.value, start)
    return _compare_rounded(got, expected, start)


_AT_ONCE = 2**18
"""Elements; what comes between takes several times their memory."""


def _in_pieces(got: np.ndarray, expected: Expected, start: tuple[int, ...]) -> Iterator[Numbers]:
    step = max(1, len(got) * _AT_ONCE // got.size)
    for first in range(0, len(got), step):
        rows = slice(first, first + step)
        yield compare(got[rows], expected.part((rows,)), (start[0] + first, *start[1:]))


def compare_copies(
    parts: Sequence[np.ndarray], expected: Expected, start: tuple[int, ...] = ()
) -> list[Numbers]:
    """The same for copies of a tile; what has the first one's bits needs no comparison."""
    found: list[Numbers] = []
    for part in parts:
        same = bool(found) and not _differ(part, parts[0]).any()
        found.append(found[0] if same else compare(part, expected, start))
    return found


def fits(got: np.ndarray, expected: Expected) -> bool:
    """Whether a tile has these values."""
    return compare(got, expected).wrong == 0


def _compare_exact(got: np.ndarray, expected: np.ndarray, start: tuple[int, ...]) -> Numbers:
    wanted = expected.astype(got.dtype, copy=False)
    wrong = _differ(got, wanted)
    found = int(np.count_nonzero(wrong))
    if not found:
        return Numbers(elements=got.size)
    with np.errstate(all="ignore"):
        wide = np.complex128 if got.dtype.kind == "c" else np.float64
        value = wanted.astype(wide)
        error = np.abs(got.astype(wide) - value)
        finite = np.isfinite(error)
        error = np.where(finite, error, 0.0)
        sizes = np.where(np.isfinite(value), np.abs(value), 0.0)
        ulps = float((error / ulp(sizes, got.dtype)).max()) if got.dtype.kind in "fcV" else 0.0
        squares = float(np.square(error).sum()), float(np.square(sizes).sum())
    at = np.unravel_index(int(np.argmax(np.where(wrong, 1 + error, 0.0))), got.shape)
    return Numbers(
        got.size,
        float(error.max()),
        0.0,
        math.inf,
        ulps,
        *squares,
        found,
        int((wrong & ~finite).sum()),
        0,
        _worst(at, start, got, wanted, 0.0),
    )


def _compare_rounded(got: np.ndarray, expected: Expected, start: tuple[int, ...]) -> Numbers:
    value = expected.value
    assert expected.bound is not None
    with np.errstate(all="ignore"):
        held = got.astype(value.dtype)
        allowed = expected.allowed(got.dtype)
        error, sizes = np.abs(held - value), np.abs(value)
        ratio = error / allowed
        finite: Any = np.True_
        right: Any = np.True_
        at = int(np.argmax(ratio))  # the first NaN, if there is one
        if not ratio.flat[at] <= 1:
            finite = np.isfinite(held) & np.isfinite(value)
            largest = float(finfo(got.dtype).max)
            right = np.where(finite, error <= allowed, _same_pattern(held, value, allowed, largest))
            error, sizes = np.where(finite, error, 0.0), np.where(finite, sizes, 0.0)
            ratio = error / allowed
            ratio = np.where(~right & ~(ratio > 1), np.inf, np.nan_to_num(ratio, posinf=np.inf))
            at = int(np.argmax(ratio))
        ulps = float((error / ulp(sizes, got.dtype)).max())
        squares = float(np.vdot(error, error)), float(np.vdot(sizes, sizes))
    worst = np.unravel_index(at, got.shape)
    wrong = int(np.count_nonzero(~right))
    return Numbers(
        got.size,
        float(error.max()),
        float(allowed[worst]),
        float(ratio[worst]),
        ulps,
        *squares,
        wrong,
        int(np.count_nonzero(~finite & ~right)),
        int(np.count_nonzero(~finite & right)),
        _worst(worst, start, got, value, float(allowed[worst])) if wrong else None,
    )


def _same_pattern(
    held: np.ndarray, value: np.ndarray, allowed: np.ndarray, largest: float
) -> np.ndarray:
    """Where an element is NaN or infinite as it should be, or as overflow may make it."""
    same = ~np.isfinite(held) & ~np.isfinite(value)
    if held.dtype.kind == "f":
        same &= (np.isnan(held) & np.isnan(value)) | (held == value)
    overflow = np.isfinite(value) & (np.abs(value) + allowed >= largest)
    return same | (overflow & ~np.isfinite(held))


def ulp(sizes: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """The distance of neighbouring numbers of a type around numbers of these sizes (float64)."""
    info = finfo(dtype)
    # A number without its mantissa is the power of two below it.
    powers = (np.asarray(sizes).view(np.uint64) & _EXPONENT).view(np.float64)
    return np.maximum(powers, float(info.tiny)) * float(info.eps)


_EXPONENT = np.uint64(0x7FF0_0000_0000_0000)


def _differ(got: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Where two blocks differ in any bit: NaN equals itself, and zero is not minus zero."""
    if got.dtype.kind in "biu":
        return np.asarray(got != wanted)
    if got.dtype.kind == "c":
        return _differ(got.real, wanted.real) | _differ(got.imag, wanted.imag)
    bits = f"u{got.itemsize}"
    words = [np.asarray(block, order="C").view(bits) for block in (got, wanted)]
    return np.asarray(words[0] != words[1])


def is_float(dtype: str | np.dtype[Any]) -> bool:
    """Whether a type rounds."""
    found = as_dtype(dtype)
    return found.kind in "fc" or found.name in EXTENDED


def _worst(
    at: tuple[Any, ...],
    start: tuple[int, ...],
    got: np.ndarray,
    expected: np.ndarray,
    allowed: float,
) -> dict[str, Any]:
    return {
        "element": [int(i) + s for i, s in zip(at, start, strict=True)],
        "got": str(got[at]),
        "expected": str(expected[at]),
        "allowed": allowed,
    }
