"""Loops that compute the formulas of several rules in one pass, compiled by numba if it is there.

`pip install pyreactant[fast]` brings numba. Without it NumPy computes the same formulas, one pass
over the data for each operation. Loops run on large arrays only, so that nothing is compiled for
small ones, and they use no fast mathematics: results differ by the order of sums alone.
"""

import functools
import importlib.util
import math
from collections.abc import Callable
from threading import Lock
from typing import Any

import numpy as np

LARGE = 2**14
"""Elements from which a loop is used; compiling one for the first time takes a second."""


@functools.cache
def available() -> bool:
    """Whether numba is installed."""
    return importlib.util.find_spec("numba") is not None


def worthwhile(array: np.ndarray) -> bool:
    """Whether to use a loop on an array: it is large and of float64, and numba is there."""
    return array.size >= LARGE and array.dtype == np.float64 and available()


_compiling = Lock()


class Loop:
    """A function that numba compiles at its first call and keeps in the user's cache folder."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self._compiled: Any = None
        self.__doc__ = function.__doc__

    def __call__(self, *args: Any) -> Any:
        if self._compiled is None:
            with _compiling:  # several threads check tiles, and numba has one folder for all
                self._compiled = self._compiled or _compile(self.function)
        return self._compiled(*args)


def _compile(function: Callable[..., Any]) -> Any:
    import numba
    from platformdirs import user_cache_path

    config: Any = numba.config
    before = config.CACHE_DIR
    config.CACHE_DIR = str(user_cache_path("pyreactant") / "numba")
    try:
        # Tiles are checked by several threads.
        return numba.njit(function, nogil=True, cache=True, error_model="numpy")
    finally:
        config.CACHE_DIR = before


@Loop
def compared(
    got: Any, value: Any, bound: Any, eps: float, tiny: float, exponent: Any
) -> tuple[Any, ...]:
    """Errors of rows within their tolerances; ``ratio`` beyond 1 or NaN where one is not.

    Returns:
        (largest ratio, its row, its column, largest error, largest error in ulps, sum of squared
        errors, sum of squared values, elements without a bound).
    """
    most, at, column, unbounded = -1.0, 0, 0, 0
    error_most, ulps, error_squares, value_squares = 0.0, 0.0, 0.0, 0.0
    n = got.shape[1]
    ratios, sizes, errors = np.empty(n), np.empty(n), np.empty(n)
    for i in range(got.shape[0]):
        # Without branches and sums this becomes vector instructions.
        held, values, bounds = got[i], value[i], bound[i]
        for j in range(n):
            v, b = values[j], bounds[j]
            size = abs(v)
            error = abs(np.float64(held[j]) - v)
            power = np.int64(np.float64(size + b).view(np.int64) & exponent).view(np.float64)
            ratios[j] = error / (b + max(power, tiny) * eps)
            power = np.int64(np.float64(size).view(np.int64) & exponent).view(np.float64)
            sizes[j] = error / max(power, tiny)
            errors[j] = error
        for j in range(n):
            ratio, error = ratios[j], errors[j]
            if not ratio <= most:
                if not ratio <= 1.0:
                    return math.nan, i, j, 0.0, 0.0, 0.0, 0.0, 0
                most, at, column = ratio, i, j
            error_most = max(error_most, error)
            ulps = max(ulps, sizes[j])
            error_squares += error * error
            value_squares += values[j] * values[j]
            unbounded += bounds[j] == np.inf
    return most, at, column, error_most, ulps / eps, error_squares, value_squares, unbounded


@Loop
def row_sums(x: Any) -> Any:
    """Sums of the elements, their absolute values and their squares, for each row."""
    found = np.zeros((3, x.shape[0]))
    for i in range(x.shape[0]):
        # Four sums at a time do not wait for each other.
        sums, sizes, squares = np.zeros(4), np.zeros(4), np.zeros(4)
        whole = x.shape[1] // 4 * 4
        for j in range(0, whole, 4):
            for k in range(4):
                one = np.float64(x[i, j + k])
                sums[k] += one
                sizes[k] += abs(one)
                squares[k] += one * one
        for j in range(whole, x.shape[1]):
            one = np.float64(x[i, j])
            sums[0] += one
            sizes[0] += abs(one)
            squares[0] += one * one
        found[0, i], found[1, i], found[2, i] = sums.sum(), sizes.sum(), squares.sum()
    return found


@Loop
def centred_squares(x: Any, mean: Any, mean_bound: Any, u: float, tiny: float) -> Any:
    """Of (x - mean)^2: sums of values, of bounds, of both, and of the squares of both."""
    found, n = np.zeros((4, x.shape[0])), x.shape[1]
    for i in range(x.shape[0]):
        sums = np.zeros((4, 4))  # four sums at a time do not wait for each other
        for j in range(0, n, 4):
            for k in range(min(4, n - j)):
                c = x[i, j + k] - mean[i]
                b = abs(c) * u + (mean_bound[i] * (1 + u) + tiny)
                z = c * c
                e = abs(c) * (2 * b) + b * b
                b = z * u + (e * (1 + u) + tiny)
                sums[0, k] += z
                sums[1, k] += b
                sums[2, k] += z + b
                sums[3, k] += (z + b) * (z + b)
        for k in range(4):
            found[k, i] = sums[k].sum()
    return found


@Loop
def normalized(
    x: Any,
    mean: Any,
    mean_bound: Any,
    deviation: Any,
    deviation_bound: Any,
    gain: Any,
    shift: Any,
    u: float,
    of_quotient: float,
    tiny: float,
) -> Any:
    """(x - mean) / deviation * gain + shift, with bounds; gain and shift are exact."""
    value, bound = np.empty(x.shape), np.empty(x.shape)
    for i in range(x.shape[0]):
        row, values, bounds = x[i], value[i], bound[i]
        middle, s, of_mean = mean[i], deviation[i], mean_bound[i] * (1 + u) + tiny
        scale = 1 / (abs(s) - deviation_bound[i])
        part = deviation_bound[i] * scale
        for j in range(len(row)):
            c = row[j] - middle
            b = abs(c) * u + of_mean
            z = c / s
            e = abs(z) * part + b * scale
            b = abs(z) * of_quotient + (e * (1 + of_quotient) + tiny)
            g = gain[j]
            z = z * g
            b = abs(z) * u + (abs(g) * b * (1 + u) + tiny)
            z = z + shift[j]
            values[j] = z
            bounds[j] = abs(z) * u + (b * (1 + u) + tiny)
    return value, bound


@Loop
def scaled(z: Any, b: Any, factor: float, factor_bound: float, u: float, tiny: float) -> Any:
    """The rows times a number, with bounds, in place.

    Returns:
        For each row the largest value, upper end, lower end and bound.
    """
    found = np.full((4, z.shape[0]), -np.inf)
    for i in range(z.shape[0]):
        for j in range(z.shape[1]):
            e = abs(z[i, j]) * factor_bound + b[i, j] * factor_bound + abs(factor) * b[i, j]
            one = z[i, j] * factor
            of = abs(one) * u + (e * (1 + u) + tiny)
            z[i, j], b[i, j] = one, of
            found[0, i] = max(found[0, i], one)
            found[1, i] = max(found[1, i], one + of)
            found[2, i] = max(found[2, i], one - of)
            found[3, i] = max(found[3, i], of)
    return found


@Loop
def differences(x: Any, b: Any, most: Any, most_bound: Any, u: float, tiny: float) -> Any:
    """The rows minus a number each, with bounds. `b` has one column if the rows are exact."""
    value, bound = np.empty(x.shape), np.empty(x.shape)
    exact = np.zeros(x.shape[1])
    for i in range(x.shape[0]):
        row, errors, values, bounds = x[i], b[i] if b.shape[1] > 1 else exact, value[i], bound[i]
        largest, of_largest = most[i], most_bound[i]
        for j in range(len(row)):
            d = row[j] - largest
            values[j] = d
            bounds[j] = abs(d) * u + ((errors[j] + of_largest) * (1 + u) + tiny)
    return value, bound


@Loop
def exponentials(z: Any, b: Any, of_exp: float, tiny: float) -> Any:
    """Bounds of exponentials z, in place of those of their exponents, and sums of each row.

    Returns:
        For each row sums of the values, of the bounds, of both, of the squares of both, and the
        largest bound of an exponent.
    """
    found, n = np.zeros((5, z.shape[0])), z.shape[1]
    whole = n // 4 * 4
    for i in range(z.shape[0]):
        values, bounds = z[i], b[i]
        sums, widest = np.zeros((3, 4)), np.zeros(4)
        for j in range(0, whole, 4):
            for k in range(4):
                one, of = values[j + k], bounds[j + k]
                widest[k] = max(widest[k], of)
                e = one * (of * (1 + of))
                of = one * of_exp + (e * (1 + of_exp) + tiny)
                bounds[j + k] = of
                sums[0, k] += one
                sums[1, k] += of
                sums[2, k] += (one + of) * (one + of)
        for j in range(whole, n):
            one, of = values[j], bounds[j]
            widest[0] = max(widest[0], of)
            e = one * (of * (1 + of))
            of = one * of_exp + (e * (1 + of_exp) + tiny)
            bounds[j] = of
            sums[0, 0] += one
            sums[1, 0] += of
            sums[2, 0] += (one + of) * (one + of)
        found[0, i], found[1, i] = sums[0].sum(), sums[1].sum()
        found[2, i], found[3, i] = found[0, i] + found[1, i], sums[2].sum()
        found[4, i] = widest.max()
    return found


@Loop
def quotients(
    z: Any, b: Any, divisor: Any, divisor_bound: Any, of_quotient: float, tiny: float
) -> None:
    """The rows over a number each, with bounds, in place."""
    for i in range(z.shape[0]):
        s = divisor[i]
        scale = 1 / (abs(s) - divisor_bound[i])
        part = divisor_bound[i] * scale
        for j in range(z.shape[1]):
            q = z[i, j] / s
            e = abs(q) * part + b[i, j] * scale
            z[i, j] = q
            b[i, j] = abs(q) * of_quotient + (e * (1 + of_quotient) + tiny)


@Loop
def stencil(x: Any, bx: Any, rate: float, u: float, tiny: float) -> Any:
    """One step x + rate (neighbours - 4 x), with bounds; beyond the edges are zeros.

    Args:
        x: Values with a border of one element.
        bx: Their bounds.
        rate: An exact number.
        u: Roundoff.
        tiny: Smallest normal number.
    """
    value, bound = np.zeros(x.shape), np.zeros(x.shape)
    r = 1 + u
    for i in range(1, x.shape[0] - 1):
        for j in range(1, x.shape[1] - 1):
            z = x[i - 1, j] + x[i + 1, j]
            b = abs(z) * u + ((bx[i - 1, j] + bx[i + 1, j]) * r + tiny)
            z = z + x[i, j - 1]
            b = abs(z) * u + ((b + bx[i, j - 1]) * r + tiny)
            z = z + x[i, j + 1]
            b = abs(z) * u + ((b + bx[i, j + 1]) * r + tiny)
            four = 4 * x[i, j]
            of = abs(four) * u + (4 * bx[i, j] * r + tiny)
            z = z - four
            b = abs(z) * u + ((b + of) * r + tiny)
            z = rate * z
            b = abs(z) * u + (abs(rate) * b * r + tiny)
            z = x[i, j] + z
            value[i, j] = z
            bound[i, j] = abs(z) * u + ((bx[i, j] + b) * r + tiny)
    return value, bound


@Loop
def product_bounds(
    z: Any, rows: Any, row_errors: Any, columns: Any, column_errors: Any, factors: Any
) -> Any:
    """Bounds of products' elements from the norms of rows and columns and of their errors.

    Args:
        z: The products of a batch.
        rows: Norms of the rows of the left matrices.
        row_errors: Norms of their bounds.
        columns: Norms of the columns of the right matrices.
        column_errors: Norms of their bounds.
        factors: Of `Model.product_factors`, the error by underflow, and the largest number.

    Returns:
        The bounds, and whether nothing is NaN or may overflow.
    """
    worst, of_result, of_norm, of_operands, underflow, largest = factors
    bound, near = np.empty(z.shape), True
    for k in range(z.shape[0]):
        for i in range(z.shape[1]):
            for j in range(z.shape[2]):
                reach = columns[k, j] + column_errors[k, j]
                error = rows[k, i] * column_errors[k, j] + row_errors[k, i] * reach
                size = (rows[k, i] + row_errors[k, i]) * reach
                sums = min(worst * size, of_result * (abs(z[k, i, j]) + error) + of_norm * size)
                b = error + (sums + of_operands * (size + sums)) + underflow
                near &= abs(z[k, i, j]) + b <= largest
                bound[k, i, j] = b
    return bound, near
