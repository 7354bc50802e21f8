"""Functions that move, join and repeat elements: nothing is rounded. Sorting and quantiles."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..tracked import (
    FUNCTIONS,
    Tracked,
    UnknownOperationError,
    _numpy,
    all_tracked,
    function,
    model_of,
)
from .arithmetic import rounded
from .order import extreme_of


def _moved(move: Callable[..., Any]) -> Any:
    """The rule of a function of one array, or of a function that returns a list of its parts."""

    def rule(x: Tracked, *args: Any, **options: Any) -> Any:
        value, bound = (move(part, *args, **options) for part in (x.held, x.bound))
        if isinstance(value, (list, tuple)):
            pairs = zip(value, bound, strict=True)
            return type(value)(Tracked(*pair, x.model) for pair in pairs)
        return Tracked(value, bound, x.model)

    return rule


def _joined(join: Callable[..., Any]) -> Any:
    """The rule of a function that joins a sequence of arrays."""

    def rule(arrays: Any, *args: Any, **options: Any) -> Tracked:
        parts = all_tracked(*arrays)
        value = join([x.value for x in parts], *args, **options)
        bound = join([x.bound for x in parts], *args, **options)
        return Tracked(value, bound, model_of(*parts))

    return rule


MOVES = (
    np.array_split,
    np.atleast_1d,
    np.atleast_2d,
    np.atleast_3d,
    np.broadcast_to,
    np.delete,
    np.diag,
    np.diagflat,
    np.diagonal,
    np.dsplit,
    np.expand_dims,
    np.flip,
    np.fliplr,
    np.flipud,
    np.hsplit,
    np.linalg.diagonal,
    np.linalg.matrix_transpose,
    np.matrix_transpose,
    np.moveaxis,
    np.permute_dims,
    np.ravel,
    np.repeat,
    np.reshape,
    np.resize,
    np.roll,
    np.rollaxis,
    np.rot90,
    np.split,
    np.squeeze,
    np.swapaxes,
    np.tile,
    np.transpose,
    np.tril,
    np.triu,
    np.unstack,
    np.vsplit,
    np.fft.fftshift,
    np.fft.ifftshift,
)
"""Functions that move the elements of one array."""

JOINS = (np.concatenate, np.stack, np.vstack, np.hstack, np.dstack, np.column_stack)
"""Functions that join a sequence of arrays."""

FUNCTIONS |= {f: _moved(f) for f in MOVES} | {f: _joined(f) for f in JOINS}
FUNCTIONS |= {
    f: lambda a, f=f: f(a.held) for f in (np.shape, np.ndim, np.size, np.iscomplexobj, np.isrealobj)
}


@function(np.append)
def _append(arr: Any, values: Any, axis: int | None = None) -> Tracked:
    parts = all_tracked(arr, values)
    if axis is None:
        parts, axis = tuple(_numpy.ravel(x) for x in parts), 0
    return _numpy.concatenate(parts, axis=axis)


@function(np.broadcast_arrays)
def _broadcast_arrays(*args: Any, subok: bool = False) -> tuple[Tracked, ...]:
    parts = all_tracked(*args)
    shape = np.broadcast_shapes(*(x.shape for x in parts))
    return tuple(_numpy.broadcast_to(x, shape) for x in parts)


@function(np.meshgrid)
def _meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    parts = all_tracked(*xi)
    how: dict[str, Any] = {"sparse": sparse, "indexing": indexing}
    values = np.meshgrid(*(x.value for x in parts), **how)
    bounds = np.meshgrid(*(x.bound for x in parts), **how)
    return tuple(Tracked(v, b, parts[0].model) for v, b in zip(values, bounds, strict=True))


@function(np.take)
def _take(
    a: Any, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise"
) -> Any:
    return _picked(np.take, a, indices, axis, mode=mode)


@function(np.take_along_axis)
def _take_along_axis(arr: Any, indices: Any, axis: int | None = -1) -> Any:
    return _picked(np.take_along_axis, arr, indices, axis)


def _picked(pick: Any, a: Any, indices: Any, axis: int | None, **how: Any) -> Tracked:
    """Elements by index; an index that is open may pick any element."""
    model = model_of(a, indices)
    a, indices = all_tracked(a, indices)
    if axis is None:
        a, axis = _numpy.ravel(a), 0
    value, bound = (pick(part, indices.value, axis, **how) for part in (a.value, a.bound))
    if indices.bound.any():
        low, high = np.min(a.value - a.bound), np.max(a.value + a.bound)
        is_open = pick(np.zeros(a.shape), indices.value, axis, **how)
        wide = [1] * axis + [*indices.shape] + [1] * (is_open.ndim - axis - indices.ndim)
        is_open = indices.bound if is_open.shape == indices.shape else indices.bound.reshape(wide)
        bound = np.where(is_open > 0, high - low, bound)
    return Tracked(value, bound, model)


@function(np.compress)
def _compress(condition: Any, a: Any, axis: int | None = None) -> Tracked:
    if isinstance(condition, Tracked):
        raise UnknownOperationError(
            "no error bound is known for numpy.compress by an inexact array"
        )
    value, bound = (np.compress(condition, part, axis) for part in (a.value, a.bound))
    return Tracked(value, bound, a.model)


_MOVING = ("edge", "reflect", "symmetric", "wrap")


@function(np.pad)
def _pad(array: Tracked, pad_width: Any, mode: str = "constant", **options: Any) -> Tracked:
    if mode in _MOVING:
        return _moved(np.pad)(array, pad_width, mode=mode, **options)
    if mode != "constant" or not options.keys() <= {"constant_values"}:
        raise UnknownOperationError(f"no error bound is known for numpy.pad with mode={mode!r}")
    value = np.pad(array.value, pad_width, **options)
    bound = np.pad(array.bound, pad_width)
    if options:
        given = array.model.constant(np.asarray(options["constant_values"], np.float64))
        inside = np.pad(np.zeros(array.shape), pad_width, constant_values=1.0)
        bound = np.where(inside > 0, np.max(given), bound)
    return Tracked(value, bound, array.model)


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
        np.moveaxis(np.take_along_axis(part, z, axis), axis, 0) for part in (a.value, a.bound)
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

    def rule(
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

    return rule


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
    how: dict[str, Any] = {"axis": axis, "keepdims": keepdims}
    size, width = np.max(np.abs(a.value), **how), np.ptp(a.value, **how)
    return rounded(ends.value, ends.bound + u * (4 * size + 2 * a.size * width), u, a.model)


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
