"""Sorting, places of extremes, and quantiles."""

import functools
from typing import Any

import numpy as np

from ..rounding import rounded
from ..tracked import FUNCTIONS, Tracked, UnknownOperationError, _numpy
from ._register import function
from .order import extreme_of


@function(np.sort)
def _sort(a: Tracked, axis: int | None = -1, kind: str | None = None) -> Tracked:
    if axis is None:
        a, axis = _numpy.ravel(a), 0

    def largest(bound: np.ndarray) -> np.ndarray:
        return np.broadcast_to(np.max(bound, axis=axis, keepdims=True, initial=0.0), a.shape)

    return extreme_of(functools.partial(np.sort, axis=axis), (a,), largest, a.model)


@function(np.argsort)
def _argsort(a: Tracked, axis: int | None = -1, kind: str | None = None) -> Tracked:
    """Stable, as XLA's sort is; the index is open where a neighbour may be equal or beyond."""
    if axis is None:
        a, axis = _numpy.ravel(a), 0
    z = np.argsort(a.value, axis=axis, kind="stable")
    if not a.bound.any():
        return Tracked(z, np.zeros(z.shape), a.model)
    value, bound = (
        np.moveaxis(np.take_along_axis(one, z, axis), axis, 0) for one in (a.value, a.bound)
    )
    # Nothing before an element may come after it, and nothing after it before it.
    before = np.maximum.accumulate(value + bound, axis=0)[:-1]
    after = np.minimum.accumulate((value - bound)[::-1], axis=0)[::-1][1:]
    meets = ~(before < after)
    is_open = np.zeros(value.shape, bool)
    is_open[1:] |= meets
    is_open[:-1] |= meets
    return Tracked(z, np.moveaxis(np.where(is_open, len(value), 0.0), 0, axis), a.model)


def _arg_extreme(function: Any, sign: float) -> Any:
    """The rule of argmax or argmin: the distance to the farthest element that may be the one."""

    def found(
        a: Tracked, axis: int | None = None, out: Any = None, *, keepdims: bool = False
    ) -> Tracked:
        z = function(a.value, axis=axis, keepdims=True)
        value, bound, along = sign * a.value, a.bound, axis
        if along is None:
            value, bound, along = value.ravel(), bound.ravel(), 0
        best = z.reshape(-1) if axis is None else z
        width = np.take_along_axis(bound, best, along)
        least = np.max(value - bound, axis=along, keepdims=True)
        # Of equal exact numbers the first one is meant.
        may_be = ~(value + bound < least) & ((bound > 0) | (width > 0))
        places = np.arange(value.shape[along]).reshape(
            [-1 if d == along % value.ndim else 1 for d in range(value.ndim)]
        )
        apart = np.where(may_be, np.abs(places - best), 0).max(axis=along, keepdims=True)
        apart = np.asarray(apart, np.float64).reshape(z.shape)
        if keepdims:
            return Tracked(z, apart, a.model)
        drop = None if axis is None else (axis,)
        return Tracked(np.squeeze(z, drop), np.squeeze(apart, drop), a.model)

    return found


FUNCTIONS |= {np.argmax: _arg_extreme(np.argmax, 1.0), np.argmin: _arg_extreme(np.argmin, -1.0)}


def _quantile(a: Tracked, q: Any, axis: Any, keepdims: bool, method: str = "linear") -> Tracked:
    """A quantile lies between two neighbours of the sorted numbers, and grows with each number.

    Its place, up to n, is rounded, which moves it by at most n u of the neighbours' distance; it
    is a sum of two products.
    """
    if method != "linear":
        raise UnknownOperationError(f"no error bound is known for quantiles by {method!r}")

    def value(x: np.ndarray) -> Any:
        return np.quantile(x, q, axis=axis, keepdims=keepdims)

    def largest(bound: np.ndarray) -> Any:
        return np.max(bound, initial=0.0)

    ends, u = extreme_of(value, (a,), largest, a.model), a.model.roundoff
    size, width = (f(a.value, axis=axis, keepdims=keepdims) for f in (_largest_size, np.ptp))
    return rounded(ends.value, ends.bound + u * (4 * size + 2 * a.size * width), u, a.model)


def _largest_size(x: np.ndarray, **how: Any) -> Any:
    return np.max(np.abs(x), **how)


@function(np.median)
def _median(
    a: Tracked,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    keepdims: bool = False,
) -> Tracked:
    return _quantile(a, 0.5, axis, keepdims)


@function(np.quantile)
def _quantiles(
    a: Tracked,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
) -> Tracked:
    return _quantile(a, q, axis, keepdims, method)


@function(np.percentile)
def _percentiles(
    a: Tracked,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
) -> Tracked:
    return _quantile(a, np.asarray(q) / 100, axis, keepdims, method)
