"""What NumPy's functions do with Runs: the roundings of each, as a runtime usually makes them."""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ....arrays.dtypes import EXTENDED, as_dtype
from ..model import Model
from ..runs import COUNT, FAR, RULES, Runs, all_runs, as_runs, model_of
from ..tracked import FUNCTIONS, UnknownOperationError, _numpy
from .moves import JOINS, MOVES


def _aligned(*operands: Runs) -> list[np.ndarray]:
    """Arrays that broadcast as the operands do, behind the dimension of the runs."""
    ndim = max(x.ndim for x in operands)
    return [x.runs.reshape(-1, *(1,) * (ndim - x.ndim), *x.shape) for x in operands]


def each(function: Callable[..., Any], *operands: Runs) -> np.ndarray:
    """A function of the operands, run by run. The result is not writable: it is no view."""
    count = max(len(x.runs) for x in operands)
    result = np.stack([np.asarray(function(*(x.at(k) for x in operands))) for k in range(count)])
    result.flags.writeable = False
    return result


# Functions of elements.


def _unrounded(ufunc: Any) -> Any:
    def rule(*inputs: Any) -> Runs:
        operands = all_runs(*inputs)
        return Runs(ufunc(*_aligned(*operands)), model_of(*operands), operands[0].rounding)

    return rule


def _rounded(ufunc: Any) -> Any:
    def rule(*inputs: Any) -> Runs:
        operands = all_runs(*inputs)
        value, rounding = ufunc(*_aligned(*operands)), operands[0].rounding
        return rounding.of(value, _model_of_result(value, operands))

    return rule


def _model_of_result(value: np.ndarray, operands: tuple[Runs, ...]) -> Model | None:
    """That of the operands; a quotient of integers has the type of the program."""
    model = model_of(*operands)
    return operands[0].rounding.model if model is None and value.dtype.kind == "f" else model


def _function(ufunc: Any, name: str) -> Any:
    def rule(*inputs: Any) -> Runs:
        operands = all_runs(*inputs)
        value = ufunc(*_aligned(*operands)) * 1.0
        model = _model_of_result(value, operands)
        assert model is not None
        return operands[0].rounding.function(value, name, model)

    return rule


RULES |= {
    f: _unrounded(f)
    for f in (
        *(np.negative, np.positive, np.absolute, np.fabs, np.maximum, np.minimum, np.fmax, np.fmin),
        *(np.logical_and, np.logical_or, np.logical_not, np.logical_xor, np.bitwise_and),
        *(np.bitwise_or, np.invert, np.isnan, np.isinf, np.isfinite, np.conjugate),
    )
}
RULES |= {f: _rounded(f) for f in (np.add, np.subtract)}
_NAMES = {np.exp2: "exp", np.log2: "log", np.log10: "log", np.divide: "divide"}
RULES |= {
    f: _function(f, _NAMES.get(f, f.__name__))
    for f in (
        *(np.exp, np.exp2, np.expm1, np.log, np.log2, np.log10, np.log1p, np.sqrt, np.cbrt),
        *(np.sin, np.cos, np.tan, np.tanh, np.sinh, np.cosh, np.arctan, np.arctan2, np.hypot),
        *(np.arcsin, np.arccos, np.arcsinh, np.arccosh, np.arctanh, np.divide),
    )
}


def _multiply(x: Any, y: Any) -> Runs:
    if any(np.ndim(z) == 0 and not isinstance(z, Runs) and _is_power_of_two(z) for z in (x, y)):
        return _unrounded_multiply(x, y)
    return _rounded_multiply(x, y)


_unrounded_multiply, _rounded_multiply = _unrounded(np.multiply), _rounded(np.multiply)


def _is_power_of_two(x: Any) -> bool:
    return not np.iscomplexobj(x) and abs(math.frexp(float(x))[0]) == 0.5


def _power(x: Any, y: Any) -> Runs:
    """A product for small whole powers; else ``exp(y log x)``."""
    if not isinstance(y, Runs) and np.ndim(y) == 0:
        if y == 0.5:
            return _numpy.sqrt(x)
        if y == int(y) and 1 <= abs(y) <= 4:
            product = functools.reduce(_multiply, [x] * abs(int(y)))
            return product if y > 0 else 1.0 / product
    base, exponent = all_runs(x, y)
    value = np.power(*_aligned(base, exponent))
    with np.errstate(all="ignore"):
        logarithm = np.abs(np.log(np.abs(base.runs[:1])) * np.ones(1))
    model = _model_of_result(value, (base, exponent))
    assert model is not None
    size = _aligned(Runs(logarithm, model, base.rounding), exponent)
    slope = np.nan_to_num(size[0][0] * np.abs(size[1][0]), posinf=0.0)
    moved = base.rounding.spread(value, np.abs(value[0]) * slope * model.inner_roundoff)
    return base.rounding.function(moved, "exp", model)


def _logaddexp(x: Any, y: Any) -> Runs:
    return _numpy.maximum(x, y) + _numpy.log1p(_numpy.exp(-_numpy.abs(x - y)))


RULES |= {
    np.multiply: _multiply,
    np.power: _power,
    np.square: lambda x: _multiply(x, x),
    np.reciprocal: lambda x: 1.0 / x,
    np.logaddexp: _logaddexp,
}


# Branches: where errors may turn a comparison, the runs take its outcomes in turn.


def _deviation(x: Runs) -> Any:
    """The standard deviation of each element over the runs, from run 0."""
    if x.exact:
        return np.zeros(x.shape)
    with np.errstate(all="ignore"):
        apart = np.square(x.runs[1:] - x.runs[0]).mean(axis=0)
    return np.sqrt(np.where(np.isfinite(apart), apart, 0.0))


def _compared(ufunc: Any) -> Any:
    def rule(*inputs: Any) -> Runs:
        operands = all_runs(*inputs)
        x, y = _aligned(*operands)
        result, rounding = ufunc(x, y), operands[0].rounding
        if len(result) == 1 or model_of(*operands) is None:
            return Runs(result, None, rounding)
        far = np.hypot(*(_deviation(Runs(z, None, rounding)) for z in (x, y)))
        is_open = (np.abs(x[0] * 1.0 - y[0]) <= FAR * far) & (far > 0)
        count = int(np.count_nonzero(is_open))
        if count:
            rounding.undecided += count
            turned = np.arange(COUNT).reshape(-1, *(1,) * is_open.ndim) % 2 == 0
            random = rounding.uniform((COUNT, *is_open.shape)) > 0
            result[1:] = np.where(is_open, random ^ turned, result[1:])
        return Runs(result, None, rounding)

    return rule


RULES |= {
    f: _compared(f)
    for f in (np.greater, np.greater_equal, np.less, np.less_equal, np.equal, np.not_equal)
}


def _arg_extreme(sign: float) -> Any:
    """The rule of argmax or argmin: the runs take every element that may be the one."""

    def rule(a: Runs, axis: Any = None, out: Any = None, *, keepdims: bool = False) -> Runs:
        if axis is None:
            a, axis = a.reshape(-1), 0
        value = np.moveaxis(sign * a.runs[0], axis, -1)
        width = np.moveaxis(_deviation(a), axis, -1)
        order = np.argsort(-value, axis=-1, kind="stable")
        sorted_value, sorted_width = (np.take_along_axis(x, order, -1) for x in (value, width))
        reach = FAR * np.hypot(sorted_width, sorted_width[..., :1])
        may_be = (sorted_value[..., :1] - sorted_value <= reach) & (reach > 0)
        count = 1 + np.count_nonzero(may_be[..., 1:], axis=-1)
        if np.max(count, initial=1) > COUNT:
            raise UnknownOperationError("more elements may be the largest than there are runs")
        # Those that may be the one come first, in the order of their size.
        places = np.argsort(~may_be[..., 1:], axis=-1, kind="stable") + 1
        places = np.concatenate([np.zeros((*count.shape, 1), np.int64), places], axis=-1)
        a.rounding.undecided += int(np.count_nonzero(count > 1))
        chosen = [
            np.take_along_axis(order, np.take_along_axis(places, which[..., None], -1), -1)
            for which in [np.zeros_like(count), *(k % count for k in range(COUNT))]
        ]
        result = np.moveaxis(np.stack(chosen), -1, axis % a.ndim + 1)
        result = result if keepdims else np.squeeze(result, axis % a.ndim + 1)
        return Runs(result[:1] if a.exact else result, None, a.rounding)

    return rule


RULES |= {np.argmax: _arg_extreme(1.0), np.argmin: _arg_extreme(-1.0)}


def _where(condition: Any, x: Any = None, y: Any = None) -> Runs:
    if x is None or y is None:
        raise UnknownOperationError("no typical rounding is known for numpy.where of one argument")
    chosen = [z for z in (condition, x, y) if isinstance(z, Runs)]
    model, rounding = model_of(x, y), chosen[0].rounding
    operands = [as_runs(z, model, rounding) for z in (condition, x, y)]
    return Runs(np.where(*_aligned(*operands)), model_of(*operands[1:]), rounding)


RULES[np.where] = _where


# Sums and extremes along dimensions.


def repeats(x: Any, model: Model) -> Any:
    """How often a number of a sum repeats, in the mean over its numbers that are not zero.

    Args:
        x: The numbers, along the last dimension. Numbers whose distance is below the rounding of
            their norm are the same.
        model: Rounding model of the sum.
    """
    ordered = np.sort(np.where(x == 0, np.inf, x), axis=-1)
    unit = model.sum_roundoff * np.sqrt(np.square(x).sum(axis=-1, keepdims=True))
    with np.errstate(all="ignore"):
        distinct = np.count_nonzero(np.diff(ordered, axis=-1) > unit, axis=-1)
    zeros = np.count_nonzero(x == 0, axis=-1)
    count, last = x.shape[-1] - zeros, zeros == 0
    return np.maximum(count, 1) / np.maximum(distinct + last, 1)


def _behind(x: np.ndarray, axis: Any) -> np.ndarray:
    """An array whose dimensions `axis` are one, the last."""
    axes = tuple(range(x.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    axes = tuple(d % x.ndim for d in axes)
    own = [n for d, n in enumerate(x.shape) if d not in axes]
    moved = np.moveaxis(x, axes, range(x.ndim - len(axes), x.ndim))
    return moved.reshape(*own, math.prod(x.shape[d] for d in axes))


def _sum(
    a: Runs,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    *,
    mean: bool = False,
) -> Runs:
    if dtype is not None and np.dtype(dtype).kind != "f":
        raise UnknownOperationError(f"no typical rounding is known for a sum in {dtype}")
    value = each(lambda x: np.sum(x, axis=axis, keepdims=keepdims), a)
    if a.model is None and not mean:
        return Runs(value, None, a.rounding)
    model, line = a.model or a.rounding.model, _behind(a.runs[0] * 1.0, axis)
    shape, count = value.shape[1:], line.shape[-1]
    return a.rounding.sums(
        value * 1.0,
        count,
        np.square(line).sum(axis=-1).reshape(shape),
        model,
        repeated=repeats(line, model).reshape(shape) if count else 1.0,
        divisor=count if mean else 1,
    )


def _mean(
    a: Runs, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False
) -> Runs:
    return _sum(a, axis, dtype, out, keepdims, mean=True)


def _cumsum(a: Runs, axis: Any = None, dtype: Any = None, out: Any = None) -> Runs:
    if axis is None:
        a, axis = a.reshape(-1), 0
    value, model = each(lambda x: np.cumsum(x, axis=axis), a), a.model
    if model is None:
        return Runs(value, None, a.rounding)
    line = np.moveaxis(value[0], axis, -1)
    again = np.expand_dims(repeats(np.moveaxis(a.runs[0], axis, -1), model), -1)
    walk = np.cumsum(np.square(line), axis=-1) * again
    deviation = model.sum_roundoff * np.sqrt(np.moveaxis(walk, -1, axis) / 3)
    return a.rounding.of(a.rounding.spread(value, deviation), model)


def _extreme(function: Any) -> Any:
    def rule(a: Runs, axis: Any = None, out: Any = None, keepdims: bool = False) -> Runs:
        value = each(lambda x: function(x, axis=axis, keepdims=keepdims), a)
        return Runs(value, a.model, a.rounding)

    return rule


def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    if ord not in (None, 2) or (ord == 2 and axis is None and x.ndim > 1) or type(axis) is tuple:
        raise UnknownOperationError("no typical rounding is known for this norm")
    return _numpy.sqrt(_sum(x * x, axis, keepdims=keepdims))


RULES |= {f: _extreme(f) for f in (np.max, np.min, np.amax, np.amin, np.any, np.all)}
RULES |= {np.sum: _sum, np.mean: _mean, np.cumsum: _cumsum}
RULES[np.linalg.norm] = _norm
RULES[np.sort] = lambda a, axis=-1: Runs(each(lambda x: np.sort(x, axis), a), a.model, a.rounding)


# Sums of products.


def _product(f: Callable[..., Any], x: Any, y: Any, count: int, repeated: Any) -> Runs:
    """A bilinear function, whose results sum `count` products."""
    a, b = all_runs(x, y)
    value, model = each(f, a, b), model_of(a, b)
    if model is None:
        return Runs(value, None, a.rounding)
    short = model.sum_roundoff != model.roundoff and model.partials == 1
    vector = value[0].size * count in (a.size, b.size)
    squares: Any = 0.0
    if not short or count >= _LONG or (vector and model.rounds_products):
        squares = f(np.square(a.runs[0]), np.square(b.runs[0]))
        repeated = repeated(a.runs[0] * 1.0, b.runs[0] * 1.0, model)
    else:
        repeated = 1.0
    how: dict[str, Any] = {"repeated": repeated, "vector": vector}
    return a.rounding.sums(value * 1.0, count, squares, model, **how)


_LONG = 2**14
"""Shorter sums in float32 err much less than the short type that their results are rounded to."""


def _matmul(x: Any, y: Any) -> Runs:
    def repeated(a: np.ndarray, b: np.ndarray, model: Model) -> Any:
        rows = repeats(a, model)
        columns = repeats(np.swapaxes(b, -1, -2) if b.ndim > 1 else b, model)
        if a.ndim > 1 and b.ndim > 1:
            rows, columns = rows[..., :, None], columns[..., None, :]
        return np.minimum(rows, columns)

    return _product(np.matmul, x, y, np.shape(x)[-1], repeated)


def _least_of_all(a: np.ndarray, b: np.ndarray, model: Model) -> Any:
    """The most that numbers of both factors repeat, whichever they are summed with."""
    return min(float(np.max(repeats(x.reshape(1, -1), model), initial=1.0)) for x in (a, b))


def _einsum(subscripts: Any, *operands: Any, optimize: Any = True, out: Any = None) -> Runs:
    if not isinstance(subscripts, str) or len(operands) > 2:
        raise UnknownOperationError("no typical rounding is known for this numpy.einsum")
    spec = subscripts.replace(" ", "")
    labels, _, result = spec.partition("->")
    if "->" not in spec:
        result = "".join(sorted(c for c in labels if labels.count(c) == 1 and c.isalpha()))
    sizes: dict[str, int] = {}
    for part, x in zip(labels.split(","), operands, strict=True):
        head, dots, tail = part.partition("...")
        sizes |= dict(zip(head, np.shape(x), strict=False))
        sizes |= dict(zip(tail[::-1], np.shape(x)[::-1], strict=False)) if dots else {}
    count = math.prod(n for c, n in sizes.items() if c not in result)
    if len(operands) == 1:
        return _product(lambda a, b: np.einsum(spec, a) * b, operands[0], 1, count, _least_of_all)
    x, y = operands
    return _product(lambda a, b: np.einsum(spec, a, b, optimize=True), x, y, count, _least_of_all)


RULES |= {np.matmul: _matmul, np.einsum: _einsum}


# Conversions and moves.


def _astype(x: Runs, dtype: Any, *, copy: bool = True) -> Runs:
    """At most one rounding: compilers leave out conversions there and back.

    No type is longer than that of the program: it may compute in its own what the oracle computes
    in a longer one.
    """
    kind = np.dtype(dtype) if str(dtype) not in EXTENDED else as_dtype(dtype)
    if kind.kind == "b":
        return _numpy.not_equal(x, 0)
    if kind.kind not in "f" and kind.name not in EXTENDED:
        raise UnknownOperationError(f"no typical rounding is known for conversion to {kind}")
    program = x.rounding.model
    wanted = program.cast(kind)
    if x.model is not None and wanted.roundoff <= x.model.roundoff:
        return Runs(x.runs.copy(), wanted, x.rounding)
    if not x.exact:
        return x.rounding.of(x.runs * 1.0, wanted)
    value = x.runs.astype(wanted.dtype).astype(np.float64)  # exact data are rounded as stated
    return Runs(value, wanted, x.rounding)


def _moved(move: Callable[..., Any]) -> Any:
    def rule(x: Runs, *args: Any, **options: Any) -> Any:
        first = move(x.runs[0], *args, **options)
        if not isinstance(first, (list, tuple)):
            return Runs(each(lambda a: move(a, *args, **options), x), x.model, x.rounding)
        return type(first)(
            Runs(each(lambda a, i=i: move(a, *args, **options)[i], x), x.model, x.rounding)
            for i in range(len(first))
        )

    return rule


def _joined(join: Callable[..., Any]) -> Any:
    def rule(arrays: Any, *args: Any, **options: Any) -> Runs:
        parts = all_runs(*arrays)
        value = each(lambda *x: join(x, *args, **options), *parts)
        return Runs(value, model_of(*parts), parts[0].rounding)

    return rule


def _picked(pick: Any) -> Any:
    def rule(a: Any, indices: Any, axis: Any = None, **how: Any) -> Runs:
        array, places = all_runs(a, indices)
        value = each(lambda x, i: pick(x, i, axis, **how), array, places)
        return Runs(value, array.model, array.rounding)

    return rule


def _take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Runs:
    return _picked(np.take_along_axis)(arr, indices, axis)


def _pad(array: Runs, pad_width: Any, mode: str = "constant", **options: Any) -> Any:
    return _moved(np.pad)(array, pad_width, mode=mode, **options)


def _like(make: Any) -> Any:
    """The rule of a function that makes constants; all runs, as in `Runs.copy`."""

    def rule(a: Runs, *args: Any, dtype: Any = None, **options: Any) -> Any:
        value = np.asarray(make(a.runs[0], *args, **options), np.float64)
        made = Runs(np.repeat(value[None], COUNT + 1, axis=0), a.model, a.rounding)
        return made if dtype is None else made.astype(dtype)

    return rule


RULES |= {f: _moved(f) for f in MOVES} | {f: _joined(f) for f in JOINS}
RULES |= {f: _like(f) for f in (np.zeros_like, np.ones_like, np.empty_like)}
RULES |= {
    f: lambda a, f=f: f(a.runs[0])
    for f in (np.shape, np.ndim, np.size, np.iscomplexobj, np.isrealobj)
}
RULES |= {
    np.astype: _astype,
    np.copy: lambda a: a.copy(),
    np.take: _picked(np.take),
    np.take_along_axis: _take_along_axis,
    np.pad: _pad,
    np.real: lambda val: val,
}

# Composed of other operations, whose rules say how they round.
COMPOSED: tuple[Any, ...] = (np.clip, np.select, np.ptp, np.var, np.std, np.dot, np.outer)
RULES |= {f: FUNCTIONS[f] for f in COMPOSED}
