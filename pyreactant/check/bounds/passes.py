"""Bounds of whole built-in programs, where the rules of their operations do less well.

Chains of rules run in a few passes over the data, by the loops of `fused`. Each of these functions
returns None if a loop does not help or a case is beyond it: numba is absent, the arrays are small,
complex or not exact where they must be, or something may overflow. The caller then uses the rules,
which give the same values and bounds up to the order of sums.

For data without structure the bounds of sums over a batch and of Fourier transforms are tighter.
The rules allow that all rounding errors have the same sign, or meet in one element. The errors of
random data have random signs: their squares add up, and they spread over a whole transform. Only
what functions such as tanh do wrong may be alike in all examples. docs/checks.md has the proofs.
"""

import math
from typing import Any

import numpy as np

from . import fused
from .expected import Deferred, chunks
from .model import Model
from .rules.products import norms
from .rules.reductions import from_sums
from .tracked import Tracked, _numpy

_FAR = 2.0**-20
"""Largest part of the type's largest number that the loops take, so that nothing overflows."""


def softmax(x: Tracked) -> Tracked | None:
    """``e / e.sum(keepdims)`` with ``e = exp(x - x.max(keepdims))``, along the last dimension.

    `x` is exact.
    """
    if not _large(x) or x.narrow.any() or not _near(x.held, x.narrow, x.model):
        return None
    value = _rows(x.held)
    most = np.max(value, axis=1).astype(np.float64)
    bounds = np.zeros((len(value), 1)), np.zeros(len(value))
    return _softmax(x.model, x.shape, value, bounds[0], most, bounds[1])


def softmax_of_scores(x: Tracked, factor: float) -> Tracked | None:
    """The same of ``x * factor`` for the rows of a product, which no other array shares."""
    model = x.model
    if not fused.worthwhile(x.value) or not _near(x.value, x.narrow, model):
        return None
    value, bound = _rows(x.value), _rows(x.bound)
    constant = float(model.constant(np.asarray(factor)))
    most, high, low, widest = fused.scaled(
        value, bound, factor, constant, model.roundoff, model.tiny
    )
    apart = np.maximum(high - most, most - low) + 2.0**-50 * np.abs(most)
    return _softmax(model, x.shape, value, bound, most, np.minimum(widest, apart))


def _softmax(
    model: Model,
    shape: tuple[int, ...],
    value: np.ndarray,
    bound: np.ndarray,
    most: np.ndarray,
    most_bound: np.ndarray,
) -> Tracked | None:
    of_exp, of_quotient = model.function("exp"), model.function("divide").relative
    u, tiny, n = model.roundoff, model.tiny, shape[-1]
    pieces, sums = chunks(*value.shape), np.empty((5, len(value)))
    z = np.empty((pieces[0].stop, n))

    def powers(rows: slice, first: int, out: np.ndarray) -> np.ndarray:
        fused.differences(value[rows], most[rows], first, out)
        return np.exp(out, out=out)

    for rows in pieces:
        given = value[rows], bound[rows], powers(rows, 0, z[: rows.stop - rows.start])
        of = most[rows], most_bound[rows], of_exp.relative, u, tiny
        sums[:, rows] = fused.exponentials(*given, *of)
    total = from_sums(model, n, *sums[:4])
    if of_exp.absolute or not (np.max(sums[4]) <= 1 and np.all(total.bound < total.value)):
        return None
    rowwise = value, bound, most, most_bound, total.value, total.bound

    def fill(rows: slice, columns: slice, quotients: np.ndarray, bounds: np.ndarray) -> None:
        powers(rows, columns.start, quotients)
        ends = columns.start, of_exp.relative, of_quotient, u, tiny, quotients, bounds
        fused.quotients(*(one[rows] for one in rowwise), *ends)

    found = Deferred(fill, range(len(value)), range(n), model)
    return found if len(shape) == 2 else found.reshape(shape)


def layer_norm(x: Tracked, gain: Tracked, shift: Tracked, epsilon: float) -> Tracked | None:
    """Rows minus their mean, over their standard deviation, times `gain` plus `shift`."""
    model, n = x.model, x.shape[-1]
    of_quotient = model.function("divide").relative
    if not _large(x) or any(one.narrow.any() for one in (x, gain, shift)):
        return None
    if not all(_near(one.held, one.narrow, model) for one in (x, gain, shift)):
        return None
    u, tiny, value = model.roundoff, model.tiny, _rows(x.held)
    sums = fused.row_sums(value)
    mean = from_sums(model, n, sums[0], np.zeros(()), sums[1], sums[2]) / n
    squares = fused.centred_squares(value, mean.value, mean.bound, u, tiny)
    deviation = _numpy.sqrt(from_sums(model, n, *squares) / n + epsilon)
    if not np.all(deviation.bound < deviation.value):
        return None
    rowwise = value, mean.value, mean.bound, deviation.value, deviation.bound

    def fill(rows: slice, columns: slice, value: np.ndarray, bound: np.ndarray) -> None:
        ends = gain.value[columns], shift.value[columns], columns.start, u, of_quotient, tiny
        fused.normalized(*(one[rows] for one in rowwise), *ends, value, bound)

    return Deferred(fill, range(len(value)), range(n), model)


def heat(x: Tracked, rate: float, steps: int) -> Tracked | None:
    """Steps ``x + rate (neighbours - 4 x)`` on a plate with zeros around; `rate` is exact."""
    if not fused.worthwhile(x.value) or not _near(x.value, x.narrow, x.model):
        return None
    value, bound = np.pad(x.value, 1), np.pad(x.bound, 1)
    for _ in range(steps):
        value, bound = fused.stencil(value, bound, rate, x.model.roundoff, x.model.tiny)
    return Tracked(value[1:-1, 1:-1], bound[1:-1, 1:-1], x.model)


def _large(x: Tracked) -> bool:
    return x.held.dtype.kind == "f" and fused.large(x.held)


def _near(value: np.ndarray, bound: np.ndarray, model: Model) -> bool:
    """Whether numbers, and powers of them, are far from the largest number, and none is NaN."""
    limit = min(_FAR * model.largest, math.sqrt(model.largest) * _FAR)
    low, high = value.min(initial=0.0), value.max(initial=0.0)
    return bool(max(-low, high) + bound.max(initial=0.0) < limit)


def _rows(x: np.ndarray) -> np.ndarray:
    """A matrix with the same rows, in C order."""
    return np.ascontiguousarray(x.reshape(-1, x.shape[-1]))


_SMALL = 0.25
"""Largest relative error of the summands; with more, the rule's own bound applies."""


def over_batch(x: Tracked | None, y: Tracked, alike: np.ndarray) -> Tracked:
    """``x @ y``, or the sum of the rows of y without x, for exact x.

    Args:
        x: Factors, (m, batch), without an error; None for a sum.
        y: Summands, (batch, n).
        alike: The part of the bound of y, (batch, n), whose errors may have the same sign.
    """
    bounds, model = y.bound, y.model
    relative = _norms(bounds) / np.maximum(_norms(y.value), model.tiny)
    if not model.random or not relative.max(initial=0.0) < _SMALL:
        return _plain(x, y)
    z = _plain(x, Tracked(y.value, 0.0, model))
    if x is None:
        inherited = _norms(bounds) + alike.sum(axis=0)
    else:
        rows, largest = norms(x, 1)[0], np.maximum(x.held.max(axis=1), -x.held.min(axis=1))
        # Both are at least the root of the sum of the squares of the products.
        random = np.minimum(np.outer(largest, _norms(bounds)), np.outer(rows, bounds.max(axis=0)))
        inherited = random + np.outer(rows, _norms(alike))
    # The sums are rounded more if the errors have made them larger.
    return Tracked(z.value, (z.bound + inherited) * (1 + 2 * relative), model)


def _plain(x: Tracked | None, y: Tracked) -> Any:
    return y.sum(axis=0) if x is None else x @ y


def _norms(array: np.ndarray) -> Any:
    """Euclidean norms of the columns."""
    return np.sqrt(np.einsum("ij,ij->j", array, array))


_OF_STAGE = 7 * 16
"""Seven standard deviations of the error of a stage, 16 u as in the rules."""

_STRAY = 71
"""Added to the number of stages because stages with few numbers may have larger ones."""


def of_random_data(z: Any, elements: int, squares: float) -> Any:
    """A transform of exact random numbers without structure, with the smaller of both bounds.

    Args:
        z: A part of the transform, with the bound of the rules; a NumPy array is returned as it is.
        elements: Number of transformed elements that each element of the result needs.
        squares: Sum of the squares of these elements, or its largest if there are several sums.
    """
    if not isinstance(z, Tracked) or not z.model.random:
        return z
    # Two stages more for each dimension, as in the rules; no transform here has more than two.
    stages = math.ceil(math.log2(max(elements, 2))) + 4
    u = z.model.roundoff + z.model.operand_roundoff
    size = math.sqrt(squares)  # root mean square of the result
    bound = _OF_STAGE * u * size * math.sqrt(stages + _STRAY) + elements * z.model.tiny
    return Tracked(z.value, np.minimum(z.narrow, bound), z.model)
