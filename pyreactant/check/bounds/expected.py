"""The expected values of a block or a tile, at once or part by part."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...arrays.dtypes import finfo
from ...arrays.sharding import Index
from .model import Model
from .tracked import Tracked


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected values of a block or a tile.

    Attributes:
        value: Exact values in float64 or complex128; in the result's dtype if results must be
            equal bit for bit.
        bound: Bound on the rounding error; None if results must be equal.
        last_rounding: Whether `bound` includes the final rounding of the result; if not, one
            unit in the last place is allowed in addition.
        usual: Usual size of the rounding error; None if unknown.
        may_overflow: Where infinity is right because a partial sum may overflow although
            `value` is finite; None if nowhere.
        estimated: Why `bound` is estimated; "" if it is derived.
        absolute: The oracle's values for the absolute values of its inputs, if all values are
            zero: their size, before they cancel.
    """

    value: np.ndarray
    bound: np.ndarray | None
    last_rounding: bool = False
    usual: np.ndarray | None = None
    may_overflow: np.ndarray | None = None
    estimated: str = ""
    absolute: np.ndarray | None = None

    @property
    def exact(self) -> bool:
        """Whether results must be equal."""
        return self.bound is None

    def chunks(self) -> "Iterator[tuple[int, Expected]]":
        """Some rows after the other, with the number of the first, as they are compared."""
        yield 0, self

    def part(self, inside: Index) -> "Expected":
        """A part of the tile."""
        bound, usual, may_overflow, absolute = (
            None if array is None else array[inside]
            for array in (self.bound, self.usual, self.may_overflow, self.absolute)
        )
        return replace(
            self,
            value=self.value[inside],
            bound=bound,
            usual=usual,
            may_overflow=may_overflow,
            absolute=absolute,
        )

    def allowed(self, dtype: np.dtype[Any]) -> np.ndarray:
        """The tolerance of each element for results of this dtype."""
        assert self.bound is not None
        if self.last_rounding or dtype.kind in "biu":
            return self.bound
        with np.errstate(all="ignore"):
            # One unit in the last place, so that a neighbouring number passes too; two for
            # complex numbers, one for each part.
            last = ulp(np.abs(self.value) + self.bound, dtype)
            return self.bound + (2 * last if dtype.kind == "c" else last)


def ulp(sizes: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """One unit in the last place of `dtype` at these absolute values (float64)."""
    info = finfo(dtype)
    # Clearing the mantissa gives the power of two below a number.
    powers = (np.asarray(sizes).view(np.int64) & EXPONENT).view(np.float64)
    return np.maximum(powers, float(info.tiny)) * float(info.eps)


EXPONENT = np.int64(0x7FF0_0000_0000_0000)
"""The bits of the exponent of a float64."""

Fill = Callable[[slice, slice, np.ndarray, np.ndarray], None]
"""Fills arrays with the values and the bounds of some rows and columns."""


class Deferred(Tracked):
    """A matrix whose parts compute their values and bounds when these are first read.

    Args:
        fill: Computes a part.
        rows: The rows of this part.
        columns: Its columns.
        model: Rounding model of the runtime.
    """

    __slots__ = ("_both", "_fill", "_ranges")

    def __init__(self, fill: Fill, rows: range, columns: range, model: Model) -> None:
        self._fill, self._ranges = fill, (rows, columns)
        self._both: tuple[np.ndarray, np.ndarray] | None = None
        self.model = model
        self.norms = None

    shape = property(lambda self: tuple(map(len, self._ranges)))
    ndim = property(lambda self: 2)
    size = property(lambda self: math.prod(self.shape))
    value = held = property(lambda self: self._computed()[0])
    bound = property(lambda self: self._computed()[1])

    def _computed(self) -> tuple[np.ndarray, np.ndarray]:
        if self._both is None:
            both = np.empty(self.shape), np.empty(self.shape)
            self.fill_rows(slice(None), *both)
            self._both = both
        return self._both

    def fill_rows(self, some: slice, value: np.ndarray, bound: np.ndarray) -> None:
        """Fill arrays with the values and bounds of some rows."""
        rows, columns = self._ranges[0][some], self._ranges[1]
        self._fill(slice(rows.start, rows.stop), slice(columns.start, columns.stop), value, bound)

    def __getitem__(self, key: Any) -> Any:
        keys = key if isinstance(key, tuple) else (key,)
        if len(keys) > 2 or not all(isinstance(k, slice) and k.step in (None, 1) for k in keys):
            return Tracked(self.value, self.bound, self.model)[key]
        rows, columns = (
            one[k] for one, k in zip(self._ranges, (*keys, slice(None))[:2], strict=True)
        )
        return Deferred(self._fill, rows, columns, self.model)


CHUNK = 2**16
"""Elements whose values and bounds are in the processor's cache together."""


def chunks(rows: int, columns: int) -> list[slice]:
    """The rows of a matrix, a few at a time."""
    step = max(1, CHUNK // columns)
    return [slice(first, min(first + step, rows)) for first in range(0, rows, step)]


class DeferredExpected(Expected):
    """Expected values that are compared a few rows at a time, in the processor's cache.

    The values and bounds of a large tile are then never in memory all together.

    Args:
        found: The oracle's result.
    """

    __slots__ = ("_found",)
    _found: Deferred

    def __init__(self, found: Deferred) -> None:
        nothing = dict.fromkeys(("usual", "may_overflow", "absolute"))
        fields = {"last_rounding": False, "estimated": "", "_found": found, **nothing}
        for name, what in fields.items():
            object.__setattr__(self, name, what)

    value = property(lambda self: self._found.value)
    bound = property(lambda self: self._found.bound)
    exact = property(lambda self: False)

    def chunks(self) -> Iterator[tuple[int, Expected]]:
        """Some rows after the other, with the number of the first."""
        pieces = chunks(*self._found.shape)
        # New memory would cost more than what is computed.
        both = np.empty((2, pieces[0].stop, self._found.shape[1]))
        for some in pieces:
            value, bound = both[:, : some.stop - some.start]
            self._found.fill_rows(some, value, bound)
            yield some.start, Expected(value, bound)

    def part(self, inside: Index) -> "DeferredExpected":
        """A part of the tile."""
        return DeferredExpected(self._found[inside])
