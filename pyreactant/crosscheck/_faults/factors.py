"""Faults that multiply a result, or each of its rows, by a factor."""

import math
from collections.abc import Iterator

import numpy as np

from ..._bounds.compare import Expected
from ..._core.dtypes import is_float, wide
from .._oracle.oracle import OutputOracle
from .._records.verdict import Kind
from .subject import Reason, Wrong

_USUAL_EPSILONS = (0.0, 1e-12, 1e-8, 1e-6, 1e-5, 1e-3)


def wrong_factor(wrong: Wrong) -> Iterator[Reason]:
    """One factor for all wrong elements, or one for each row, perhaps beside a right summand."""
    oracle = wrong.oracle
    if not isinstance(oracle, OutputOracle) or not is_float(wrong.values.dtype):
        return
    if np.count_nonzero(wrong.wrong) < 2:
        return  # any single element is a multiple
    for number, offset in _offsets(wrong, oracle):
        scaled = _value(wrong.right) - offset
        change = wide(wrong.values) - offset
        beside = "" if number is None else f", without the part that input {number} does not change"
        factor = _factor(change, scaled, wrong.wrong, None)
        if factor is not None and _holds(wrong, offset, scaled, factor, 1):
            yield _named(wrong, complex(factor.flat[0]), beside)
            return
        for axis in range(wrong.values.ndim - 1, -1, -1) if wrong.values.ndim > 1 else ():
            rows = _factor(change, scaled, wrong.wrong, axis)
            if rows is None or not _holds(wrong, offset, scaled, rows, rows.size):
                continue
            sizes = np.abs(rows)
            # An epsilon under the root changes the factor of a variance a little from row to row.
            middle = complex(np.median(rows.real), np.median(rows.imag))
            known = _variance(wrong, middle, 4 * float(np.abs(rows - middle).max()) + 1e-5, beside)
            yield (
                known
                or _epsilon(wrong, offset, scaled, rows, axis)
                or (
                    Kind.FACTOR,
                    f"each line along dimension {axis} is multiplied by a factor of its own, of "
                    f"size {sizes.min():.4g} to {sizes.max():.4g}{beside}",
                )
            )
            return


def _offsets(wrong: Wrong, oracle: OutputOracle) -> Iterator[tuple[int | None, np.ndarray]]:
    """Zero, and the values of the tile with one of the inputs zero, such as a summand."""
    yield None, np.zeros((), np.float64)
    if len(oracle.sources) > 1:
        for number in range(len(oracle.sources)):
            offset = _value(oracle.only(wrong.tile, number, None))
            if np.isfinite(offset).all() and offset.any():
                yield number, offset


def _value(expected: Expected) -> np.ndarray:
    return wide(np.asarray(expected.value))


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


def _holds(
    wrong: Wrong, offset: np.ndarray, scaled: np.ndarray, factor: np.ndarray, free: int
) -> bool:
    bound = wrong.right.bound
    allowed = np.zeros(scaled.shape) if bound is None else bound * np.maximum(1.0, np.abs(factor))
    return wrong.holds(Expected(offset + scaled * factor, allowed), free)


def _named(wrong: Wrong, factor: complex, beside: str) -> Reason:
    """The reason of one factor for all elements; some are those of a known fault."""
    size = factor.real if abs(factor.imag) <= 1e-6 * abs(factor) else factor
    right, slack = wrong.right, 1e-6
    if right.bound is not None:
        # The factor is known as well as the elements are.
        spread = float(np.median(right.allowed(wrong.values.dtype)))
        norm = float(np.sqrt(np.mean(np.abs(_value(right)) ** 2)))
        slack = max(slack, spread / norm if norm else slack)
    shown = f"{size:.6g}" if isinstance(size, float) else f"({size:.6g})"
    text = f"it is {shown} times the right value{beside}"
    return _variance(wrong, size, slack, beside) or (Kind.FACTOR, text)


def _variance(wrong: Wrong, factor: complex, slack: float, beside: str) -> Reason | None:
    """Whether a factor is that of a variance with another divisor, for a length of an input."""
    for n in sorted({n for plan in wrong.subject.input_plans for n in plan.shape if n > 2}):
        for exact, text in (
            (math.sqrt((n - 1) / n), f"the root of {n - 1}/{n}"),
            (math.sqrt(n / (n - 1)), f"the root of {n}/{n - 1}"),
            ((n - 1) / n, f"{n - 1}/{n}"),
            (n / (n - 1), f"{n}/{n - 1}"),
        ):
            if abs(factor - exact) <= min(slack, abs(1 - exact) / 8):
                return (
                    Kind.VARIANCE,
                    f"it is {text} times the right value, as if a variance were divided by n - 1 "
                    f"instead of n, or the other way round{beside}",
                )
    return None


def _epsilon(
    wrong: Wrong, offset: np.ndarray, scaled: np.ndarray, factors: np.ndarray, axis: int
) -> Reason | None:
    """Another epsilon under the root of a variance: ``factor^-2 - 1`` is ``d / (variance + e)``."""
    if np.iscomplexobj(factors) or not (factors > 0).all():
        return None
    for number, source in enumerate(wrong.subject.inputs):
        if source.source.shape != wrong.shape:
            continue
        lines = list(wrong.tile)
        lines[axis] = slice(0, wrong.shape[axis])
        x = _value(source.block(tuple(lines)))
        squares = {
            "variance": np.var(x, axis=axis, keepdims=True),
            "mean square": np.mean(x * x, axis=axis, keepdims=True),
        }
        for (name, square), usual in (
            (item, usual) for item in squares.items() for usual in _USUAL_EPSILONS
        ):
            more = float(np.median((factors**-2.0 - 1) * (square + usual)))
            with np.errstate(all="ignore"):
                fitted = 1 / np.sqrt(1 + more / (square + usual))
            if np.isfinite(fitted).all() and _holds(wrong, offset, scaled, fitted, 1):
                return (
                    Kind.EPSILON,
                    f"it is right with an epsilon that is {more:+.3g} off, under the root of the "
                    f"{name} of input {number}",
                )
    return None
