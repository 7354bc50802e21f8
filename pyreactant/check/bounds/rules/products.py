"""Matrix products and other sums of products."""

import functools
import math
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from .. import fused
from ..model import Model
from ..tracked import (
    FUNCTIONS,
    UFUNCS,
    Tracked,
    UnknownOperationError,
    _numpy,
    all_tracked,
    function,
    model_of,
    rule,
)
from .reductions import squares, with_infinities


class Norms(NamedTuple):
    """Euclidean norms of an array along one dimension.

    Attributes:
        of_value: Those of its values.
        of_bound: Those of its bounds.
    """

    of_value: np.ndarray
    of_bound: np.ndarray


def norms(x: Tracked, axis: int) -> Norms:
    """The norms of an array along a dimension."""
    # Covers the rounding of the sums of squares.
    slack = 1 + x.shape[axis] * 2.0**-52
    value = np.sqrt(squares(x.held, axis)) * slack
    if not x.narrow.any():
        return Norms(value, np.zeros(value.shape))
    return Norms(value, np.sqrt(squares(x.bound, axis)) * slack)


@rule(np.matmul)
def _matmul(model: Model, x: Tracked, y: Tracked) -> Tracked:
    """The product in float64, or in float32 if `Float32Products` are active and it is large."""
    left, right = norms(x, -1), norms(y, -2 if y.ndim > 1 else 0)
    products = Float32Products.current()
    if products is not None and _is_large(x, y):
        z = np.matmul(*(factor.held.astype(np.float32, copy=False) for factor in (x, y)))
        if np.isfinite(z).all():
            products.formed += 1
            own = replace(_FLOAT32, random=model.random)
            n, z = x.shape[-1], z.astype(np.float64)
            ends = _with_rounding(x, left, n), _with_rounding(y, right, n)
            return _bounded((model, own), z, (x, y), ends)
    return _bounded((model,), np.matmul(x.value, y.value), (x, y), (left, right))


class Float32Products:
    """While active, as a context, large products of this thread are formed in float32.

    Attributes:
        formed: How many were.
    """

    _active: ContextVar["Float32Products | None"] = ContextVar("float32_products", default=None)

    def __init__(self) -> None:
        self.formed = 0

    @classmethod
    def current(cls) -> "Float32Products | None":
        """Those of this thread; None if products are formed in float64."""
        return cls._active.get()

    def __enter__(self) -> "Float32Products":
        self._token = self._active.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._active.reset(self._token)


_FLOAT32 = Model.of(np.float32)
"""How NumPy's products in float32 round: as those of any other runtime."""

LARGE, LONG = 2**24, 64
"""Multiplications, and the length of the sums, from which a product is formed in float32."""


def _is_large(x: Tracked, y: Tracked) -> bool:
    """Whether both are real matrices, or batches of them, and their product is large."""
    if x.ndim < 2 or y.ndim < 2 or {x.held.dtype.kind, y.held.dtype.kind} != {"f"}:
        return False
    batch = math.prod(np.broadcast_shapes(x.shape[:-2], y.shape[:-2]))
    return x.shape[-1] >= LONG and batch * math.prod(x.shape[-2:]) * y.shape[-1] >= LARGE


def _with_rounding(x: Tracked, own: Norms, n: int) -> Norms:
    """The norms of a factor that is rounded to float32, which adds to its bound."""
    if x.held.dtype == np.float32:
        return own
    changed = _FLOAT32.roundoff * own.of_value + math.sqrt(n) * _FLOAT32.tiny
    return Norms(own.of_value, own.of_bound + changed)


def _bounded(
    models: Sequence[Model],
    z: np.ndarray,
    factors: tuple[Tracked, Tracked],
    ends: tuple[Norms, Norms],
) -> Tracked:
    """A product with its bound.

    By Cauchy-Schwarz, ``(|x| |y|)_ij <= norm(x_i) norm(y_j)``: no second product. To avoid it, the
    norm of the products is also estimated, as that of independent numbers.

    Args:
        models: Rounding models of the runtime, and of the check's product if it rounds as much.
        z: The product.
        factors: The factors.
        ends: Norms of the rows of the left factor, and of the columns of the right one.
    """
    model, n = models[0], factors[0].shape[-1]
    # The check's own error may have made z smaller than the sums whose rounding is bounded.
    slack = 1.01 if len(models) > 1 else 1.0
    bound = _in_one_pass(models, z, ends, n, slack)
    if bound is not None:
        return Tracked(z, bound, model)
    (rows, row_errors), (columns, column_errors) = ends
    if factors[1].ndim > 1:
        columns, column_errors = columns[..., None, :], column_errors[..., None, :]
        if factors[0].ndim > 1:
            rows, row_errors = rows[..., :, None], row_errors[..., :, None]
    error = rows * column_errors + row_errors * (columns + column_errors)
    size = (rows + row_errors) * (columns + column_errors)
    size, error = size.reshape(z.shape), error.reshape(z.shape)
    sums = (n, size, np.abs(z) + error, size / math.sqrt(max(n, 1)), np.iscomplexobj(z))
    vector = _by_vector(z, n, factors)
    rounding = slack * sum(own.product_error(*sums, vector) for own in models)
    # Partial sums may overflow where the whole does not.
    error = np.where(size > model.largest, np.inf, error)
    product = Tracked(z, error + rounding + len(models) * n * model.tiny, model)
    return with_infinities(product, np.matmul, factors)


def _by_vector(z: np.ndarray, n: int, factors: Sequence[Tracked]) -> bool:
    """Whether one of two factors has no dimension of its own in sums of n products.

    With b elements in common dimensions and f and g in their own, the factors have b f n and b g n
    elements and the product has b f g.
    """
    return z.size * n in (factors[0].size, factors[1].size)


def _in_one_pass(
    models: Sequence[Model], z: np.ndarray, ends: tuple[Norms, Norms], n: int, slack: float
) -> np.ndarray | None:
    """The bounds of a product, or of a batch of them, by a loop.

    None if a loop does not help, or something may overflow.
    """
    model = models[0]
    factors = [known for one in models if (known := one.product_factors(n)) is not None]
    if len(factors) < len(models) or z.dtype != np.float64 or not fused.large(z):
        return None
    arrays: tuple[np.ndarray, ...] = (z, *ends[0], *ends[1])
    arrays = arrays if z.ndim == 3 else tuple(array[None] for array in arrays)
    batch = (len(arrays[0]),)
    if arrays[0].ndim != 3 or any(array.shape[:-1] != batch for array in arrays[1:]):
        return None
    reach = [np.max(one.of_value + one.of_bound) for one in ends]
    if not reach[0] * reach[1] <= model.largest:
        return None
    added = np.sum(factors, axis=0) * slack
    given = (*added.tolist(), len(models) * n * model.tiny, model.largest)
    bound, near = fused.product_bounds(*arrays, given)
    return bound.reshape(z.shape) if near else None


@function(np.einsum)
def _einsum(subscripts: Any, *operands: Any, optimize: Any = False) -> Tracked:
    if not isinstance(subscripts, str):
        raise UnknownOperationError("the error bound of numpy.einsum is known only for text")
    tracked = all_tracked(*operands)
    text = _explicit(subscripts, [x.ndim for x in tracked])
    terms, _, out = text.partition("->")
    sizes = {
        label: n
        for term, x in zip(terms.split(","), tracked, strict=True)
        for label, n in zip(term, x.shape, strict=True)
    }
    n = math.prod(size for label, size in sizes.items() if label not in out)
    return sums_of_products(functools.partial(np.einsum, text), tracked, n)


def _explicit(subscripts: str, dimensions: list[int]) -> str:
    """Subscripts with the result's and with labels in place of an ellipsis."""
    terms, arrow, out = subscripts.replace(" ", "").partition("->")
    parts = terms.split(",")
    free = [label for label in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if label not in subscripts]
    counts = [n - len(p.replace("...", "")) for p, n in zip(parts, dimensions, strict=True)]
    most = max((n for n, p in zip(counts, parts, strict=True) if "..." in p), default=0)
    dots = "".join(free[:most])
    if not arrow:
        labels = terms.replace(",", "").replace("...", "")
        out = "..." * ("..." in terms) + "".join(
            sorted(label for label in set(labels) if labels.count(label) == 1)
        )
    named = [
        p.replace("...", dots[most - n :] if n else "") for p, n in zip(parts, counts, strict=True)
    ]
    return ",".join(named) + "->" + out.replace("...", dots)


def sums_of_products(function: Any, operands: tuple[Tracked, ...], n: int) -> Tracked:
    """Sums of n products of an element of each operand, in any order.

    Args:
        function: Computes them from the operands' values; linear in each.
        operands: The operands.
        n: Most products of a sum.
    """
    model = model_of(*operands)
    reach = [np.abs(x.value) + x.bound for x in operands]
    z, size = function(*(x.value for x in operands)), function(*reach)
    exact, sizes = function(*(np.abs(x.value) for x in operands)), function(*map(np.square, reach))
    # The subtraction cancels, so add the rounding of both sums.
    error = np.maximum(size - exact, 0) + n * 2.0**-50 * size
    sums = (n, size, np.abs(z) + error, np.sqrt(sizes))
    parts = np.iscomplexobj(z)
    if len(operands) == 1:
        rounding = model.sum_error(*sums)
    elif len(operands) == 2:
        rounding = model.product_error(*sums, parts, _by_vector(z, n, operands))
    else:
        # Products of sums have structure. Their lengths add up to at most n.
        steps = len(operands) - 1
        worst = replace(model, random=False)
        sums = (n + steps, size, size + error, np.sqrt(sizes))
        rounding = steps * 1.01 * worst.product_error(*sums, parts, by_vector=True)
    error = np.where(size > model.largest, np.inf, error)
    sums_with_bound = Tracked(z, error + rounding + n * len(operands) * model.tiny, model)
    return with_infinities(sums_with_bound, function, operands)


@function(np.dot)
def _dot(a: Any, b: Any) -> Any:
    if not np.ndim(a) or not np.ndim(b):
        return a * b
    if np.ndim(a) > 2 or np.ndim(b) > 2:
        return _numpy.tensordot(a, b, (-1, -2))
    return a @ b


@function(np.inner)
def _inner(a: Any, b: Any) -> Any:
    x, y = all_tracked(a, b)
    return x * y if not x.ndim or not y.ndim else _numpy.tensordot(x, y, (-1, -1))


@function(np.outer)
def _outer(a: Any, b: Any) -> Any:
    return _numpy.reshape(a, (-1, 1)) * _numpy.reshape(b, (1, -1))


@function(np.kron)
def _kron(a: Any, b: Any) -> Any:
    x, y = all_tracked(a, b)
    dimensions = max(x.ndim, y.ndim)
    x, y = (factor.reshape((1,) * (dimensions - factor.ndim) + factor.shape) for factor in (x, y))
    spread = [(slice(None), None) * dimensions, (None, slice(None)) * dimensions]
    shape = tuple(m * n for m, n in zip(x.shape, y.shape, strict=True))
    return (x[spread[0]] * y[spread[1]]).reshape(shape)


@function(np.tensordot)
def _tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    x, y = all_tracked(a, b)
    if isinstance(axes, int):
        axes = (range(-axes, 0), range(axes))
    summed = [
        [d % factor.ndim for d in ((of,) if isinstance(of, int) else of)]
        for factor, of in zip((x, y), axes, strict=True)
    ]
    kept = [
        [d for d in range(factor.ndim) if d not in of]
        for factor, of in zip((x, y), summed, strict=True)
    ]
    n = math.prod(x.shape[d] for d in summed[0])
    shape = [x.shape[d] for d in kept[0]] + [y.shape[d] for d in kept[1]]
    rows = _numpy.transpose(x, kept[0] + summed[0]).reshape(-1, n)
    columns = _numpy.transpose(y, summed[1] + kept[1]).reshape(n, -1)
    return (rows @ columns).reshape(shape)


UFUNCS |= {
    np.vecdot: lambda m, x, y: (x.conj()[..., None, :] @ y[..., :, None])[..., 0, 0],
    np.matvec: lambda m, x, y: (x @ y[..., :, None])[..., 0],
    np.vecmat: lambda m, x, y: (x.conj()[..., None, :] @ y)[..., 0, :],
}


def _folded(function: Any, mode: str, *operands: Any) -> Tracked:
    tracked = all_tracked(*operands)
    n = min(map(len, tracked))
    return sums_of_products(functools.partial(function, mode=mode), tracked, n)


@function(np.convolve)
def _convolve(a: Any, v: Any, mode: str = "full") -> Tracked:
    return _folded(np.convolve, mode, a, v)


@function(np.correlate)
def _correlate(a: Any, v: Any, mode: str = "valid") -> Tracked:
    return _folded(np.correlate, mode, a, v)


@function(np.linalg.multi_dot)
def _multi_dot(arrays: Any) -> Any:
    """Any order of the products: the bound is that of a sum over all their lengths."""
    labels = "abcdefghijklmnopqrstuvwxyz"
    operands = all_tracked(*arrays)
    terms, at = [], 0
    for i, x in enumerate(operands):
        terms.append(labels[at] if x.ndim == 1 and i == 0 else labels[at : at + x.ndim])
        at += x.ndim - 1
    out = terms[0][: operands[0].ndim - 1] + terms[-1][1:]
    return _einsum(",".join(terms) + "->" + out, *operands)


@function(np.linalg.matrix_power)
def _matrix_power(a: Tracked, n: int) -> Any:
    if n < 1:
        raise UnknownOperationError("the error bound of matrix_power is known only from n=1 on")
    return a if n == 1 else _multi_dot([a] * n)


@function(np.polyval)
def _polyval(p: Any, x: Any) -> Any:
    p, x = all_tracked(p, x)
    value = p[0] + 0 * x
    for i in range(1, len(p)):
        value = value * x + p[i]
    return value


@function(np.vander)
def _vander(x: Tracked, N: Any = None, increasing: bool = False) -> Any:
    n = len(x) if N is None else N
    powers = _numpy.stack([x**i for i in range(n)], axis=-1)
    return powers if increasing else powers[..., ::-1]


FUNCTIONS |= {
    np.vdot: lambda a, b: _numpy.matmul(*all_tracked(_numpy.ravel(a).conj(), _numpy.ravel(b))),
    np.linalg.outer: lambda x1, x2, /: _outer(x1, x2),
    np.linalg.matmul: lambda x1, x2, /: _numpy.matmul(x1, x2),
}


@function(np.linalg.tensordot)
def _linalg_tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Any:
    return _tensordot(x1, x2, axes)


@function(np.linalg.vecdot)
def _linalg_vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    return _numpy.vecdot(_numpy.moveaxis(x1, axis, -1), _numpy.moveaxis(x2, axis, -1))
