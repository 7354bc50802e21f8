"""Compare a block with its expected values.

Elements must be within an error bound, or equal bit for bit. Large blocks are compared piece by
piece, so that the comparison needs little extra memory.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...arrays.dtypes import finfo, wide
from . import fused
from .expected import Expected
from .model import EXPONENT, ulp
from .sight import (
    COARSE,
    SAMPLE,
    Sight,
    blind,
    constants,
    counts,
    exact,
    frequent,
    sample,
    squares_of,
)
from .typical import TypicalVerdict
from .verdict import BY_FLOAT32, Verdict, join


def compare(got: np.ndarray, expected: Expected, start: tuple[int, ...] = ()) -> Verdict:
    """Compare a tile.

    Args:
        got: Values on the device.
        expected: Expected values of the same shape.
        start: Position of the tile's first element, added to the worst element's position.
    """
    if not got.size:
        return Verdict()
    start = start or (0,) * got.ndim
    if got.size > AT_ONCE and len(got) > 1:
        return join(_in_pieces(got, expected, start))
    if expected.exact:
        return _compare_exact(got, expected.value, start)
    verdict = _compare_rounded(got, expected, start)
    if expected.typical is not None:
        return _compare_typical(got, expected, start, verdict)
    return replace(verdict, method=BY_FLOAT32) if expected.float32_products else verdict


def _compare_typical(
    got: np.ndarray, expected: Expected, start: tuple[int, ...], derived: Verdict
) -> Verdict:
    """The verdict by the typical limit, too, after that by the derived bound."""
    typical, limited = expected.typical, expected.limited(got)
    assert typical is not None
    near = _compare_rounded(got, limited, start)
    factor, rms = typical.of_block(got)
    own = TypicalVerdict(
        sigmas=typical.largest(got),
        beyond=max(near.wrong, derived.wrong),
        factor=factor,
        rms=rms,
        undecided=int(np.count_nonzero(typical.branch)),
        derived=derived.sight,
    )
    if not derived.passed or own.passed:
        sight = near.sight if derived.passed else derived.sight
        return replace(derived, sight=sight, typical=own)
    ratio = max(near.ratio, factor, rms)
    return replace(near, wrong=max(1, near.wrong), ratio=ratio, typical=replace(own, only=True))


AT_ONCE = 2**18
"""Elements compared at once; temporary arrays take several times their memory."""


def _in_pieces(got: np.ndarray, expected: Expected, start: tuple[int, ...]) -> Iterator[Verdict]:
    step = max(1, len(got) * AT_ONCE // got.size)
    for first in range(0, len(got), step):
        rows = slice(first, first + step)
        yield compare(got[rows], expected.part((rows,)), (start[0] + first, *start[1:]))


def compare_copies(
    parts: Sequence[np.ndarray], expected: Expected, start: tuple[int, ...] = ()
) -> list[Verdict]:
    """Compare copies of a tile; copies with the first one's bits reuse its verdict."""
    verdicts: list[Verdict] = []
    for part in parts:
        same = bool(verdicts) and not _differ(part, parts[0]).any()
        verdicts.append(verdicts[0] if same else compare(part, expected, start))
    return verdicts


def wrong_elements(got: np.ndarray, expected: Expected) -> np.ndarray:
    """Which elements of a tile are wrong."""
    if expected.bound is None:
        return _differ(got, expected.value.astype(got.dtype, copy=False))
    if expected.typical is not None:
        expected = expected.limited(got)
    with np.errstate(all="ignore"):
        held, allowed = got.astype(expected.value.dtype), expected.allowed(got.dtype)
        finite = np.isfinite(held) & np.isfinite(expected.value)
        right = np.abs(held - expected.value) <= allowed
        return ~np.where(finite, right, _right_pattern(got, held, expected, allowed))


def _compare_exact(got: np.ndarray, expected: np.ndarray, start: tuple[int, ...]) -> Verdict:
    wanted = expected.astype(got.dtype, copy=False)
    wrong = _differ(got, wanted)
    count = int(np.count_nonzero(wrong))
    if not count:
        return Verdict(elements=got.size, sight=exact(got.size))
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
        worst=_worst(at, start, got, wanted[at], 0.0),
        sight=exact(got.size),
    )


def _compare_rounded(got: np.ndarray, expected: Expected, start: tuple[int, ...]) -> Verdict:
    verdict = _compared_in_one_pass(got, expected, start)
    if verdict is not None:
        return verdict
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
        ulps = 0.0 if got.dtype.kind in "biu" else float((error / ulp(sizes, got.dtype)).max())
        error_squares, value_squares = (float(np.vdot(x, x)) for x in (error, sizes))
        unbounded = _unbounded(expected, allowed)
    worst = np.unravel_index(at, got.shape)
    non_finite = int(np.count_nonzero(~finite & right))
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
        non_finite=non_finite,
        usual=usual,
        estimated=expected.estimated,
        worst=_worst(worst, start, got, value[worst], float(allowed[worst])),
        sight=_sight(got, expected, value_squares, got.size - non_finite, unbounded),
    )


def _compared_in_one_pass(
    got: np.ndarray, expected: Expected, start: tuple[int, ...]
) -> Verdict | None:
    """The verdict by a loop; None if an element is not right or a loop does not help."""
    if got.dtype.name not in ("float32", "float64", "complex64") or expected.last_rounding:
        return None
    if expected.usual is not None or not fused.large(got):
        return None
    value, bound = _pair(expected)
    if value.dtype != (np.complex128 if got.dtype.kind == "c" else np.float64):
        return None
    info, numbers = finfo(got.dtype), 2 if got.dtype.kind == "c" else 1
    lines = [_line(array) for array in (got, value, bound)]
    seen = fused.compared(*lines, numbers, float(info.eps), float(info.tiny), EXPONENT)
    if not seen.ratio <= 1:
        return None
    at = np.unravel_index(seen.place, got.shape)
    worst = expected.part(tuple(slice(i, i + 1) for i in at))
    allowed = float(worst.allowed(got.dtype).item())
    return Verdict(
        elements=got.size,
        error=seen.error,
        allowed=allowed,
        ratio=seen.ratio,
        ulps=seen.ulps,
        error_squares=seen.error_squares,
        value_squares=seen.value_squares,
        estimated=expected.estimated,
        worst=_worst(at, start, got, worst.value.item(), allowed),
        sight=_sight(got, expected, seen.value_squares, got.size, seen.unbounded),
    )


def _line(array: np.ndarray) -> np.ndarray:
    """The elements in one line of real numbers.

    Loops become vector instructions only if neighbours are known to be adjacent.
    """
    line = np.ascontiguousarray(array).reshape(-1)
    line = line.view(line.real.dtype)
    line.flags.writeable = False  # one type of arguments, so that numba compiles once
    return line


def _pair(expected: Expected) -> tuple[np.ndarray, np.ndarray]:
    assert expected.bound is not None
    return expected.value, np.broadcast_to(expected.bound, expected.value.shape)


def _sight(
    got: np.ndarray, expected: Expected, squares: float, finite: int, unbounded: int
) -> Sight:
    """What the comparison of a tile can see.

    Args:
        squares: Sum of the squares of the finite values.
        finite: Number of elements that are not rightly NaN or infinite.
        unbounded: Number of elements without a tolerance.
    """
    places, each = sample(got.shape)
    value, bound = _pair(expected)
    some = Expected(value[places], bound[places], last_rounding=expected.last_rounding)
    absolute, blinded = squares_of(expected.absolute), 0
    trivial: np.ndarray = np.zeros((), bool)
    known, all_finite = frequent(some.value), finite == got.size and not unbounded
    with np.errstate(all="ignore"):
        if known.size or not all_finite:
            trivial = constants(value, bound, got, known)
        if not all_finite or trivial.any() or not _all_seen(got, expected, squares):
            allowed, size = expected.allowed(got.dtype), math.sqrt(absolute / got.size)
            blinded = blind(value, allowed, np.broadcast_to(trivial, value.shape), size)
        if trivial.any():
            some = replace(some, value=value[~trivial], bound=bound[~trivial])
            each = max(1, some.value.size // SAMPLE) | 1
            squares, finite = squares_of(some.value), int(np.isfinite(some.value).sum())
            some = some.part((slice(None, None, each),))
        tolerances = counts(some.allowed(got.dtype), some.value, each, unbounded)
    return Sight(
        tolerances,
        squares,
        finite,
        absolute,
        elements=got.size,
        blind=blinded,
        trivial=int(np.count_nonzero(trivial)),
    )


def _all_seen(got: np.ndarray, expected: Expected, squares: float) -> bool:
    """Whether a glance at the bounds shows that no element is blind, if none is constant."""
    value, bound = _pair(expected)
    size = math.sqrt(squares / got.size)
    if got.dtype.kind in "biu":
        return bool(bound.max() <= COARSE * size)
    # No value is larger than the norm.
    largest = size * math.sqrt(got.size)
    if value.dtype.kind == "f":
        largest = max(float(value.max()), -float(value.min()))
    unit = 2 * float(finfo(got.dtype).eps) * largest
    return bool(2 * bound.max() + unit <= COARSE * size)


def _unbounded(expected: Expected, allowed: np.ndarray) -> int:
    """Number of elements of which any value passes: without a tolerance, or perhaps infinite."""
    if np.isfinite(allowed).all():
        return 0
    value, bound = _pair(expected)
    open_ones = np.where(
        np.isfinite(value), ~np.isfinite(allowed), np.isinf(value) & np.isinf(bound)
    )
    return int(np.count_nonzero(open_ones))


def _right_pattern(
    got: np.ndarray, held: np.ndarray, expected: Expected, allowed: np.ndarray
) -> np.ndarray:
    """Where an element is rightly NaN or infinite, possibly because of overflow."""
    value = expected.value
    if got.dtype.kind in "biu":
        return np.isinf(np.asarray(expected.bound))
    same = ~np.isfinite(held) & ~np.isfinite(value)
    if held.dtype.kind == "f":
        same &= (np.isnan(held) & np.isnan(value)) | (held == value)
        same |= np.isinf(value) & np.isinf(np.asarray(expected.bound))  # not certainly infinite
    beyond = np.abs(value) + allowed >= float(finfo(got.dtype).max)
    if expected.may_overflow is not None:
        beyond |= expected.may_overflow
    return same | (beyond & np.isfinite(value) & ~np.isfinite(held))


def _differ(got: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Where two blocks differ in any bit: all NaN are equal, 0.0 differs from -0.0."""
    if got.dtype.kind in "biu":
        return np.asarray(got != wanted)
    if got.dtype.kind == "c":
        return _differ(got.real, wanted.real) | _differ(got.imag, wanted.imag)
    bits = f"u{got.itemsize}"
    words = [np.asarray(block, order="C").view(bits) for block in (got, wanted)]
    differ = np.asarray(words[0] != words[1])
    if differ.any():
        # Additions of zeros, as in a gather over devices, may change the sign of a NaN.
        differ &= ~(np.isnan(got) & np.isnan(wanted))
    return differ


def _worst(
    at: tuple[Any, ...], start: tuple[int, ...], got: np.ndarray, expected: Any, allowed: float
) -> dict[str, Any]:
    return {
        "element": [int(i) + s for i, s in zip(at, start, strict=True)],
        "got": str(got[at]),
        "expected": str(expected),
        "allowed": allowed,
    }
