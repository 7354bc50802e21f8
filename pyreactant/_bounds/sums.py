"""Error bounds of sums, matrix products and Fourier transforms, for any order of summation."""

import functools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from .model import Model
from .tracked import FUNCTIONS, UFUNCS, Tracked, UnknownOperationError, as_tracked, bounded


def _sum(x: Tracked, axis: Any = None, *, keepdims: bool = False) -> Tracked:
    how = {"axis": axis, "keepdims": keepdims}
    found = _from_sums(x.model, _length(x, axis), *_sums(x, how))
    return _with_infinities(found, functools.partial(np.sum, **how), (x,))


def _with_infinities(found: Tracked, function: Any, operands: tuple[Tracked, ...]) -> Tracked:
    """The result of sums; infinities of exact operands are certain if nothing else overflows."""

    def certain() -> Any:
        if any(x.bound.any() for x in operands):
            return np.False_
        rest = function(*(np.where(np.isfinite(x.value), np.abs(x.value), 0.0) for x in operands))
        return rest < found.model.largest

    return bounded(found.value, found.bound, found.model, certain)


def sum_of(parts: Iterable[Any]) -> Any:
    """The sum of all elements of an iterable of arrays, Tracked or not."""
    total: Any = None
    model: Model | None = None
    for part in parts:
        if isinstance(part, Tracked):
            model = part.model
            found: Any = (part.size, *_sums(part, {}))
            total = found if total is None else [a + b for a, b in zip(total, found, strict=True)]
        else:
            total = part.sum() + (0 if total is None else total)
    if model is None:
        return np.asarray(total)
    found = _from_sums(model, *total)
    return bounded(found.value, found.bound, model)


def _sums(x: Tracked, how: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    """Sums of the values, of the bounds, of |value| + bound, and of its square."""
    size, error = np.abs(x.value), np.zeros(())
    if x.narrow.any():
        size += x.bound
        error = x.bound.sum(**how)
    absolute = size.sum(**how)
    return x.value.sum(**how), error, absolute, np.square(size, out=np.asarray(size)).sum(**how)


def _from_sums(model: Model, n: int, z: Any, error: Any, absolute: Any, squares: Any) -> Tracked:
    rounding = model.sum_error(n, absolute, np.abs(z) + error, np.sqrt(squares))
    # Partial sums may overflow where the whole does not.
    error = np.where(absolute > model.largest, np.inf, error)
    return Tracked(z, error + rounding + n * model.tiny, model)


def _mean(x: Tracked, axis: Any = None, *, keepdims: bool = False) -> Tracked:
    return _sum(x, axis, keepdims=keepdims) / _length(x, axis)


def _var(x: Tracked, axis: Any = None, *, keepdims: bool = False) -> Tracked:
    """The variance in two passes, as both runtimes compute it."""
    centred = x - _mean(x, axis, keepdims=True)
    return _mean(np.abs(centred) ** 2, axis, keepdims=keepdims)


def _length(x: Tracked, axis: Any) -> int:
    axes = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    return math.prod(x.shape[a] for a in axes)


def _cumsum(x: Tracked, axis: Any = None) -> Tracked:
    if axis is None:
        x, axis = x.reshape(-1), 0
    size = np.abs(x.value) + x.bound
    n = np.arange(1, x.shape[axis] + 1).reshape(-1, *[1] * ((x.ndim - 1 - axis) % x.ndim))
    z, error = np.cumsum(x.value, axis=axis), np.cumsum(x.bound, axis=axis)
    rounding = x.model.sum_error(
        n,
        np.cumsum(size, axis=axis),
        np.abs(z) + error,
        np.sqrt(np.cumsum(np.square(size), axis=axis)),
    )
    found = Tracked(z, error + rounding + n * x.model.tiny, x.model)
    return _with_infinities(found, functools.partial(np.cumsum, axis=axis), (x,))


def _matmul(model: Model, x: Tracked, y: Tracked) -> Tracked:
    """The bound by Cauchy-Schwarz, ``(|x| |y|)_ij <= norm(x_i) norm(y_j)``: no second product.

    To avoid it, the norm of the products is also estimated, as that of independent numbers.
    """
    n, z = x.shape[-1], np.matmul(x.value, y.value)
    (rows, row_errors), (columns, column_errors) = _norms(x, -1), _norms(y, -2 if y.ndim > 1 else 0)
    if y.ndim > 1:
        columns, column_errors = columns[..., None, :], column_errors[..., None, :]
        if x.ndim > 1:
            rows, row_errors = rows[..., :, None], row_errors[..., :, None]
    error = rows * column_errors + row_errors * (columns + column_errors)
    size = (rows + row_errors) * (columns + column_errors)
    size, error = size.reshape(z.shape), error.reshape(z.shape)
    rounding = model.product_error(
        n, size, np.abs(z) + error, size / math.sqrt(max(n, 1)), np.iscomplexobj(z)
    )
    found = Tracked(z, error + rounding + n * model.tiny, model)
    return _with_infinities(found, np.matmul, (x, y))


def _norms(x: Tracked, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Euclidean norms of the values and of the bounds along one dimension."""
    # Covers the rounding of the sums of squares.
    slack = 1 + x.shape[axis] * 2.0**-52
    value = np.sqrt(_squares(x.value, axis)) * slack
    if not x.narrow.any():
        return value, np.zeros(value.shape)
    return value, np.sqrt(_squares(x.bound, axis)) * slack


def _squares(x: np.ndarray, axis: int) -> Any:
    """Sums of squared absolute values along a dimension, without a temporary array."""
    if np.iscomplexobj(x):
        return _squares(x.real, axis) + _squares(x.imag, axis)
    if axis % x.ndim == x.ndim - 1:
        return np.einsum("...i,...i->...", x, x)
    moved = np.moveaxis(x, axis, -2)
    return np.einsum("...ij,...ij->...j", moved, moved)


def _einsum(subscripts: str, *operands: Any) -> Tracked:
    model = next(x.model for x in operands if isinstance(x, Tracked))
    tracked = [as_tracked(x, model) for x in operands]
    terms, _, out = subscripts.replace(" ", "").partition("->")
    if "." in terms or "->" not in subscripts or len(tracked) > 2:
        raise UnknownOperationError(
            f"no error bound is known for numpy.einsum({subscripts!r}); use one or two operands "
            "and subscripts with '->' and without '...'"
        )
    sizes = {
        label: n
        for term, x in zip(terms.split(","), tracked, strict=True)
        for label, n in zip(term, x.shape, strict=True)
    }
    n = math.prod(size for label, size in sizes.items() if label not in out)
    z, exact, size, squares = (
        np.einsum(subscripts, *map(part, tracked)) for part in (_value, _size, _reach, _square)
    )
    # The subtraction cancels, so add the rounding of both sums.
    error = np.maximum(size - exact, 0) + n * 2.0**-50 * size
    sums = (n, size, np.abs(z) + error, np.sqrt(squares))
    parts = np.iscomplexobj(z)
    rounding = model.product_error(*sums, parts) if len(tracked) == 2 else model.sum_error(*sums)
    found = Tracked(z, error + rounding + n * model.tiny, model)
    return _with_infinities(found, functools.partial(np.einsum, subscripts), tuple(tracked))


def _value(x: Tracked) -> np.ndarray:
    return x.value


def _size(x: Tracked) -> np.ndarray:
    return np.abs(x.value)


def _reach(x: Tracked) -> np.ndarray:
    return np.abs(x.value) + x.bound


def _square(x: Tracked) -> np.ndarray:
    return np.square(_reach(x))


def _fourier(transform: Any, inverse: bool) -> Any:
    """Normwise bound ``norm(error) <= factor * log2(n) u norm(result)`` (Higham, theorem 24.2).

    The factor covers algorithms of any radix, and Bluestein's, which uses three transforms of at
    least twice the length.
    """

    def rule(x: Tracked, axis: int = -1) -> Tracked:
        n = x.shape[axis]
        steps = math.ceil(math.log2(max(n, 2))) + 2
        z = transform(x.value, axis=axis)
        norm = np.expand_dims(np.sqrt(_squares(z, axis)), axis)
        # A transform multiplies Euclidean norms by sqrt(n), its inverse divides by it.
        grown = np.expand_dims(np.sqrt(_squares(x.bound, axis)), axis)
        grown = grown / math.sqrt(n) if inverse else grown * math.sqrt(n)
        u = x.model.roundoff + x.model.operand_roundoff
        bound = grown + 16 * steps * u * (norm + grown) + n * x.model.tiny
        return bounded(z, bound, x.model)

    return rule


def _fourier_2d(one: Any) -> Any:
    def rule(x: Tracked) -> Tracked:
        return one(one(x, axis=-1), axis=-2)

    return rule


def _dot(x: Any, y: Any) -> Tracked:
    if max(np.ndim(x), np.ndim(y)) > 2 or not min(np.ndim(x), np.ndim(y)):
        raise UnknownOperationError(
            "the error bound of numpy.dot is known only for vectors and matrices; use numpy.matmul"
        )
    return np.matmul(x, y)


_FFT, _INVERSE_FFT = _fourier(np.fft.fft, False), _fourier(np.fft.ifft, True)
UFUNCS[np.matmul] = _matmul
FUNCTIONS |= {
    np.sum: _sum,
    np.mean: _mean,
    np.var: _var,
    np.cumsum: _cumsum,
    np.dot: _dot,
    np.std: lambda *args, **options: np.sqrt(_var(*args, **options)),
    np.einsum: _einsum,
    np.fft.fft: _FFT,
    np.fft.fft2: _fourier_2d(_FFT),
    np.fft.ifft: _INVERSE_FFT,
    np.fft.ifft2: _fourier_2d(_INVERSE_FFT),
}
