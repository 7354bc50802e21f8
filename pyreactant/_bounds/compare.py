"""Are values right? The one comparison of a block with what it should hold, and its verdict.

Elements are right within an error bound, or only if they are equal bit for bit. Large blocks are
compared piece by piece, so that the comparison needs little memory beside them.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._core.dtypes import finfo, wide
from .._core.sharding import Index


@dataclass(frozen=True, slots=True)
class Expected:
    """What a block, or a tile of it, should hold.

    Attributes:
        value: In float64 or complex128, or in its own type if it must be equal bit for bit.
        bound: How far rounding can bring a result from `value`; None if it must be equal.
        last_rounding: Whether `bound` includes the last rounding of the result; if not, one
            unit in the last place is allowed beside it.
        usual: How far rounding usually brings a result from `value`; None if that is unknown.
        may_overflow: Where infinity is right because a partial sum may overflow, although
            `value` does not; None if nowhere.
    """

    value: np.ndarray
    bound: np.ndarray | None
    last_rounding: bool = False
    usual: np.ndarray | None = None
    may_overflow: np.ndarray | None = None

    def part(self, inside: Index) -> "Expected":
        """A part of the tile."""
        bound, usual, may_overflow = (
            None if array is None else array[inside]
            for array in (self.bound, self.usual, self.may_overflow)
        )
        return replace(
            self, value=self.value[inside], bound=bound, usual=usual, may_overflow=may_overflow
        )

    def allowed(self, dtype: np.dtype[Any]) -> np.ndarray:
        """The largest right error of each element, if the results are of this type."""
        assert self.bound is not None
        if self.last_rounding:
            return self.bound
        with np.errstate(all="ignore"):
            # One unit in the last place, so that a neighbouring number passes too. Each of a
            # complex number's two parts may be off by one.
            last = ulp(np.abs(self.value) + self.bound, dtype)
            return self.bound + (2 * last if dtype.kind == "c" else last)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether values are right, and how far they are from what they should be.

    Attributes:
        method: How they were checked; "" if that is for the caller to say.
        elements: How many were compared.
        error: Largest distance.
        allowed: What is allowed where error over allowed is largest.
        ratio: That quotient; at most 1 if all are right, infinite where no error is allowed.
        ulps: Largest distance in units in the last place.
        error_squares: Sum of squared distances.
        value_squares: Sum of squares of what the values should be.
        wrong: Elements that are too far off, or NaN or infinite where they should not be. For
            Freivalds' check, rows.
        wrong_patterns: How many of them are NaN or infinite and should not be, or the reverse.
        non_finite: Elements that are NaN or infinite and should be.
        usual: Largest quotient of error and what rounding usually makes of it.
        note: What the numbers do not say.
        worst: The element where error over allowed is largest: {"element": its position, "got",
            "expected", "allowed"}; None if none was compared or all bits are equal. A caller may
            put what it knows of the place here instead.
    """

    method: str = ""
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
    usual: float = 0.0
    note: str = ""
    worst: dict[str, Any] | None = None

    @property
    def passed(self) -> bool:
        """Whether every element is right."""
        return self.wrong == 0

    @property
    def relative_norm(self) -> float:
        """Norm of the error over that of the value."""
        if self.error_squares == 0:
            return 0.0
        return (
            math.sqrt(self.error_squares / self.value_squares) if self.value_squares else math.inf
        )


def worst_of(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict with the largest ratio, a wrong one if there is any."""
    return max(verdicts, key=lambda v: (not v.passed, v.ratio))


def join(parts: Iterable[Verdict]) -> Verdict:
    """The verdict about several blocks or tiles together."""
    verdicts = list(parts) or [Verdict()]
    return replace(
        worst_of(verdicts),
        elements=sum(v.elements for v in verdicts),
        error=max(v.error for v in verdicts),
        ulps=max(v.ulps for v in verdicts),
        error_squares=sum(v.error_squares for v in verdicts),
        value_squares=sum(v.value_squares for v in verdicts),
        wrong=sum(v.wrong for v in verdicts),
        wrong_patterns=sum(v.wrong_patterns for v in verdicts),
        non_finite=sum(v.non_finite for v in verdicts),
        usual=max(v.usual for v in verdicts),
    )


def compare(got: np.ndarray, expected: Expected, start: tuple[int, ...] = ()) -> Verdict:
    """Compare a tile.

    Args:
        got: What the device holds.
        expected: Of the same shape.
        start: Where the tile begins, added to the worst element's position.
    """
    if not got.size:
        return Verdict()
    start = start or (0,) * got.ndim
    if got.size > _AT_ONCE and len(got) > 1:
        return join(_in_pieces(got, expected, start))
    if expected.bound is None:
        return _compare_exact(got, expected.value, start)
    return _compare_rounded(got, expected, start)


_AT_ONCE = 2**18
"""Elements; what comes between takes several times their memory."""


def _in_pieces(got: np.ndarray, expected: Expected, start: tuple[int, ...]) -> Iterator[Verdict]:
    step = max(1, len(got) * _AT_ONCE // got.size)
    for first in range(0, len(got), step):
        rows = slice(first, first + step)
        yield compare(got[rows], expected.part((rows,)), (start[0] + first, *start[1:]))


def compare_copies(
    parts: Sequence[np.ndarray], expected: Expected, start: tuple[int, ...] = ()
) -> list[Verdict]:
    """The same for copies of a tile; what has the first one's bits needs no comparison."""
    found: list[Verdict] = []
    for part in parts:
        same = bool(found) and not _differ(part, parts[0]).any()
        found.append(found[0] if same else compare(part, expected, start))
    return found


def fits(got: np.ndarray, expected: Expected) -> bool:
    """Whether a tile has these values."""
    return compare(got, expected).wrong == 0


def _compare_exact(got: np.ndarray, expected: np.ndarray, start: tuple[int, ...]) -> Verdict:
    wanted = expected.astype(got.dtype, copy=False)
    wrong = _differ(got, wanted)
    count = int(np.count_nonzero(wrong))
    if not count:
        return Verdict(elements=got.size)
    with np.errstate(all="ignore"):
        value = wide(wanted)
        error = np.abs(wide(got) - value)
        finite = np.isfinite(error)
        error = np.where(finite, error, 0.0)
        sizes = np.where(np.isfinite(value), np.abs(value), 0.0)
        ulps = float((error / ulp(sizes, got.dtype)).max()) if got.dtype.kind in "fcV" else 0.0
        error_squares, value_squares = (float(np.square(x).sum()) for x in (error, sizes))
    at = np.unravel_index(int(np.argmax(np.where(wrong, 1 + error, 0.0))), got.shape)
    return Verdict(
        elements=got.size,
        error=float(error.max()),
        ratio=math.inf,
        ulps=ulps,
        error_squares=error_squares,
        value_squares=value_squares,
        wrong=count,
        wrong_patterns=int((wrong & ~finite).sum()),
        worst=_worst(at, start, got, wanted, 0.0),
    )


def _compare_rounded(got: np.ndarray, expected: Expected, start: tuple[int, ...]) -> Verdict:
    value, usual = expected.value, 0.0
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
            right = np.where(finite, error <= allowed, _right_pattern(got, held, expected, allowed))
            error, sizes = np.where(finite, error, 0.0), np.where(finite, sizes, 0.0)
            ratio = error / allowed
            ratio = np.where(~right & ~(ratio > 1), np.inf, np.nan_to_num(ratio, posinf=np.inf))
            at = int(np.argmax(ratio))
        if expected.usual is not None:
            usual = float(np.max(error / expected.usual, initial=0.0, where=finite))
        ulps = float((error / ulp(sizes, got.dtype)).max())
        error_squares, value_squares = (float(np.vdot(x, x)) for x in (error, sizes))
    worst = np.unravel_index(at, got.shape)
    return Verdict(
        elements=got.size,
        error=float(error.max()),
        allowed=float(allowed[worst]),
        ratio=float(ratio[worst]),
        ulps=ulps,
        error_squares=error_squares,
        value_squares=value_squares,
        wrong=int(np.count_nonzero(~right)),
        wrong_patterns=int(np.count_nonzero(~finite & ~right)),
        non_finite=int(np.count_nonzero(~finite & right)),
        usual=usual,
        worst=_worst(worst, start, got, value, float(allowed[worst])),
    )


def _right_pattern(
    got: np.ndarray, held: np.ndarray, expected: Expected, allowed: np.ndarray
) -> np.ndarray:
    """Where an element is NaN or infinite as it should be, or as overflow may make it."""
    value = expected.value
    same = ~np.isfinite(held) & ~np.isfinite(value)
    if held.dtype.kind == "f":
        same &= (np.isnan(held) & np.isnan(value)) | (held == value)
    beyond = np.abs(value) + allowed >= float(finfo(got.dtype).max)
    if expected.may_overflow is not None:
        beyond |= expected.may_overflow
    return same | (beyond & np.isfinite(value) & ~np.isfinite(held))


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
