"""Runs: an oracle's array as several runs of a program would have it, each with other roundings.

Stochastic arithmetic (J. Vignes, Mathematics and Computers in Simulation 35, 1993; D. S. Parker,
Monte Carlo Arithmetic, UCLA, 1997): an oracle runs many times in float64, and every operation gets
a random error of the size of its rounding. How far the runs spread shows how far a right program
usually is from the exact result. docs/checks.md has the model of the errors, and what it assumes.

All runs are computed at once. Run 0 has no errors. In `ROWS` runs each element errs by itself; in
as many others a result is rounded to a grid that one random phase shifts, so that equal and near
values err alike, as those of a program do.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from ...arrays.dtypes import EXTENDED
from .model import Model, ulp
from .tracked import OracleArray, UnknownOperationError, _numpy

ROWS = 8
"""Runs of each of the two kinds."""

COUNT = 2 * ROWS
"""Runs with errors."""

FAR = 8.0
"""Standard deviations within which a comparison is undecided."""

COMPLEX = "no typical rounding is known for complex numbers"

Rule = Callable[..., Any]

RULES: dict[Any, Rule] = {}
"""What ufuncs and functions of NumPy do with Runs; registered by `rules.runs`."""


_FEW = 2.0
"""Mean number of repetitions of a number in a sum, from which sums err in common."""


class Rounding:
    """The random errors of all runs of an oracle.

    Args:
        model: Rounding model of the runtime, for the type of the program.

    Attributes:
        undecided: How many comparisons rounding may turn.
    """

    def __init__(self, model: Model) -> None:
        self.model, self.undecided = model, 0
        self._random = np.random.Generator(np.random.Philox(key=0))

    def input(self, array: np.ndarray) -> Any:
        """An oracle's argument; integers and booleans are plain arrays, as in every oracle."""
        if array.dtype.kind in "biu":
            return array.copy()
        if array.dtype.kind == "c":
            raise UnknownOperationError(COMPLEX)
        return Runs(array.astype(np.float64)[None], self.model.cast(array.dtype), self)

    def range(self, values: np.ndarray) -> "Runs":
        """A range that a program computes in its own type; whole numbers are exact."""
        if values.dtype.kind in "iu" or (values == np.rint(values)).all():
            return Runs(values[None], None if values.dtype.kind in "iu" else self.model, self)
        size = np.full(values.shape, 4 * self.model.roundoff * np.max(np.abs(values)))
        return Runs(self.spread(values[None], size / math.sqrt(3)), self.model, self)

    def of(self, value: np.ndarray, model: Model | None) -> "Runs":
        """The runs of an operation's result, each with one rounding.

        Exact results that the type represents stay exact. Each run is computed for itself, in few
        passes over its elements.

        Args:
            value: Results of the runs; one of exact numbers.
            model: Rounding model of the result; None for integers and booleans.

        Raises:
            UnknownOperationError: A run overflows.
        """
        if model is None or value.dtype.kind in "biu":
            return Runs(value, model, self)
        sizes = np.where(np.isfinite(value[0]), np.abs(value[0]), 0.0)
        if sizes.max(initial=0.0) > model.largest:
            raise UnknownOperationError(f"a run exceeds the largest {model.dtype.name}")
        if len(value) == 1:
            unit = ulp(sizes, model.dtype)
            if np.all((np.rint(value / unit) * unit == value) | ~np.isfinite(value)):
                return Runs(value, model, self)
        result = np.empty((COUNT + 1, *value.shape[1:]))
        result[:] = value
        lines = result.reshape(COUNT + 1, -1)
        for run in lines[1 : ROWS + 1]:
            unit = self._unit(run, model)
            unit *= self._random.random(run.shape, np.float32) - np.float32(0.5)
            run += unit
        for run in lines[ROWS + 1 :]:
            unit, phase = self._unit(run, model), self._random.random()
            rounded = run / unit
            rounded -= phase
            np.rint(rounded, out=rounded)
            rounded += phase
            rounded *= unit
            np.copyto(run, rounded, where=unit > 0)
        return Runs(result, model, self)

    def _unit(self, run: np.ndarray, model: Model) -> np.ndarray:
        """One unit in the last place; 0 for what is not rounded: zeros, NaN and infinities."""
        unit = ulp(np.abs(run), model.dtype)
        unit[(run == 0) | ~np.isfinite(unit)] = 0.0
        return unit

    def uniform(self, shape: Sequence[int]) -> np.ndarray:
        """Independent random numbers from -1 to 1."""
        numbers = self._random.random(tuple(shape), np.float32)
        return 2.0 * numbers - 1.0

    def spread(self, value: np.ndarray, deviation: np.ndarray, common: Any = 0.0) -> np.ndarray:
        """The runs of a result whose error has this standard deviation.

        Where runs err alike, equal results have equal errors, and all results an error in common
        that has the standard deviation `common`.
        """
        width = math.sqrt(3) * deviation
        if len(value) == 1:
            value = np.repeat(value, COUNT + 1, axis=0)
        result = value.copy()
        result[1 : ROWS + 1] += width * self.uniform((ROWS, *value.shape[1:]))
        for run in range(ROWS + 1, COUNT + 1):
            result[run] += width * self._alike(value[0])
            if np.any(common):
                result[run] += common * self._random.standard_normal()
        return result

    def _alike(self, value: np.ndarray) -> np.ndarray:
        """Random numbers from -1 to 1 that are functions of the leading 44 bits of a value."""
        bits = np.ascontiguousarray(value).view(np.uint64).reshape(value.shape)
        z = (bits + np.uint64(128)) >> np.uint64(8)
        with np.errstate(over="ignore"):
            z = (z + np.uint64(self._random.integers(1 << 62))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return (z ^ (z >> np.uint64(31))).astype(np.float64) * 2.0**-63 - 1

    def function(self, value: np.ndarray, name: str, model: Model) -> "Runs":
        """The runs of an elementary function: a fifth of its accuracy in common, a tenth each.

        Args:
            value: Results of the runs.
            name: Name of the function in the model of accuracies.
            model: Rounding model of the result.
        """
        relative, absolute = model.function(name)
        if len(value) == 1:
            value = np.repeat(value, COUNT + 1, axis=0)
        both = self.uniform((COUNT + 1,) + (1,) * (value.ndim - 1)) / 5
        both = both + self.uniform(value.shape) / 10
        both[0] = 0
        return self.of(value + both * (relative * np.abs(value) + absolute), model)

    def sums(
        self,
        value: np.ndarray,
        count: int,
        squares: Any,
        model: Model,
        *,
        repeated: Any = 1.0,
        vector: bool = False,
        divisor: int = 1,
    ) -> "Runs":
        """The runs of sums, whose partial sums are rounded.

        A partial sum of m of n numbers with the sum S and the norm d has about the size of
        ``m/n S`` and a random walk that returns. Its roundings add up to a variance of
        ``u^2 / 3 (n/3 S^2 + n/2 d^2)`` if they are independent. Numbers that repeat round alike, in
        all sums that have them: a part of the error is the same for these, as a common factor.

        Args:
            value: Sums of the runs.
            count: Numbers in a sum.
            squares: Sums of the squares of these.
            model: Rounding model of the result.
            repeated: How often each number of a sum repeats (`repeats`).
            vector: Whether GPUs may round each product before they add.
            divisor: What the sums are divided by before the result is rounded.
        """
        n, total = max(count, 1), value[0] ** 2
        once = model.sum_roundoff**2 * (n / 3 * total + n / 2 * squares)
        variance = once * repeated
        common = np.sqrt(np.where(repeated > _FEW, variance - once, 0.0) / 3) * np.sign(value[0])
        variance = variance + 2 * model.operand_roundoff**2 * squares
        if model.sum_roundoff != model.roundoff:
            p = model.partials
            if p > 1:  # parts of devices and their partial sums are rounded to the short type
                parts = total / p + squares + (p - 2) * (total / 3 + squares / 6)
                variance = variance + model.roundoff**2 * parts
            if vector and model.rounds_products:
                variance = variance + model.roundoff**2 * squares
        summed = self.spread(value, np.sqrt(variance / 3), common) / divisor
        return self.of(summed, model)


class Runs(OracleArray):
    """An array in all runs.

    Args:
        runs: The runs along the first dimension; only one of numbers that are exact so far.
        model: Rounding model of the type; None for integers and booleans.
        rounding: The errors.
    """

    __slots__ = ("model", "rounding", "runs")

    unknown = "no typical rounding is known for"

    def __init__(self, runs: np.ndarray, model: Model | None, rounding: Rounding) -> None:
        self.runs, self.model, self.rounding = runs, model, rounding

    shape = property(lambda self: self.runs.shape[1:])
    exact = property(lambda self: len(self.runs) == 1)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type in the runtime; float64 for those that NumPy lacks."""
        if self.model is None or self.model.dtype.name in EXTENDED:
            return self.runs.dtype
        return self.model.dtype

    def at(self, run: int) -> np.ndarray:
        """One run."""
        array: np.ndarray = self.runs[0 if self.exact else run]
        return array

    def __len__(self) -> int:
        return len(self.runs[0])

    def __getitem__(self, key: Any) -> "Runs":
        parts = key if isinstance(key, tuple) else (key,)
        if not any(isinstance(part, (Runs, np.ndarray, list)) for part in parts):
            return Runs(self.runs[(slice(None), *parts)], self.model, self.rounding)
        count = max(len(part.runs) for part in (self, *parts) if isinstance(part, Runs))
        picked = [self.at(run)[_of_run(key, run)] for run in range(count)]
        return Runs(np.stack(picked), self.model, self.rounding)

    def __setitem__(self, key: Any, new: Any) -> None:
        if isinstance(key, Runs) and not key.exact:
            key, new = ..., _numpy.where(key, new, self)
        given = as_runs(new, self.model, self.rounding)
        if self.exact and not given.exact:
            raise UnknownOperationError(
                "an oracle stores rounded numbers in an argument; change a copy, such as x.copy()"
            )
        for run, target in enumerate(self.runs):
            target[_of_run(key, run)] = given.at(run)

    def _plain(self, *_: Any, **__: Any) -> NoReturn:
        raise UnknownOperationError(
            "an oracle's array became a plain NumPy array, number or branch, which has no runs"
        )

    __array__ = __bool__ = __float__ = __int__ = __index__ = __complex__ = _plain

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        out = options.pop("out", (None,))[0]
        called = {"reduce": _REDUCED.get(ufunc), "accumulate": _ACCUMULATED.get(ufunc)}
        if called.get(method) is not None:
            result = self._call(called[method], inputs, {"axis": 0} | options)
        elif method == "__call__" and not options:
            result = self._call(ufunc, inputs, {})
        else:
            raise UnknownOperationError(_unknown(ufunc))
        if out is None:
            return result
        if not isinstance(out, Runs):
            self._plain()
        out[...] = result
        return out

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        return self._call(function, args, options)

    def _call(self, function: Any, args: Any, options: Any) -> Any:
        rule = RULES.get(function)
        if rule is None:
            raise UnknownOperationError(_unknown(function))
        try:
            with np.errstate(all="ignore"):
                return rule(*args, **options)
        except TypeError as error:
            raise UnknownOperationError(_unknown(function)) from error

    def copy(self, *_: Any) -> "Runs":
        """As `numpy.ndarray.copy`; all runs, so that rounded numbers may be stored in it."""
        return Runs(_padded(self, COUNT + 1).copy(), self.model, self.rounding)


_REDUCED: dict[np.ufunc, Any] = {np.add: np.sum, np.maximum: np.max, np.minimum: np.min}
_ACCUMULATED: dict[np.ufunc, Any] = {np.add: np.cumsum}


def as_runs(x: Any, model: Model | None, rounding: Rounding) -> Runs:
    """An operand as Runs; a constant is rounded once to the type of the other operands."""
    if isinstance(x, Runs):
        return x
    value = np.asarray(x)
    if value.dtype.kind not in "biuf" and value.dtype.name not in EXTENDED:
        raise UnknownOperationError(COMPLEX)
    if value.dtype.kind in "biu":
        return Runs(value[None], None, rounding)
    model, wide = model or rounding.model, value.astype(np.float64)
    # A constant beyond the largest number, such as -1e30 in float16, is infinite there.
    wide = np.where(np.abs(wide) > model.largest, np.sign(wide) * np.inf, wide)
    return rounding.of(wide[None], model)


def all_runs(*operands: Any) -> tuple[Runs, ...]:
    """The operands as Runs."""
    first = next(x for x in operands if isinstance(x, Runs))
    model = model_of(*operands)
    return tuple(as_runs(x, model, first.rounding) for x in operands)


def model_of(*operands: Any) -> Model | None:
    """The model of a result: that of the most precise type; None for integers alone."""
    models = [x.model for x in operands if isinstance(x, Runs) and x.model is not None]
    return min(models, key=lambda model: model.roundoff) if models else None


def _padded(x: Runs, count: int) -> np.ndarray:
    return np.repeat(x.runs, count, axis=0) if len(x.runs) < count else x.runs


def _of_run(key: Any, run: int) -> Any:
    if isinstance(key, Runs):
        return key.at(run)
    return tuple(_of_run(part, run) for part in key) if isinstance(key, tuple) else key


def _unknown(function: Any) -> str:
    return f"{Runs.unknown} numpy.{getattr(function, '__name__', function)}"
