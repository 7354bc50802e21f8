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
from typing import Any, NamedTuple

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


class Compared(NamedTuple):
    """What `compared` finds; `ratio` is NaN if a number is beyond its tolerance.

    Attributes:
        ratio: Largest error over its tolerance.
        place: Where it is.
        error: Largest error.
        ulps: The same in units in the last place.
        error_squares: Sum of the squared errors.
        value_squares: Sum of the squared values.
        unbounded: Elements without a bound.
    """

    ratio: float
    place: int
    error: float
    ulps: float
    error_squares: float
    value_squares: float
    unbounded: int


_BEYOND = Compared(math.nan, 0, 0.0, 0.0, 0.0, 0.0, 0)


@Loop
def compared(
    got: Any, value: Any, bound: Any, numbers: int, eps: float, tiny: float, exponent: Any
) -> Compared:
    """Errors within their tolerances.

    Args:
        got: Results in one line; two real numbers for a complex one.
        value: The same of the values.
        bound: The bounds.
        numbers: Numbers of an element, 1 or 2.
        eps: Of the results' type.
        tiny: The same.
        exponent: Bits of the exponent of a float64.
    """
    most, place, ulps, last = -1.0, 0, 0.0, numbers * eps
    largest, unbounded = np.int64(0), 0
    errors, sizes = np.empty(_PART), np.empty(_PART)
    error_squares, value_squares = np.zeros(_PART), np.zeros(_PART)
    for start in range(0, len(bound), _PART):
        bounds = bound[start : start + _PART]
        width = len(bounds)
        held = got[numbers * start : numbers * (start + width)]
        values = value[numbers * start : numbers * (start + width)]
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
                    return _BEYOND
                most, place = ratio, start + j
            power = np.int64(np.float64(size).view(np.int64) & exponent).view(np.float64)
            ulps = max(ulps, error / max(power, tiny))
    error_most = np.int64(largest).view(np.float64)
    if not error_most < np.inf:  # within an infinite tolerance, but the value may be certain
        return _BEYOND
    squares = error_squares.sum(), value_squares.sum()
    return Compared(most, place, error_most, ulps / eps, squares[0], squares[1], unbounded)


@Loop
def row_sums(x: Any) -> Any:
    """Sums of the elements, their absolute values and their squares, for each row."""
    totals, lanes = np.zeros((3, x.shape[0])), np.zeros((3, _PART))
    for i in range(x.shape[0]):
        lanes[:] = 0.0
        sums, sizes, squares = lanes[0], lanes[1], lanes[2]
        for start in range(0, x.shape[1], _PART):
            part = x[i, start : start + _PART]
            for j in range(len(part)):
                number = np.float64(part[j])
                sums[j] += number
                sizes[j] += abs(number)
                squares[j] += number * number
        totals[0, i], totals[1, i], totals[2, i] = sums.sum(), sizes.sum(), squares.sum()
    return totals


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
