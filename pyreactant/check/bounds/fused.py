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


def large(array: np.ndarray) -> bool:
    """Whether to use a loop on an array of this size, and numba is there."""
    return array.size >= LARGE and available()


def worthwhile(array: np.ndarray) -> bool:
    """The same for a loop on float64."""
    return array.dtype == np.float64 and large(array)


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


_PART = 256
"""Elements that a loop takes at a time; that many independent sums become vector instructions."""


@Loop
def compared(
    got: Any, value: Any, bound: Any, shape: Any, eps: float, tiny: float, exponent: Any
) -> tuple[Any, ...]:
    """Errors of rows within their tolerances; ``ratio`` beyond 1 or NaN where one is not.

    Args:
        got: Results, all rows in one line (`compare.layout`); two real numbers for a complex one.
        value: The same of the values.
        bound: The same of the bounds.
        shape: Rows, columns, numbers of an element, and how many lie from row to row in each.
        eps: Of the results' type.
        tiny: The same.
        exponent: Bits of the exponent of a float64.

    Returns:
        (largest ratio, its row, its column, largest error, largest error in ulps, sum of squared
        errors, sum of squared values, elements without a bound).
    """
    rows, n, numbers, got_step, value_step, bound_step = shape
    most, at, column, ulps, last = -1.0, 0, 0, 0.0, numbers * eps
    largest, unbounded = np.int64(0), 0
    errors, sizes = np.empty(_PART), np.empty(_PART)
    error_squares, value_squares = np.zeros(_PART), np.zeros(_PART)
    for i in range(rows):
        for start in range(0, n, _PART):
            width = min(_PART, n - start)
            first, there = i * got_step + numbers * start, i * value_step + numbers * start
            held = got[first : first + numbers * width]
            values = value[there : there + numbers * width]
            first = i * bound_step + start
            bounds = bound[first : first + width]
            if numbers == 1:
                for j in range(width):
                    errors[j] = abs(np.float64(held[j]) - values[j])
                    sizes[j] = abs(values[j])
            else:
                for j in range(width):
                    x, y = values[2 * j], values[2 * j + 1]
                    c, d = np.float64(held[2 * j]) - x, np.float64(held[2 * j + 1]) - y
                    errors[j] = math.sqrt(c * c + d * d)
                    sizes[j] = math.sqrt(x * x + y * y)
            beyond = 0
            for j in range(width):
                size, b, error = sizes[j], bounds[j], errors[j]
                power = np.int64(np.float64(size + b).view(np.int64) & exponent).view(np.float64)
                beyond += not error <= most * (b + max(power, tiny) * last)
                power = np.int64(np.float64(size).view(np.int64) & exponent).view(np.float64)
                beyond += not error <= ulps * max(power, tiny)
                unbounded += b == np.inf
            for j in range(width):
                largest = max(largest, np.float64(errors[j]).view(np.int64))
                error_squares[j] += errors[j] * errors[j]
            for j in range(width):
                value_squares[j] += sizes[j] * sizes[j]
            if not beyond:
                continue
            # Quotients are slow, and only a few parts have larger ones than those before.
            for j in range(width):
                size, b, error = sizes[j], bounds[j], errors[j]
                power = np.int64(np.float64(size + b).view(np.int64) & exponent).view(np.float64)
                ratio = error / (b + max(power, tiny) * last)
                if not ratio <= most:
                    if not ratio <= 1.0:
                        return math.nan, i, start + j, 0.0, 0.0, 0.0, 0.0, 0
                    most, at, column = ratio, i, start + j
                power = np.int64(np.float64(size).view(np.int64) & exponent).view(np.float64)
                ulps = max(ulps, error / max(power, tiny))
    error_most = np.int64(largest).view(np.float64)
    if not error_most < np.inf:  # within an infinite tolerance, but the value may be certain
        return math.nan, 0, 0, 0.0, 0.0, 0.0, 0.0, 0
    squares = error_squares.sum(), value_squares.sum()
    return most, at, column, error_most, ulps / eps, squares[0], squares[1], unbounded


@Loop
def row_sums(x: Any) -> Any:
    """Sums of the elements, their absolute values and their squares, for each row."""
    found, lanes = np.zeros((3, x.shape[0])), np.zeros((3, _PART))
    for i in range(x.shape[0]):
        lanes[:] = 0.0
        sums, sizes, squares = lanes[0], lanes[1], lanes[2]
        for start in range(0, x.shape[1], _PART):
            part = x[i, start : start + _PART]
            for j in range(len(part)):
                one = np.float64(part[j])
                sums[j] += one
                sizes[j] += abs(one)
                squares[j] += one * one
        found[0, i], found[1, i], found[2, i] = sums.sum(), sizes.sum(), squares.sum()
    return found


@Loop
def centred_squares(x: Any, mean: Any, mean_bound: Any, u: float, tiny: float) -> Any:
    """Of (x - mean)^2: sums of values, of bounds, of both, and of the squares of both."""
    found, lanes = np.zeros((4, x.shape[0])), np.zeros((3, _PART))
    for i in range(x.shape[0]):
        lanes[:] = 0.0
        sums, errors, squares = lanes[0], lanes[1], lanes[2]
        middle, of_mean = mean[i], mean_bound[i] * (1 + u) + tiny
        for start in range(0, x.shape[1], _PART):
            part = x[i, start : start + _PART]
            for j in range(len(part)):
                c = part[j] - middle
                b = abs(c) * u + of_mean
                z = c * c
                e = abs(c) * (2 * b) + b * b
                b = z * u + (e * (1 + u) + tiny)
                sums[j] += z
                errors[j] += b
                squares[j] += (z + b) * (z + b)
        found[0, i], found[1, i], found[3, i] = sums.sum(), errors.sum(), squares.sum()
        found[2, i] = found[0, i] + found[1, i]
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
    first: int,
    u: float,
    of_quotient: float,
    tiny: float,
    value: Any,
    bound: Any,
) -> None:
    """Fill `value` with (x - mean) / deviation * gain + shift and `bound` with the bounds.

    Only columns from `first` are wanted, those of gain and shift, which are exact.
    """
    for i in range(len(x)):
        values, bounds = value[i], bound[i]
        row = x[i, first : first + len(values)]
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
def differences(x: Any, most: Any, first: int, out: Any) -> None:
    """Fill `out` with columns of the rows, from `first`, minus a number for each row."""
    for i in range(len(out)):
        found, largest = out[i], most[i]
        row = x[i, first : first + len(found)]
        for j in range(len(found)):
            found[j] = row[j] - largest


@Loop
def exponentials(
    x: Any, b: Any, z: Any, most: Any, most_bound: Any, of_exp: float, u: float, tiny: float
) -> Any:
    """Sums of the rows of z = exp(x - most), of their bounds, and of both.

    `b` has the bounds of x, or one column if x is exact; `most` is a number for each row.

    Returns:
        For each row sums of the values, of the bounds, of both, of the squares of both, and the
        largest bound of an exponent.
    """
    found, lanes, exact = np.zeros((5, len(z))), np.zeros((4, _PART)), np.zeros(_PART)
    for i in range(len(z)):
        lanes[:] = 0.0
        sums, errors, squares, widest = lanes[0], lanes[1], lanes[2], lanes[3]
        largest, of_largest = most[i], most_bound[i]
        for start in range(0, z.shape[1], _PART):
            row, values = x[i, start : start + _PART], z[i, start : start + _PART]
            bounds = b[i, start : start + _PART] if b.shape[1] > 1 else exact
            for j in range(len(values)):
                one = values[j]
                of = abs(row[j] - largest) * u + ((bounds[j] + of_largest) * (1 + u) + tiny)
                widest[j] = max(widest[j], of)
                e = one * (of * (1 + of))
                of = one * of_exp + (e * (1 + of_exp) + tiny)
                sums[j] += one
                errors[j] += of
                squares[j] += (one + of) * (one + of)
        found[0, i], found[1, i], found[3, i] = sums.sum(), errors.sum(), squares.sum()
        found[2, i], found[4, i] = found[0, i] + found[1, i], widest.max()
    return found


@Loop
def quotients(
    x: Any,
    b: Any,
    most: Any,
    most_bound: Any,
    divisor: Any,
    divisor_bound: Any,
    first: int,
    of_exp: float,
    of_quotient: float,
    u: float,
    tiny: float,
    value: Any,
    bound: Any,
) -> None:
    """Exponentials, in `value`, over a number for each row; `bound` is filled with the bounds.

    The other arguments are those of `exponentials` and `normalized`.
    """
    exact = np.zeros(value.shape[1])
    for i in range(len(value)):
        values, found = value[i], bound[i]
        last = first + len(values)
        row = x[i, first:last]
        bounds = b[i, first:last] if b.shape[1] > 1 else exact
        largest, of_largest, s = most[i], most_bound[i], divisor[i]
        scale = 1 / (abs(s) - divisor_bound[i])
        part = divisor_bound[i] * scale
        for j in range(len(values)):
            one = values[j]
            of = abs(row[j] - largest) * u + ((bounds[j] + of_largest) * (1 + u) + tiny)
            e = one * (of * (1 + of))
            of = one * of_exp + (e * (1 + of_exp) + tiny)
            q = one / s
            e = abs(q) * part + of * scale
            values[j] = q
            found[j] = abs(q) * of_quotient + (e * (1 + of_quotient) + tiny)


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
