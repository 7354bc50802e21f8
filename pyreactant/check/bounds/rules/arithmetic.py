"""The rounding of an operation, for all rules; sums, products, quotients and powers of elements.

`rounded`, `bounded` and `computed` give the bound of a result. ``e`` is the error that it inherits
from its operands: the largest |f(x') - f(x)| for |x' - x| up to the bound of x. `rounded` adds the
operation's own rounding.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..model import Accuracy, Model
from ..tracked import (
    FUNCTIONS,
    UFUNCS,
    Tracked,
    UnknownOperationError,
    _numpy,
    all_tracked,
    rule,
    rule_of_each,
)

Certain = Callable[[], Any]
"""Where an infinite value is the only one that the operands' errors allow."""


def rounded(
    value: Any, error: Any, relative: float, model: Model, certain: Certain | None = None
) -> Tracked:
    """A result with the error inherited from its operands and one rounding of its own.

    Integers and booleans are not rounded, but a program may compute the integers of an oracle as
    floats, which are exact only up to 2^p.
    """
    value = np.asarray(value)
    if value.dtype.kind in "biu":
        size = np.abs(value.astype(np.float64))
        beyond = np.where(size * model.sum_roundoff > 1, relative * size, 0.0)
        return Tracked(value, error + beyond, model)
    # relative * (|value| + error) + error + tiny; `error` may be narrow.
    bound = np.asarray(np.abs(value))
    bound *= relative
    grown = error * (1 + relative)
    grown += model.tiny
    bound += grown
    # Then |value| + bound is below the largest number, and nothing is NaN or infinite.
    if bound.max(initial=0.0) < relative * model.largest / 2:
        return Tracked(value, bound, model)
    return bounded(value, bound, model, certain)


def bounded(value: Any, bound: Any, model: Model, certain: Certain | None = None) -> Tracked:
    """A result whose bound is infinite where it cannot be computed or the runtime may overflow.

    Args:
        value: Exact values.
        bound: Their bounds; NaN where the computation of a bound failed.
        model: Rounding model of the runtime.
        certain: Where an infinite value cannot be another; its bound is 0 there. None: nowhere.
    """
    value = np.asarray(value)
    reach = np.abs(value) + bound
    known = reach <= model.largest  # False for NaN
    if np.all(known):
        return Tracked(value, bound, model)
    bound = np.where(known, bound, np.inf)
    if certain is not None and value.dtype.kind == "f":
        bound = np.where(np.isinf(value) & certain(), 0.0, bound)
    return Tracked(value, bound, model)


def computed(
    value: Any, error: Any, accuracy: Accuracy, m: Model, certain: Certain | None = None
) -> Tracked:
    """The result of a function of this accuracy; `error` is inherited from its operands."""
    result = rounded(value, error, accuracy.relative, m, certain)
    if not accuracy.absolute:
        return result
    return Tracked(result.value, result.bound + accuracy.absolute * np.isfinite(value), m)


def is_finite(x: Tracked) -> Any:
    """Where the bound of an operand is finite."""
    return np.isfinite(x.bound)


def unshared(x: Tracked) -> np.ndarray:
    """The bound of an array for a result with other values, so that neither changes the other."""
    return x.bound.copy() if x.bound.flags.writeable else x.bound


def real_only(name: str, *operands: Tracked) -> None:
    """Refuse complex operands.

    Raises:
        UnknownOperationError: An operand is complex.
    """
    if any(np.iscomplexobj(x.value) for x in operands):
        raise UnknownOperationError(f"no error bound is known for {name} of complex numbers")


@rule_of_each(np.add, np.subtract)
def _add(ufunc: np.ufunc, m: Model, x: Tracked, y: Tracked) -> Tracked:
    z = ufunc(x.value, y.value)
    return rounded(z, x.narrow + y.narrow, m.roundoff, m, _infinite_term(x, y))


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


@rule(np.multiply)
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


@rule(np.divide)
def _divide(m: Model, x: Tracked, y: Tracked) -> Tracked:
    z = x.value / y.value
    left = np.abs(y.value) - y.bound  # how near to zero the divisor may be
    if np.all(left > 0):
        scale = 1 / left
        e = np.abs(z)
        e = e * (y.bound * scale) + x.narrow * scale
    else:
        e = np.where(left > 0, (x.bound + np.abs(z) * y.bound) / left, np.inf)
    return computed(z, e, m.function("divide", np.iscomplexobj(z)), m, _infinite_quotient(x, y))


def _reciprocal(m: Model, x: Tracked) -> Tracked:
    return _divide(m, Tracked(np.ones(()), 0.0, m), x)


@rule(np.power)
def _power(m: Model, x: Tracked, y: Tracked) -> Tracked:
    base = x.value
    if base.ndim == 0 and y.value.ndim and base.dtype.kind == "f" and base > 0:
        return _power_of_constant(m, x, y)
    n = y.value.item() if y.value.ndim == 0 and not y.bound.any() else None
    if n == 0.5:
        return _numpy.sqrt(x)
    if isinstance(n, (int, float)) and n == int(n) and abs(n) <= _LARGEST_POWER:
        return _integer_power(m, x, int(n))
    if np.iscomplexobj(x.value) or np.iscomplexobj(y.value):
        raise UnknownOperationError(
            "error bounds of complex numbers are known only for whole powers up to "
            f"{_LARGEST_POWER}; use one of them"
        )
    return _real_power(m, x, y)


_LARGEST_POWER = 64


def _power_of_constant(m: Model, x: Tracked, y: Tracked) -> Tracked:
    """A positive constant to the power of an array, as ``exp(y log(x))``."""
    base = x.value
    z, slope = np.power(base, y.value), np.abs(np.log(base))
    # The product y log(x) is rounded once or twice, and its error is relative in the result.
    moved = slope * y.narrow + np.abs(y.value) * x.bound / base
    relative = m.function("exp").relative + 4 * m.roundoff * np.max(slope * np.abs(y.value))
    return rounded(z, z * np.expm1(moved), float(relative), m)


def _integer_power(m: Model, x: Tracked, n: int) -> Tracked:
    """Products one after the other: no order of them rounds more. Beyond 4 also a real power."""
    if n < 0:
        return _reciprocal(m, _integer_power(m, x, -n))
    if n == 0:
        return Tracked(np.ones(x.shape, x.value.dtype), np.zeros(x.shape), m)
    result = x
    for _ in range(n - 1):
        result = _multiply(m, result, x)
    if n > 4 and not np.iscomplexobj(x.value):
        other = _real_power(m, x, Tracked(np.asarray(float(n)), 0.0, m))
        bound = np.fmax(result.bound, np.where(x.value == 0, 0.0, other.bound))
        return Tracked(result.value, bound, m)
    return result


def _real_power(m: Model, x: Tracked, y: Tracked) -> Tracked:
    """As exp(y log x); the sign of a negative number's power is exact."""
    value = np.power(x.value.astype(np.float64), y.value)
    size = _numpy.exp(y * _numpy.log(_numpy.abs(x)))
    open_sign = (np.abs(x.value) <= x.bound) & (x.bound > 0)
    bound = np.where(open_sign, np.inf, size.bound + np.abs(size.value - np.abs(value)))
    exact = (x.value == 0) & (y.value > y.bound) | (y.value == 0) & (y.bound == 0)
    bound = np.where(exact & ~open_sign, 0.0, bound)
    return Tracked(value, np.where(np.isnan(bound), np.inf, bound), m)


@rule_of_each(np.negative, np.conjugate)
def _turned(ufunc: np.ufunc, m: Model, x: Tracked) -> Tracked:
    return Tracked(ufunc(x.value), unshared(x), m)


@rule(np.absolute, np.fabs)
def _absolute(m: Model, x: Tracked) -> Tracked:
    z = np.abs(x.value)
    if x.value.dtype.kind == "c":
        return computed(z, x.bound, m.function("hypot"), m)
    return Tracked(z, unshared(x), m)


# What the runtimes compute from other operations. A direct implementation rounds less.


@rule(np.floor_divide)
def _floor_divide(m: Model, x: Tracked, y: Tracked) -> Tracked:
    if _whole(x, y):
        return Tracked(np.floor_divide(x.value, y.value), 0.0, m)
    return _numpy.floor(x / y)


@rule_of_each(np.remainder, np.fmod)
def _remainder(ufunc: np.ufunc, m: Model, x: Tracked, y: Tracked) -> Tracked:
    whole = _numpy.floor if ufunc is np.remainder else _numpy.trunc
    bound = 0.0 if _whole(x, y) else (x - whole(x / y) * y).bound
    return Tracked(ufunc(x.value, y.value), bound, m)


def _whole(*operands: Tracked) -> bool:
    """Whether all operands are exact integers: their quotients are not rounded."""
    return all(x.value.dtype.kind in "iu" and not x.narrow.any() for x in operands)


@rule(np.modf)
def _modf(m: Model, x: Tracked) -> tuple[Tracked, Tracked]:
    whole = _numpy.trunc(x)
    return x - whole, whole


UFUNCS |= {
    np.square: lambda m, x: _multiply(m, x, x),
    np.reciprocal: _reciprocal,
    np.positive: lambda m, x: x.copy(),
    np.divmod: lambda m, x, y: (x // y, x % y),
    np.deg2rad: lambda m, x: x * (math.pi / 180),
    np.radians: lambda m, x: x * (math.pi / 180),
    np.rad2deg: lambda m, x: x * (180 / math.pi),
    np.degrees: lambda m, x: x * (180 / math.pi),
}


def _diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    parts = all_tracked(*(part for part in (a, prepend, append) if part is not None))
    shape = [1 if d == axis % parts[0].ndim else m for d, m in enumerate(parts[0].shape)]
    ends = [part if part.ndim else _numpy.broadcast_to(part, shape) for part in parts[1:]]
    before, after = (ends[:1], ends[1:]) if prepend is not None else ([], ends)
    a = _numpy.concatenate([*before, parts[0], *after], axis=axis)
    for _ in range(n):
        moved = _numpy.moveaxis(a, axis, 0)
        a = _numpy.moveaxis(moved[1:] - moved[:-1], 0, axis)
    return a


def _gradient(f: Tracked, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    if edge_order != 1 or any(np.ndim(step) for step in varargs):
        raise UnknownOperationError(
            "the error bound of numpy.gradient is known only for one distance and edge_order=1"
        )
    axes = range(f.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    steps = [*varargs] * len(axes) if len(varargs) == 1 else [*varargs] or [1.0] * len(axes)
    slopes = [_slope(f, axis, step) for axis, step in zip(axes, steps, strict=True)]
    return slopes[0] if len(slopes) == 1 else tuple(slopes)


def _slope(f: Tracked, axis: int, step: Any) -> Any:
    moved = _numpy.moveaxis(f, axis, 0)
    inner = (moved[2:] - moved[:-2]) / (2 * step)
    first, last = (moved[1:2] - moved[:1]) / step, (moved[-1:] - moved[-2:-1]) / step
    return _numpy.moveaxis(_numpy.concatenate([first, inner, last]), 0, axis)


def _cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1) -> Any:
    x, y = all_tracked(a, b)
    x, y = _numpy.moveaxis(x, axisa, -1), _numpy.moveaxis(y, axisb, -1)
    if x.shape[-1] != 3 or y.shape[-1] != 3:
        raise UnknownOperationError("the error bound of numpy.cross is known only for 3 components")
    parts = [x[..., i] * y[..., j] - x[..., j] * y[..., i] for i, j in ((1, 2), (2, 0), (0, 1))]
    return _numpy.moveaxis(_numpy.stack(parts, axis=-1), -1, axisc)


FUNCTIONS |= {np.diff: _diff, np.gradient: _gradient, np.cross: _cross}
FUNCTIONS[np.linalg.cross] = lambda x1, x2, *, axis=-1: _cross(x1, x2, axis, axis, axis)
