"""Sums, means, variances, products, norms and Fourier transforms along dimensions."""

import functools
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from .. import fused
from ..model import Model
from ..tracked import FUNCTIONS, Tracked, UnknownOperationError, _numpy, as_tracked, function
from .arithmetic import bounded


@function(np.sum)
def _sum(
    a: Tracked, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False
) -> Tracked:
    if dtype is not None:
        a = a.astype(dtype)
    how = {"axis": axis, "keepdims": keepdims}
    if a.held.dtype.kind in "biu":
        return Tracked(a.value.sum(**how), a.bound.sum(**how), a.model)
    total = from_sums(a.model, _length(a, axis), _sums(a, how))
    return with_infinities(total, functools.partial(np.sum, **how), (a,))


def with_infinities(sums: Tracked, function: Any, operands: tuple[Tracked, ...]) -> Tracked:
    """The result of sums; infinities of exact operands are certain if nothing else overflows."""

    def certain() -> Any:
        if any(x.bound.any() for x in operands):
            return np.False_
        rest = function(*(np.where(np.isfinite(x.value), np.abs(x.value), 0.0) for x in operands))
        return rest < sums.model.largest

    return bounded(sums.value, sums.bound, sums.model, certain)


def sum_of(parts: Iterable[Any]) -> Any:
    """The sum of all elements of an iterable of arrays of one type, Tracked or not."""
    n, sums = 0, [0] * 4
    for part in parts:
        more = _sums(part, {}) if isinstance(part, Tracked) else [part.sum()]
        n, sums = n + part.size, [a + b for a, b in zip(sums, more, strict=False)]
    if not isinstance(part, Tracked):
        return np.asarray(sums[0]).astype(part.dtype)  # integers modulo 2**bits, as in runtimes
    total = from_sums(part.model, n, Sums(*sums))
    return bounded(total.value, total.bound, part.model)


class Sums(NamedTuple):
    """Sums of the values of an array, and of what their bound needs.

    Attributes:
        value: Sums of the values.
        error: Of the bounds.
        size: Of |value| + bound.
        squares: Of its square.
    """

    value: Any
    error: Any
    size: Any
    squares: Any


def _sums(x: Tracked, how: dict[str, Any]) -> Sums:
    sums = _in_one_pass(x, how)
    if sums is not None:
        return sums
    size, error = np.abs(x.value), np.zeros(())
    if x.narrow.any():
        size += x.bound
        error = x.bound.sum(**how)
    whole = size.sum(**how)
    squares = np.square(size, out=np.asarray(size)).sum(**how)
    return Sums(x.value.sum(**how), error, whole, squares)


def _in_one_pass(x: Tracked, how: dict[str, Any]) -> Sums | None:
    axis = how.get("axis")
    if axis not in (None, 1, -1) or x.ndim != 2 or x.narrow.any():
        return None
    if x.held.dtype.kind != "f" or not fused.large(x.held):
        return None
    sums = fused.row_sums(np.ascontiguousarray(x.held))
    if axis is None:
        sums = sums.sum(axis=1)
    if how.get("keepdims", False):
        sums = sums.reshape(3, -1, 1)
    value, size, squares = sums
    return Sums(value, np.zeros(()), size, squares)


def from_sums(model: Model, n: int, sums: Sums) -> Tracked:
    """Sums of n numbers with their bounds."""
    value, error, size, squares = sums
    rounding = model.sum_error(n, size, np.abs(value) + error, np.sqrt(squares))
    # Partial sums may overflow where the whole does not.
    error = np.where(size > model.largest, np.inf, error)
    return Tracked(value, error + rounding + n * model.tiny, model)


@function(np.mean)
def _mean(
    a: Tracked, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False
) -> Tracked:
    a = a if a.value.dtype.kind not in "biu" else a.astype(np.float64)
    return _sum(a, axis, dtype, keepdims=keepdims) / _length(a, axis)


@function(np.var)
def _var(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    correction: float = 0,
) -> Any:
    """The variance in two passes, as both runtimes compute it."""
    a = a if dtype is None else a.astype(dtype)
    centred = a - _numpy.mean(a, axis=axis, keepdims=True)
    total = _numpy.sum(_numpy.square(_numpy.abs(centred)), axis=axis, keepdims=keepdims)
    return total / (_length(a, axis) - max(ddof, correction))


@function(np.std)
def _std(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    correction: float = 0,
) -> Any:
    return _numpy.sqrt(_var(a, axis, dtype, None, ddof, keepdims, correction=correction))


@function(np.average)
def _average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False) -> Any:
    if returned or (weights is not None and np.shape(weights) != np.shape(a) and axis is None):
        raise UnknownOperationError("no error bound is known for numpy.average with returned")
    if weights is None:
        return _mean(a, axis)
    if np.ndim(weights) == 1 and a.ndim > 1:
        shape = [1] * a.ndim
        shape[axis] = -1
        weights = _numpy.reshape(weights, shape)
    weights = _numpy.broadcast_to(as_tracked(weights, a.model), a.shape)
    return _sum(a * weights, axis) / _sum(weights, axis)


def _length(x: Tracked, axis: Any) -> int:
    axes = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    return math.prod(x.shape[a] for a in axes)


@function(np.nansum)
def _nansum(
    a: Tracked, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False
) -> Tracked:
    return _sum(_numpy.where(_numpy.isnan(a), 0.0, a), axis, dtype, keepdims=keepdims)


@function(np.nanmean)
def _nanmean(
    a: Tracked, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False
) -> Any:
    counted = _sum(~_numpy.isnan(a), axis, keepdims=keepdims)
    return _nansum(a, axis, dtype, keepdims=keepdims) / counted


@function(np.trace)
def _trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tracked:
    return _sum(_numpy.diagonal(a, offset, axis1, axis2), -1)


@function(np.cumsum)
def _cumsum(a: Tracked, axis: Any = None, dtype: Any = None) -> Tracked:
    x = a if dtype is None else a.astype(dtype)
    if axis is None:
        x, axis = x.reshape(-1), 0
    if x.value.dtype.kind in "biu":
        return Tracked(np.cumsum(x.value, axis), np.cumsum(x.bound, axis), x.model)
    size = np.abs(x.value) + x.bound
    n = np.arange(1, x.shape[axis] + 1).reshape(-1, *[1] * ((x.ndim - 1 - axis) % x.ndim))
    z, error = np.cumsum(x.value, axis=axis), np.cumsum(x.bound, axis=axis)
    sizes = np.cumsum(size, axis=axis)
    norms = np.cumsum(np.square(size, out=size), axis=axis, out=size)  # large, so in place
    error += x.model.sum_error(n, sizes, np.abs(z) + error, np.sqrt(norms, out=norms))
    error += n * x.model.tiny
    sums = Tracked(z, error, x.model)
    return with_infinities(sums, functools.partial(np.cumsum, axis=axis), (x,))


@function(np.prod)
def _prod(
    a: Tracked, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False
) -> Tracked:
    how = {"axis": axis, "keepdims": keepdims}
    return _products(a, dtype, _length(a, axis), functools.partial(np.prod, **how))


@function(np.cumprod)
def _cumprod(a: Tracked, axis: Any = None, dtype: Any = None) -> Tracked:
    if axis is None:
        a, axis = a.reshape(-1), 0
    return _products(a, dtype, a.shape[axis], functools.partial(np.cumprod, axis=axis))


def _products(a: Tracked, dtype: Any, n: int, multiply: Any) -> Tracked:
    """Products of n numbers in any order: n - 1 roundings of prod(|x| + b).

    Parts of a product are at most the product of the numbers beyond 1, which may overflow or
    make an underflow larger.
    """
    x = a if dtype is None else a.astype(dtype)
    if x.value.dtype.kind in "biu":
        return Tracked(multiply(x.value), np.where(multiply(x.bound + 1) > 1, np.inf, 0), x.model)
    z, model = multiply(x.value), x.model
    exact, size = multiply(np.abs(x.value)), multiply(np.abs(x.value) + x.bound)
    parts = multiply(np.maximum(np.abs(x.value) + x.bound, 1.0))
    relative = n * model.multiply(np.iscomplexobj(z))
    error = np.maximum(size - exact, 0) + (relative * 1.01 + n * 2.0**-51) * size
    error = error + n * model.tiny * parts
    error = np.where((parts > model.largest) | (relative > 0.01), np.inf, error)
    return bounded(z, error, model)


@function(np.linalg.norm)
def _norm(x: Tracked, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    axes = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    how: dict[str, Any] = {"axis": tuple(axes), "keepdims": keepdims}
    if axis is None and ord is not None and x.ndim > 2:
        raise ValueError("numpy.linalg.norm with ord takes vectors and matrices")
    size = _numpy.abs(x)
    if ord is None or ord == "fro" or (len(axes) == 1 and ord == 2):
        return _numpy.sqrt(_sum(_numpy.square(size), **how))
    if len(axes) == 2:
        return _matrix_norm(size, ord, axes, keepdims)
    if ord in (np.inf, -np.inf):
        return _numpy.max(size, **how) if ord > 0 else _numpy.min(size, **how)
    if ord == 0:
        return _sum((size != 0) * 1.0, **how)
    return _sum(size, **how) if ord == 1 else _sum(size**ord, **how) ** (1 / ord)


def _matrix_norm(size: Any, ord: Any, axes: Any, keepdims: bool) -> Any:
    if ord not in (1, -1, np.inf, -np.inf):
        raise UnknownOperationError(f"no error bound is known for numpy.linalg.norm with ord={ord}")
    summed, kept = axes if abs(ord) == 1 else axes[::-1]
    sums = _sum(size, summed, keepdims=True)
    extreme = _numpy.max if ord > 0 else _numpy.min
    norm = extreme(sums, axis=kept, keepdims=True)
    return norm if keepdims else _numpy.squeeze(norm, tuple(axes))


@function(np.linalg.vector_norm)
def _vector_norm(x: Tracked, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    if axis is None and not keepdims:
        return _norm(_numpy.ravel(x), ord, 0)
    return _norm(x, ord, axis, keepdims)


@function(np.trapezoid)
def _trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Any:
    if x is not None:
        raise UnknownOperationError("no error bound is known for numpy.trapezoid with x")
    moved = _numpy.moveaxis(y, axis, -1)
    return _sum((moved[..., 1:] + moved[..., :-1]) * (dx / 2), -1)


@function(np.cov)
def _cov(m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: Any = None) -> Any:
    if y is not None or m.ndim > 2:
        raise UnknownOperationError("the error bound of numpy.cov is known only for one matrix")
    x = _numpy.atleast_2d(m)
    x = x if rowvar or m.ndim == 1 else x.T
    centred = x - _mean(x, 1, keepdims=True)
    free = x.shape[1] - ((0 if bias else 1) if ddof is None else ddof)
    return _numpy.squeeze(centred @ _numpy.conjugate(centred).T / free)


@function(np.corrcoef)
def _corrcoef(x: Any, y: Any = None, rowvar: bool = True) -> Any:
    c = _cov(x, y, rowvar)
    size = _numpy.sqrt(_numpy.diagonal(c))
    return _numpy.clip(c / size[:, None] / size[None, :], -1, 1)


# Names of the array API for the same functions.
FUNCTIONS |= {
    np.cumulative_sum: lambda x, /, *, axis=None: _cumsum(x, axis),
    np.cumulative_prod: lambda x, /, *, axis=None: _cumprod(x, axis),
    np.linalg.matrix_norm: lambda x, /, *, keepdims=False, ord="fro": _norm(
        x, ord, (-2, -1), keepdims
    ),
    np.linalg.trace: lambda x, /, *, offset=0: _trace(x, offset, -2, -1),
}


def squares(x: np.ndarray, axis: int) -> Any:
    """Sums of squared absolute values along a dimension, without a temporary array."""
    if np.iscomplexobj(x):
        return squares(x.real, axis) + squares(x.imag, axis)
    kind = np.float64 if x.dtype == np.float32 else None
    if axis % x.ndim == x.ndim - 1:
        return np.einsum("...i,...i->...", x, x, dtype=kind)
    moved = np.moveaxis(x, axis, -2)
    return np.einsum("...ij,...ij->...j", moved, moved, dtype=kind)


def _along(transform: Any, x: Tracked, n: int | None, axis: int, norm: str | None) -> Tracked:
    """One dimension: ``norm(error) <= factor * log2(n) u norm(result)`` (Higham, theorem 24.2).

    The factor covers algorithms of any radix, and Bluestein's, which uses three transforms of at
    least twice the length. A transform multiplies Euclidean norms by sqrt(n), before it is scaled.
    """
    z = transform(x.value, n, axis, norm)
    inverse = transform in (np.fft.ifft, np.fft.irfft)
    length = z.shape[axis] if transform is not np.fft.rfft else (n or x.shape[axis])
    # What is beyond the length is not read; half a spectrum stands for all of it.
    read = [slice(None)] * x.ndim
    read[axis] = slice(0, length // 2 + 1 if transform is np.fft.irfft else length)
    half = 2.0 if transform is np.fft.irfft else 1.0
    backward = norm in (None, "backward")
    scale = {"ortho": 1.0}.get(norm or "", math.sqrt(length))
    if inverse is backward and norm != "ortho":
        scale = 1 / scale
    size, grown = (
        scale * np.expand_dims(np.sqrt(half * squares(part[tuple(read)], axis)), axis)
        for part in (x.value, x.bound)
    )
    steps = math.ceil(math.log2(max(length, 2))) + 2
    u = x.model.roundoff + x.model.operand_roundoff
    bound = grown + 16 * steps * u * (size + grown) + length * x.model.tiny
    if (size + bound).max(initial=0.0) <= x.model.largest:  # no element is above `size`
        return Tracked(z, bound, x.model)
    return bounded(z, np.broadcast_to(bound, z.shape), x.model)


def _along_one(transform: Any) -> Any:
    def rule(a: Tracked, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tracked:
        return _along(transform, a, n, axis, norm)

    return rule


def _along_several(transform: Any, first: Any, default: tuple[int, ...] | None) -> Any:
    """The rule of a transform along several dimensions, the last one with `first`."""

    def rule(a: Tracked, s: Any = None, axes: Any = default, norm: str | None = None) -> Tracked:
        if axes is None:
            axes = tuple(range(a.ndim)) if s is None else tuple(range(-len(s), 0))
        lengths = [None] * len(axes) if s is None else [*s]
        order = [*zip(axes, lengths, strict=True)]
        kinds = [transform] * (len(order) - 1) + [first]
        steps = [*zip(kinds, order, strict=True)]
        # A real transform comes first, and its inverse last.
        for step, (axis, n) in steps if first is np.fft.irfft else steps[::-1]:
            a = _along(step, a, n, axis, norm)
        return a

    return rule


_FFT, _IFFT, _RFFT, _IRFFT = np.fft.fft, np.fft.ifft, np.fft.rfft, np.fft.irfft

FUNCTIONS |= {f: _along_one(f) for f in (_FFT, _IFFT, _RFFT, _IRFFT)}
FUNCTIONS |= {
    np.fft.fft2: _along_several(_FFT, _FFT, (-2, -1)),
    np.fft.ifft2: _along_several(_IFFT, _IFFT, (-2, -1)),
    np.fft.rfft2: _along_several(_FFT, _RFFT, (-2, -1)),
    np.fft.irfft2: _along_several(_IFFT, _IRFFT, (-2, -1)),
    np.fft.fftn: _along_several(_FFT, _FFT, None),
    np.fft.ifftn: _along_several(_IFFT, _IFFT, None),
    np.fft.rfftn: _along_several(_FFT, _RFFT, None),
    np.fft.irfftn: _along_several(_IFFT, _IRFFT, None),
}
