"""Faults of elements: multiplied by a factor, at another place, or of a shorter type.

Other faults than a shorter type are small, too. So the size of errors has no name: either the
values fit into the shorter type, or the errors are those of inputs that do.
"""

import itertools
import math
from collections.abc import Iterator

import numpy as np

from ...arrays.dtypes import as_dtype, finfo, is_float, wide
from ...arrays.source import Source
from ..bounds.compare import wrong_elements
from ..bounds.expected import Expected
from ..oracle.sources import Rounded, Stale, beside, exchanged
from ..records.verdict import Kind
from ..regions import around, within
from .alteration import is_factor, plain_numbers
from .subject import Reason, Wrong, explains, fits

_USUAL_EPSILONS = (0.0, 1e-12, 1e-8, 1e-6, 1e-5, 1e-3)


def wrong_factor(wrong: Wrong) -> Iterator[Reason]:
    """One factor for all wrong elements, or one for each row, perhaps beside a right summand."""
    if not is_float(wrong.values.dtype) or np.count_nonzero(wrong.wrong) < 2:
        return  # any single element is a multiple
    for number, offset in _offsets(wrong):
        scaled = wrong.right.numbers - offset
        change = wide(wrong.values) - offset
        beside = "" if number is None else f", without the part that input {number} does not change"
        factor = _factor(change, scaled, wrong.wrong, None)
        if factor is not None and _holds(wrong, offset, scaled, factor, 1):
            rest, size = (change - scaled * factor)[wrong.wrong], scaled[wrong.wrong]
            kind, text = _named(wrong, complex(factor.flat[0]), beside, _norm(rest) / _norm(size))
            # What leaves other elements right may be a threshold that moved.
            yield (kind if _fits_all(wrong, offset, scaled, factor) else Kind.UNKNOWN), text
            return
        for axis in range(wrong.values.ndim - 1, -1, -1) if wrong.values.ndim > 1 else ():
            rows = _factor(change, scaled, wrong.wrong, axis)
            if rows is None or not _holds(wrong, offset, scaled, rows, rows.size):
                continue
            sizes = np.abs(rows)
            # What divides a line may be a sum over a part of it, or have another mask.
            # An epsilon under the root changes the factor of a variance a little from row to row.
            middle = complex(np.median(rows.real), np.median(rows.imag))
            spread = float(np.abs(rows - middle).max())
            own = (
                f"each line along dimension {axis} is multiplied by a factor of its own, of size "
                f"{sizes.min():.4g} to {sizes.max():.4g}{beside}"
            )
            yield (
                _variance(wrong, middle, 4 * spread + 1e-5, beside, spread)
                or _epsilon(wrong, offset, scaled, rows, axis)
                or (Kind.UNKNOWN, own)
            )
            return


def is_multiple(wrong: Wrong) -> bool:
    """Whether the wrong elements are the right ones, times one factor or one for each line."""
    if not is_float(wrong.values.dtype) or np.count_nonzero(wrong.wrong) < 2:
        return False
    right = wrong.right.numbers
    for axis in (None, *range(wrong.values.ndim if wrong.values.ndim > 1 else 0)):
        factor = _factor(wide(wrong.values), right, wrong.wrong, axis)
        if factor is not None and _holds(wrong, np.zeros(()), right, factor, factor.size):
            return True
    return False


def _offsets(wrong: Wrong) -> Iterator[tuple[int | None, np.ndarray]]:
    """Zero, and the values of the tile with one of the inputs zero, such as a summand."""
    yield None, np.zeros((), np.float64)
    count = len(wrong.output.sources)
    for number in range(count) if count > 1 else ():
        offset = wrong.output.only(wrong.tile, number, None).numbers
        if np.isfinite(offset).all() and offset.any():
            yield number, offset


def _factor(
    change: np.ndarray, scaled: np.ndarray, chosen: np.ndarray, axis: int | None
) -> np.ndarray | None:
    """The factors by least squares over the chosen elements, along an axis or of all elements."""
    with np.errstate(all="ignore"):
        weight = np.where(chosen, np.conjugate(scaled), 0)
        products = np.sum(np.where(chosen, weight * change, 0), axis=axis, keepdims=True)
        squares = np.sum(np.abs(weight) ** 2, axis=axis, keepdims=True)
        # A line without a wrong element keeps its values.
        factor = np.where(squares > 0, products / squares, 1.0)
    return factor if np.isfinite(factor).all() else None


def _fits_all(wrong: Wrong, offset: np.ndarray, scaled: np.ndarray, factor: np.ndarray) -> bool:
    """Whether a factor changes no element that is right."""
    with np.errstate(all="ignore"):
        value = offset + scaled * factor
    return not (wrong_elements(value.astype(wrong.values.dtype), wrong.right) & ~wrong.wrong).any()


def _holds(
    wrong: Wrong, offset: np.ndarray, scaled: np.ndarray, factor: np.ndarray, free: int
) -> bool:
    bound = wrong.right.bound
    allowed = np.zeros(scaled.shape) if bound is None else bound * np.maximum(1.0, np.abs(factor))
    return wrong.holds(Expected(offset + scaled * factor, allowed), free)


def _named(wrong: Wrong, factor: complex, beside: str, known: float) -> Reason:
    """The reason of one factor for all elements, and how well it is known.

    Some factors are those of a known fault.
    """
    size = factor.real if abs(factor.imag) <= 1e-6 * abs(factor) else factor
    right, slack = wrong.right, 1e-6
    if right.bound is not None:
        # The factor is known as well as the elements are.
        spread = float(np.median(right.allowed(wrong.values.dtype)))
        norm = float(np.sqrt(np.mean(np.abs(right.numbers) ** 2)))
        slack = max(slack, spread / norm if norm else slack)
    shown = f"{size:.6g}" if isinstance(size, float) else f"({size:.6g})"
    text = f"it is {shown} times the right value{beside}"
    named = is_factor(size)
    if isinstance(size, float) and wrong.subject.operations is not None:
        # A number that nobody writes is computed, perhaps from the inputs.
        named &= any(plain_numbers(size, known))
    kind = Kind.FACTOR if named else Kind.UNKNOWN
    return _variance(wrong, size, slack, beside) or (kind, text)


def _variance(
    wrong: Wrong, factor: complex, slack: float, beside: str, spread: float = 0.0
) -> Reason | None:
    """Whether a factor is that of a variance with another divisor, for a length of an input.

    Factors that spread are those of something else, which differs from line to line.
    """
    for n in sorted({n for plan in wrong.subject.input_plans for n in plan.shape if n > 2}):
        for up, down in ((n - 1, n), (n, n - 1)):
            ratio, text = up / down, f"{up}/{down}"
            for exact, shown in ((math.sqrt(ratio), f"the root of {text}"), (ratio, text)):
                near = abs(1 - exact) / 8
                if spread <= near and abs(factor - exact) <= min(slack, near):
                    return (
                        Kind.VARIANCE,
                        f"it is {shown} times the right value, as if a variance were divided by "
                        f"n - 1 instead of n, or the other way round{beside}",
                    )
    return None


def _epsilon(
    wrong: Wrong, offset: np.ndarray, scaled: np.ndarray, factors: np.ndarray, axis: int
) -> Reason | None:
    """Another epsilon under the root of a variance, or one that is added to the root.

    ``factor^-2 - 1`` is ``d / (variance + e)``, or ``factor^-1 - 1`` is ``d / sqrt(variance + e)``.
    """
    if np.iscomplexobj(factors) or not (factors > 0).all():
        return None
    for number, source in enumerate(wrong.subject.inputs):
        if source.source.shape != wrong.shape:
            continue
        lines = list(wrong.tile)
        lines[axis] = slice(0, wrong.shape[axis])
        x = source.block(tuple(lines)).numbers
        squares = {
            "variance": np.var(x, axis=axis, keepdims=True),
            "mean square": np.mean(x * x, axis=axis, keepdims=True),
        }
        for (name, square), usual, (power, where) in itertools.product(
            squares.items(), _USUAL_EPSILONS, ((2, "under"), (1, "beside"))
        ):
            size = (square + usual) ** (power / 2)
            more = float(np.median((factors ** float(-power) - 1) * size))
            with np.errstate(all="ignore"):
                fitted = (1 + more / size) ** (-1 / power)
            if np.isfinite(fitted).all() and _holds(wrong, offset, scaled, fitted, 1):
                return (
                    Kind.EPSILON,
                    f"it is right with an epsilon that is {more:+.3g} off, {where} the root of the "
                    f"{name} of input {number}",
                )
    return None


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
    oracle, before = wrong.output, wrong.before
    for dimension in range(len(wrong.shape)):
        width = oracle.halo(wrong.block, dimension)
        if not width:
            continue
        own = wrong.block[dimension]
        widths = {1, 2, width} if 2 * width <= own.stop - own.start else {1, 2}
        faulty = [
            (f"off by {by:+d}", [beside(x, own, dimension, by) for x in oracle.sources])
            for by in (1, -1)
        ]
        faulty += [
            ("exchanged", [exchanged(x, own, dimension, n) for x in oracle.sources])
            for n in sorted(widths)
        ]
        if before is not None:
            both = zip(oracle.sources, before.sources, strict=True)
            stale: list[Source] = [Stale(x, own, dimension, old) for x, old in both]
            faulty.append(("those of the previous call", stale))
        for text, sources in faulty:
            if wrong.holds(oracle.with_halos(sources).block(wrong.tile)):
                yield Kind.HALO, f"its neighbours' elements along dimension {dimension} are {text}"
                return


def shifted(wrong: Wrong) -> Iterator[Reason]:
    """The block, or its wrong elements, moved by any number of positions along a dimension."""
    for dimension, own in enumerate(wrong.block):
        if wrong.verdict.worst is None or own.stop - own.start < 3:
            continue
        lengths = [_LINES if len(wrong.block) < 3 else 2] * len(wrong.block)
        lengths[dimension] = _LINE
        line = around(wrong.block, wrong.verdict.worst["element"], lengths)
        got, right = wrong.seen(line), wrong.oracle.block(line)
        bad, n = wrong_elements(got, right), got.shape[dimension]
        for by in sorted(range(1 - n, n), key=abs):
            if by and _is_shifted(got, right, bad, dimension, by):
                yield Kind.SHIFTED, f"it is shifted by {by:+d} along dimension {dimension}"
                return


def _is_shifted(got: np.ndarray, right: Expected, bad: np.ndarray, dimension: int, by: int) -> bool:
    """Whether the wrong elements are those `by` positions before, where these are in the lines."""
    n, before = got.shape[dimension], (slice(None),) * dimension
    here = (*before, slice(max(0, by), min(n, n + by)))
    there = (*before, slice(max(0, -by), min(n, n - by)))
    # Elements that come from outside are not known; most must come from inside.
    if 2 * np.count_nonzero(bad[here]) <= np.count_nonzero(bad):
        return False
    return explains(got[here], right.part(here), right.part(there), bad[here], tries=2 * n)


_SHORTER = {"bfloat16": 8, "float16": 11, "float32": 24}
"""Shorter types and the bits of their significands; TF32 has those of float16."""

_SAME = 0.9
"""Least correlation of errors that have one cause."""

_AS_LARGE = 2.0
"""Most times that errors exceed those of shorter inputs, if these are their cause."""


def lower_precision(wrong: Wrong) -> Iterator[Reason]:
    got, value = wrong.values, wrong.right.numbers
    if not is_float(got.dtype) or wrong.got.size < 2:  # one element shows no precision
        return
    with np.errstate(all="ignore"):
        error, sizes = wide(got) - value, np.abs(value)
        small = np.abs(error).max() <= 2.0**-4 * sizes.max()
        spread = (np.abs(error) > 2 * float(finfo(got.dtype).eps) * sizes).mean() >= 0.25
    if not (small and spread):
        return
    held = next((name for name in _shorter(got.dtype) if _representable(got, name)), None)
    text = f"its elements are rounded to {held}" if held else _of_inputs(wrong, error, value)
    if text:
        yield Kind.LOWER_PRECISION, text


def _of_inputs(wrong: Wrong, error: np.ndarray, value: np.ndarray) -> str:
    """How the errors of a tile resemble those of shorter factors; "" if they do not."""
    for text, by in _shortened(wrong, value):
        alike = np.abs(np.vdot(error, by)) > _SAME * _norm(error) * _norm(by) > 0
        if alike and _norm(error) < _AS_LARGE * _norm(by):
            return text
    return ""


def _shortened(wrong: Wrong, value: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """How far shorter inputs, or factors of products, move the right values, and in words."""
    sources = wrong.output.sources
    numbers: list[int | None] = [None, *(range(len(sources)) if len(sources) > 1 else ())]
    for name, number in itertools.product(_shorter(wrong.values.dtype), numbers):
        tf32 = ", or to TF32" if name == "float16" else ""
        which = "inputs" if number is None else f"input {number}"
        oracle = wrong.output.reading(
            Rounded(source, _SHORTER[name]) if number in (None, n) else source
            for n, source in enumerate(sources)
        )
        with np.errstate(all="ignore"):
            by = oracle.block(wrong.tile).numbers - value
        yield f"it is what rounding {which} to {name} gives{tf32}", by
    operations = wrong.subject.operations
    for text, result in () if operations is None else operations.shorter():
        with np.errstate(all="ignore"):
            yield text, wide(result[wrong.tile]) - value


def _norm(x: np.ndarray) -> float:
    return float(np.linalg.norm(x.ravel()))


def _shorter(dtype: np.dtype[np.generic]) -> list[str]:
    part = dtype.itemsize // (2 if dtype.kind == "c" else 1)
    return [name for name in _SHORTER if as_dtype(name).itemsize < part]


def _representable(got: np.ndarray, name: str) -> bool:
    parts = [got.real, got.imag] if got.dtype.kind == "c" else [got]
    with np.errstate(all="ignore"):
        return all((part.astype(as_dtype(name)).astype(part.dtype) == part).all() for part in parts)
