"""Functions of one element: elementary functions, conversions, and parts of complex numbers."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ....arrays.dtypes import EXTENDED, as_dtype
from ..model import Model
from ..tracked import (
    FUNCTIONS,
    Tracked,
    UnknownOperationError,
    _numpy,
    function,
    rule,
    rule_of_each,
)
from .arithmetic import bounded, computed, real_only, unshared
from .order import extreme_of


@rule(np.exp)
def _exp(m: Model, x: Tracked) -> Tracked:
    z = np.exp(x.value)
    accuracy = m.function("exp", np.iscomplexobj(z))
    return computed(z, _exp_error(x, np.abs(z)), accuracy, m, _overflow(x))


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


@rule(np.expm1)
def _expm1(m: Model, x: Tracked) -> Tracked:
    real_only("expm1", x)
    e = _exp_error(x, np.exp(x.value))
    return computed(np.expm1(x.value), e, m.function("expm1"), m, _overflow(x))


@rule_of_each(np.log, np.log1p)
def _log(ufunc: np.ufunc, m: Model, x: Tracked) -> Tracked:
    """|log(x') - log(x)| is largest at the end nearer to zero."""
    real_only(ufunc.__name__, x)
    size, b = np.abs(x.value if ufunc is np.log else 1 + x.value), x.bound
    e = np.where(b == 0, 0.0, np.where(b < size, -np.log1p(-b / size), np.inf))
    return computed(ufunc(x.value), e, m.function(ufunc.__name__), m, lambda: b == 0)


@rule(np.sqrt)
def _sqrt(m: Model, x: Tracked) -> Tracked:
    real_only("sqrt", x)
    z = np.sqrt(x.value)
    # |sqrt(x') - sqrt(x)| = |x' - x| / (sqrt(x') + sqrt(x)), and at most sqrt(|x' - x|).
    least = np.sqrt(np.maximum(x.value - x.bound, 0)) + z
    e = np.minimum(np.where(least > 0, x.bound / least, np.inf), np.sqrt(x.bound))
    return computed(z, e, m.function("sqrt"), m, lambda: x.bound == 0)


@rule_of_each(np.tanh, np.sin, np.cos, np.arctan, np.arcsinh)
def _of_slope_one(ufunc: np.ufunc, m: Model, x: Tracked) -> Tracked:
    """A function of a real number whose derivative is nowhere larger than 1."""
    real_only(ufunc.__name__, x)
    return computed(ufunc(x.value), x.narrow, m.function(ufunc.__name__), m)


@rule_of_each(np.cbrt, np.sinh, np.arcsin, np.arccos, np.arccosh, np.arctanh)
def _monotone(ufunc: np.ufunc, m: Model, x: Tracked) -> Tracked:
    """A function of a real number that only grows or only falls."""
    real_only(ufunc.__name__, x)
    return computed(ufunc(x.value), _between_ends(ufunc, x), m.function(ufunc.__name__), m)


def _between_ends(ufunc: np.ufunc, x: Tracked) -> np.ndarray:
    """The error of a monotone function; NaN, so in the end infinite, where an end has no value."""
    if not x.narrow.any():
        return np.zeros(())
    z, ends = ufunc(x.value), (ufunc(x.value - x.bound), ufunc(x.value + x.bound))
    # The oracle rounds the ends.
    slack = 2.0**-49 * (np.abs(z) + np.abs(ends[0]) + np.abs(ends[1]))
    return np.maximum(*(np.abs(end - z) for end in ends)) + slack * (x.bound > 0)


@rule(np.cosh)
def _cosh(m: Model, x: Tracked) -> Tracked:
    """The same on |x|, whose derivative is at most sinh(|x| + b)."""
    real_only("cosh", x)
    e = x.bound * np.sinh(np.abs(x.value) + x.bound)
    return computed(np.cosh(x.value), e, m.function("cosh"), m)


@rule(np.tan)
def _tan(m: Model, x: Tracked) -> Tracked:
    """Tan x' - tan x = sin(x' - x) / (cos x cos x'), and cos x' is at least |cos x| - b."""
    real_only("tan", x)
    size = np.abs(np.cos(x.value))
    left = size - x.bound
    e = np.where(left > 0, x.bound / (size * left), np.inf)
    return computed(np.tan(x.value), e, m.function("tan"), m)


@rule(np.hypot)
def _hypot(m: Model, x: Tracked, y: Tracked) -> Tracked:
    return computed(np.hypot(x.value, y.value), x.bound + y.bound, m.function("hypot"), m)


@rule(np.arctan2)
def _arctan2(m: Model, y: Tracked, x: Tracked) -> Tracked:
    """The gradient is at most 1/r; across the negative axis the angle jumps by 2 pi."""
    real_only("arctan2", x, y)
    low, left = (np.maximum(np.abs(part.value) - part.bound, 0) for part in (y, x))
    reach, nearest = np.hypot(y.bound, x.bound), np.hypot(low, left)
    e = np.where(reach == 0, 0.0, reach / nearest)
    jumps = (low == 0) & (y.bound > 0) & (x.value - x.bound < 0)
    e = np.where(jumps | np.isnan(e), 2 * math.pi, np.minimum(e, 2 * math.pi))
    return computed(np.arctan2(y.value, x.value), e, m.function("arctan2"), m)


# What the runtimes compute from other functions. A direct implementation rounds less.


@rule(np.exp2)
def _exp2(m: Model, x: Tracked) -> Tracked:
    return _of_formula(np.exp2(x.value), _numpy.exp(x * math.log(2)))


@rule_of_each(np.log2, np.log10)
def _log_of_base(ufunc: np.ufunc, m: Model, x: Tracked) -> Tracked:
    base = 2 if ufunc is np.log2 else 10
    return _of_formula(ufunc(x.value), _numpy.log(x) / math.log(base))


@rule_of_each(np.logaddexp, np.logaddexp2)
def _logaddexp(ufunc: np.ufunc, m: Model, x: Tracked, y: Tracked) -> Tracked:
    power = _numpy.exp if ufunc is np.logaddexp else _numpy.exp2
    rest = _numpy.log1p(power(-_numpy.abs(x - y)))
    rest = rest if ufunc is np.logaddexp else rest / math.log(2)
    return _of_formula(ufunc(x.value, y.value), _numpy.maximum(x, y) + rest)


def _of_formula(value: np.ndarray, formula: Tracked) -> Tracked:
    """NumPy's value with the bound of a formula for it."""
    apart = np.where(value == formula.value, 0.0, np.abs(value - formula.value))
    return bounded(value, formula.bound + apart, formula.model, lambda: formula.bound == 0)


@function(np.angle)
def _angle(z: Tracked, deg: bool = False) -> Any:
    angle = _numpy.arctan2(_numpy.imag(z), _numpy.real(z))
    return angle * (180 / math.pi) if deg else angle


@function(np.astype)
def cast(x: Tracked, dtype: Any, *, copy: bool = True) -> Tracked:
    """A conversion: one rounding if the type is shorter, none if it is longer.

    Whole numbers are exact where all numbers within the bound are converted to the same one.
    """
    kind = np.dtype(dtype) if str(dtype) not in EXTENDED else as_dtype(dtype)
    if kind.kind == "b":
        return _numpy.not_equal(x, 0)
    if kind.kind in "iu":
        if np.iscomplexobj(x.value):
            raise UnknownOperationError("no error bound is known for complex numbers as integers")
        cut = extreme_of(np.trunc, (x,), None, x.model) if x.value.dtype.kind == "f" else x
        bound = np.where(np.isfinite(cut.value), cut.bound, np.inf)
        whole = np.where(np.isfinite(cut.value), cut.value, 0)
        return Tracked(whole.astype(kind), bound, x.model)
    if kind.kind not in "fc" and kind.name not in EXTENDED:
        raise UnknownOperationError(f"no error bound is known for conversion to {kind}")
    if np.iscomplexobj(x.value) and kind.kind != "c":
        x = _numpy.real(x)
    model = x.model.cast(kind)
    value = x.value.astype(np.complex128 if kind.kind == "c" else np.float64)
    if model is x.model:
        return Tracked(value, x.bound.copy(), model)
    bound = x.bound + model.roundoff * (np.abs(value) + x.bound) + model.tiny
    held = value if kind.kind == "c" else value.astype(kind).astype(np.float64)
    # Numbers beyond the largest one become infinite.
    value = np.where(np.isinf(held), held, value)
    return bounded(value, bound, model, lambda: x.bound == 0)


@function(np.copy)
def _copy(a: Tracked, order: str = "K", subok: bool = False) -> Tracked:
    return a.copy()


FUNCTIONS |= {
    np.sinc: lambda x: _numpy.where(x == 0, 1.0, _numpy.sin(math.pi * x) / (math.pi * x)),
    np.real: lambda val: Tracked(val.value.real.copy(), unshared(val), val.model),
    np.imag: lambda val: Tracked(np.array(val.value.imag), unshared(val), val.model),
}


def _like(make: Any) -> Any:
    """The rule of a function that makes exact constants of an array's shape."""

    def rule(a: Any, *args: Any, **options: Any) -> Any:
        dtype = options.pop("dtype", None)
        value = make(a.value, *args, **options)
        made = Tracked(value, np.zeros(value.shape), a.model)
        return made if dtype is None else cast(made, dtype)

    return rule


FUNCTIONS |= {make: _like(make) for make in (np.zeros_like, np.ones_like, np.empty_like)}


@function(np.full_like)
def _full_like(a: Any, fill_value: Any, dtype: Any = None) -> Any:
    made = _numpy.zeros_like(a)
    made[...] = fill_value
    return made if dtype is None else cast(made, dtype)
