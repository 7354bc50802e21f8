"""Error bounds of elementwise operations.

``e`` is the error that a result inherits from its operands: the largest |f(x') - f(x)| for
|x' - x| up to the bound of x. `rounded` adds the operation's own rounding.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from .accuracy import Accuracy
from .model import Model
from .tracked import (
    FUNCTIONS,
    UFUNCS,
    Certain,
    Tracked,
    UnknownOperationError,
    _numpy,
    as_tracked,
    is_finite,
    rounded,
)


def _rule(*ufuncs: np.ufunc) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        for ufunc in ufuncs:
            UFUNCS[ufunc] = rule
        return rule

    return register


def _real_only(name: str, x: Tracked) -> None:
    if np.iscomplexobj(x.value):
        raise UnknownOperationError(f"no error bound is known for {name} of complex numbers")


def _computed(
    value: Any, error: Any, accuracy: Accuracy, m: Model, certain: Certain | None = None
) -> Tracked:
    """The result of a function of this accuracy; `error` is inherited from its operands."""
    result = rounded(value, error, accuracy.relative, m, certain)
    if not accuracy.absolute:
        return result
    return Tracked(result.value, result.bound + accuracy.absolute * np.isfinite(value), m)


@_rule(np.add)
def _add(m: Model, x: Tracked, y: Tracked) -> Tracked:
    return rounded(x.value + y.value, x.narrow + y.narrow, m.roundoff, m, _infinite_term(x, y))


@_rule(np.subtract)
def _subtract(m: Model, x: Tracked, y: Tracked) -> Tracked:
    return rounded(x.value - y.value, x.narrow + y.narrow, m.roundoff, m, _infinite_term(x, y))


def _infinite_term(x: Tracked, y: Tracked) -> Callable[[], Any]:
    """Where an infinite sum is so because of an operand that is certainly infinite."""
    return lambda: (np.isinf(x.value) | np.isinf(y.value)) & is_finite(x) & is_finite(y)


def _infinite_factor(x: Tracked, y: Tracked) -> Callable[[], Any]:
    """The same for a product, whose other factor has a certain sign."""
    return lambda: (
        _infinite_term(x, y)() & (np.abs(x.value) > x.bound) & (np.abs(y.value) > y.bound)
    )


def _infinite_quotient(x: Tracked, y: Tracked) -> Callable[[], Any]:
    """The same for an infinite dividend, or a divisor that is exactly zero."""

    def certain() -> Any:
        zero = (y.value == 0) & (y.bound == 0)
        signed = (np.abs(x.value) > x.bound) & ((np.abs(y.value) > y.bound) | zero)
        return (np.isinf(x.value) | zero) & is_finite(x) & is_finite(y) & signed

    return certain


@_rule(np.multiply)
def _multiply(m: Model, x: Tracked, y: Tracked) -> Tracked:
    z = x.value * y.value
    if x is y:
        e = _share(x, 2 * x.narrow) + np.square(x.narrow)
    else:
        e = _share(x, y.narrow) + x.narrow * y.narrow + _share(y, x.narrow)
    return rounded(z, e, m.multiply(np.iscomplexobj(z)), m, _infinite_factor(x, y))


def _share(x: Tracked, error: np.ndarray) -> np.ndarray:
    """The error of a product from the other factor's error, which most constants lack."""
    return np.abs(x.value) * error if error.any() else np.zeros(())


@_rule(np.square)
def _square(m: Model, x: Tracked) -> Tracked:
    return _multiply(m, x, x)


@_rule(np.divide)
def _divide(m: Model, x: Tracked, y: Tracked) -> Tracked:
    z = x.value / y.value
    left = np.abs(y.value) - y.bound  # how near to zero the divisor may be
    if np.all(left > 0):
        scale = 1 / left
        e = np.abs(z)
        e = e * (y.bound * scale) + x.narrow * scale
    else:
        e = np.where(left > 0, (x.bound + np.abs(z) * y.bound) / left, np.inf)
    return _computed(z, e, m.function("divide", np.iscomplexobj(z)), m, _infinite_quotient(x, y))


@_rule(np.reciprocal)
def _reciprocal(m: Model, x: Tracked) -> Tracked:
    return _divide(m, Tracked(np.ones(()), 0.0, m), x)


@_rule(np.power)
def _power(m: Model, x: Tracked, y: Tracked) -> Tracked:
    n = y.value.item() if y.value.ndim == 0 else None
    if n == 0.5:
        return _sqrt(m, x)
    if n not in (1, 2, 3, 4):
        raise UnknownOperationError(
            "error bounds are known only for the powers 1/2, 1, 2, 3 and 4; use one of them"
        )
    result = x
    for _ in range(int(n) - 1):
        result = _multiply(m, result, x)
    return result


@_rule(np.negative)
def _negative(m: Model, x: Tracked) -> Tracked:
    return Tracked(-x.value, x.bound, m)


@_rule(np.positive)
def _positive(_: Model, x: Tracked) -> Tracked:
    return x


@_rule(np.conjugate)
def _conjugate(m: Model, x: Tracked) -> Tracked:
    return Tracked(np.conjugate(x.value), x.bound, m)


@_rule(np.absolute)
def _absolute(m: Model, x: Tracked) -> Tracked:
    z = np.abs(x.value)
    if x.value.dtype.kind == "c":
        return _computed(z, x.bound, m.function("hypot"), m)
    return Tracked(z, x.bound, m)


@_rule(np.maximum)
def _maximum(m: Model, x: Tracked, y: Tracked) -> Tracked:
    return _extreme_of(np.maximum, (x, y), np.maximum, m)


@_rule(np.minimum)
def _minimum(m: Model, x: Tracked, y: Tracked) -> Tracked:
    return _extreme_of(np.minimum, (x, y), np.maximum, m)


def _extreme_of(function: Any, operands: tuple[Tracked, ...], largest: Any, m: Model) -> Tracked:
    """A result that grows with each operand: it lies between those of their ends.

    Args:
        function: The function of the operands' values.
        operands: Its operands.
        largest: The largest bound of the operands of each element, by the bounds: no error of the
            result is larger.
        m: Rounding model of the runtime.
    """
    z = function(*(x.value for x in operands))
    most = largest(*(x.bound for x in operands))
    if not any(x.narrow.any() for x in operands):
        return Tracked(z, most, m)
    high = function(*(x.value + x.bound for x in operands))
    low = function(*(x.value - x.bound for x in operands))
    # The oracle rounds the ends and their differences.
    error = np.maximum(high - z, z - low) + 2.0**-50 * np.abs(z)
    bound = np.minimum(most, np.where(np.isnan(error), np.inf, error))
    return Tracked(z, np.where((high == low) & np.isinf(z), 0.0, bound), m)


@_rule(np.exp)
def _exp(m: Model, x: Tracked) -> Tracked:
    z = np.exp(x.value)
    accuracy = m.function("exp", np.iscomplexobj(z))
    return _computed(z, _exp_error(x, np.abs(z)), accuracy, m, _overflow(x))


def _exp_error(x: Tracked, size: np.ndarray) -> np.ndarray:
    """At least exp(x + b) - exp(x); the polynomial costs a tenth of the function."""
    if x.narrow.max(initial=0.0) <= 1:
        return size * (x.narrow * (1 + x.narrow))
    # Of a masked element the bound is large and the exponential 0, as it is at x + b.
    grown = np.exp(x.value.real + x.bound) - size
    return np.where(x.bound <= 1, size * (x.bound * (1 + x.bound)), grown)


def _overflow(x: Tracked) -> Callable[[], Any]:
    """Where an exponential overflows for every value that its operand may have."""
    return lambda: np.isinf(np.exp(x.value - x.bound))


@_rule(np.expm1)
def _expm1(m: Model, x: Tracked) -> Tracked:
    _real_only("expm1", x)
    e = _exp_error(x, np.exp(x.value))
    return _computed(np.expm1(x.value), e, m.function("expm1"), m, _overflow(x))


@_rule(np.log)
def _log(m: Model, x: Tracked) -> Tracked:
    _real_only("log", x)
    e = _log_error(x.bound, np.abs(x.value))
    return _computed(np.log(x.value), e, m.function("log"), m, lambda: x.bound == 0)


@_rule(np.log1p)
def _log1p(m: Model, x: Tracked) -> Tracked:
    _real_only("log1p", x)
    e = _log_error(x.bound, np.abs(1 + x.value))
    return _computed(np.log1p(x.value), e, m.function("log1p"), m, lambda: x.bound == 0)


def _log_error(bound: np.ndarray, size: np.ndarray) -> np.ndarray:
    """|log(x') - log(x)| is largest at the end nearer to zero."""
    return np.where(bound < size, -np.log1p(-bound / size), np.inf)


@_rule(np.sqrt)
def _sqrt(m: Model, x: Tracked) -> Tracked:
    _real_only("sqrt", x)
    z = np.sqrt(x.value)
    # |sqrt(x') - sqrt(x)| = |x' - x| / (sqrt(x') + sqrt(x)), and at most sqrt(|x' - x|).
    least = np.sqrt(np.maximum(x.value - x.bound, 0)) + z
    e = np.minimum(np.where(least > 0, x.bound / least, np.inf), np.sqrt(x.bound))
    return _computed(z, e, m.function("sqrt"), m, lambda: x.bound == 0)


def _of_slope_one(name: str, ufunc: np.ufunc) -> None:
    """Functions of a real number whose derivative is nowhere larger than 1."""

    @_rule(ufunc)
    def rule(m: Model, x: Tracked) -> Tracked:
        _real_only(name, x)
        return _computed(ufunc(x.value), x.narrow, m.function(name), m)


for _name in ("tanh", "sin", "cos", "arctan"):
    _of_slope_one(_name, getattr(np, _name))


@_rule(np.hypot)
def _hypot(m: Model, x: Tracked, y: Tracked) -> Tracked:
    return _computed(np.hypot(x.value, y.value), x.bound + y.bound, m.function("hypot"), m)


def _comparison(ufunc: np.ufunc) -> None:
    """Register a comparison: 0 or 1, with a bound of 1 where the errors leave it undecided."""

    @_rule(ufunc)
    def rule(m: Model, x: Tracked, y: Tracked) -> Tracked:
        # With a bound of zero the result is certain, even for equal numbers.
        slack = x.bound + y.bound
        is_open = ~(np.abs(x.value - y.value) > slack) & (slack > 0)
        return Tracked(ufunc(x.value, y.value).astype(np.float64), is_open.astype(np.float64), m)


for _ufunc in (np.greater, np.greater_equal, np.less, np.less_equal):
    _comparison(_ufunc)


def _moved(function: Any) -> Any:
    """The rule of a function of one array that only moves elements."""

    def rule(x: Tracked, *args: Any, **options: Any) -> Tracked:
        return Tracked(
            function(x.value, *args, **options), function(x.bound, *args, **options), x.model
        )

    return rule


def _joined(function: Any) -> Any:
    """The rule of a function that joins a sequence of arrays."""

    def rule(arrays: Any, *args: Any, **options: Any) -> Tracked:
        model = next(x.model for x in arrays if isinstance(x, Tracked))
        parts = [as_tracked(x, model) for x in arrays]
        return Tracked(
            function([x.value for x in parts], *args, **options),
            function([x.bound for x in parts], *args, **options),
            model,
        )

    return rule


def _extreme(function: Any) -> Any:
    """The rule of a maximum or minimum along dimensions."""

    def rule(x: Tracked, axis: Any = None, *, keepdims: bool = False) -> Tracked:
        how = {"axis": axis, "keepdims": keepdims}
        largest = functools.partial(_numpy.max, **how)
        return _extreme_of(functools.partial(function, **how), (x,), largest, x.model)

    return rule


def _sort(x: Tracked, axis: int = -1, *, kind: str | None = None) -> Tracked:
    def largest(bound: np.ndarray) -> np.ndarray:
        return np.broadcast_to(np.max(bound, axis=axis, keepdims=True), x.shape)

    return _extreme_of(functools.partial(np.sort, axis=axis), (x,), largest, x.model)


def _where(condition: Any, x: Any, y: Any) -> Tracked:
    model = next(a.model for a in (condition, x, y) if isinstance(a, Tracked))
    x, y = as_tracked(x, model), as_tracked(y, model)
    if not isinstance(condition, Tracked):
        return Tracked(
            np.where(condition, x.value, y.value), np.where(condition, x.bound, y.bound), model
        )
    truth = condition.value != 0
    # Where the comparison is undecided, the result may be the other operand.
    apart = np.where(x.value == y.value, 0.0, np.abs(x.value - y.value))
    other = apart + np.maximum(x.bound, y.bound)
    bound = np.where(condition.bound > 0, other, np.where(truth, x.bound, y.bound))
    bound = np.where(np.isnan(bound), np.inf, bound)
    return Tracked(np.where(truth, x.value, y.value), bound, model)


def _pad(x: Tracked, widths: Any, mode: str = "constant") -> Tracked:
    return _moved(np.pad)(x, widths, mode=mode)


def _part(function: Any) -> Any:
    """The rule of a real or imaginary part: its error is at most that of the number."""
    return lambda x: Tracked(function(x.value), x.bound, x.model)


def _like(function: Any) -> Any:
    """The rule of a function that makes constants of an array's shape, as plain arrays."""
    return lambda x, *args, **options: function(x.value, *args, **options)


FUNCTIONS |= {
    f: _moved(f)
    for f in (
        np.transpose,
        np.swapaxes,
        np.moveaxis,
        np.reshape,
        np.ravel,
        np.squeeze,
        np.expand_dims,
        np.broadcast_to,
        np.roll,
        np.flip,
        np.take,
        np.tile,
        np.repeat,
        np.triu,
        np.tril,
        np.diagonal,
        np.rot90,
    )
}
FUNCTIONS |= {f: _joined(f) for f in (np.concatenate, np.stack, np.vstack, np.hstack)}
FUNCTIONS |= {f: _extreme(f) for f in (np.max, np.min)}
FUNCTIONS |= {f: _like(f) for f in (np.zeros_like, np.ones_like, np.full_like)}
FUNCTIONS |= {f: lambda x, f=f: f(x.value) for f in (np.shape, np.ndim, np.size)}
FUNCTIONS |= {np.sort: _sort, np.where: _where, np.pad: _pad}
FUNCTIONS |= {f: _part(f) for f in (_numpy.real, _numpy.imag)}
