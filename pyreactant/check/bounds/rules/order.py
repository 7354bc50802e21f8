"""Comparisons, logic, choices, extremes and steps: what may jump between two values."""

import functools
from typing import Any

import numpy as np

from ..model import Model
from ..tracked import (
    FUNCTIONS,
    Tracked,
    UnknownOperationError,
    _numpy,
    all_tracked,
    function,
    rule,
    rule_of_each,
)
from .arithmetic import real_only


def extreme_of(function: Any, operands: tuple[Tracked, ...], largest: Any, m: Model) -> Tracked:
    """A result that grows with each operand: it lies between those of their ends.

    Args:
        function: The function of the operands' values.
        operands: Its operands.
        largest: The largest bound of the operands of each element, by the bounds: no error of the
            result is larger. None if it jumps.
        m: Rounding model of the runtime.
    """
    if any(np.iscomplexobj(x.value) and x.narrow.any() for x in operands):
        raise UnknownOperationError("no error bound is known for an order of complex numbers")
    z = function(*(x.value for x in operands))
    most = np.inf if largest is None else largest(*(x.bound for x in operands))
    if not any(x.narrow.any() for x in operands):
        return Tracked(z, np.zeros(np.shape(z)), m)
    high = function(*(x.value + x.bound for x in operands))
    low = function(*(x.value - x.bound for x in operands))
    if largest is None:
        error = np.maximum(np.abs(high - z), np.abs(z - low))
    else:
        # The oracle rounds the ends and their differences.
        error = np.maximum(high - z, z - low) + 2.0**-50 * np.abs(z)
    bound = np.minimum(most, np.where(np.isnan(error), np.inf, error))
    return Tracked(z, np.where((high == low) & np.isinf(z), 0.0, bound), m)


@rule_of_each(np.maximum, np.minimum, np.fmax, np.fmin)
def _larger(ufunc: np.ufunc, m: Model, x: Tracked, y: Tracked) -> Tracked:
    return extreme_of(ufunc, (x, y), np.maximum, m)


@function(np.clip)
def _clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    low, high = (a_min if min is None else min), (a_max if max is None else max)
    a = a if low is None else _numpy.maximum(a, low)
    return a if high is None else _numpy.minimum(a, high)


@rule_of_each(np.floor, np.ceil, np.trunc, np.rint, np.sign)
def _step(ufunc: np.ufunc, m: Model, x: Tracked) -> Tracked:
    """A function of a real number that grows in steps; nothing is rounded."""
    if np.iscomplexobj(x.value):
        raise UnknownOperationError(f"no error bound is known for numpy.{ufunc.__name__}")
    return extreme_of(ufunc, (x,), None, m)


@rule(np.heaviside)
def _heaviside(m: Model, x: Tracked, y: Tracked) -> Tracked:
    return _numpy.where(x > 0, 1.0, _numpy.where(x == 0, y, 0.0))


@rule(np.copysign)
def _copysign(m: Model, x: Tracked, y: Tracked) -> Tracked:
    z = np.copysign(x.value, y.value)
    is_open = (y.bound > 0) & (np.abs(y.value) <= y.bound)
    return Tracked(z, x.bound + np.where(is_open, 2 * np.abs(z), 0.0), m)


@function(np.round, np.around)
def _round(a: Tracked, decimals: int = 0) -> Any:
    if not decimals:
        return _numpy.rint(a)
    scale = 10.0 ** abs(decimals)
    shown = _numpy.rint(a * scale) / scale if decimals > 0 else _numpy.rint(a / scale) * scale
    return Tracked(np.round(a.value, decimals), shown.bound, a.model)


@rule_of_each(np.greater, np.greater_equal, np.less, np.less_equal, np.equal, np.not_equal)
def _comparison(ufunc: np.ufunc, m: Model, x: Tracked, y: Tracked) -> Tracked:
    """A comparison has a bound of 1 where the errors leave it undecided."""
    if ufunc not in (np.equal, np.not_equal):
        real_only(ufunc.__name__, x, y)
    # With a bound of zero the result is certain, even for equal numbers.
    slack = x.bound + y.bound
    apart = np.abs(np.subtract(x.value, y.value, dtype=np.result_type(x.value, y.value, 1.0)))
    is_open = ~(apart > slack) & (slack > 0)
    return Tracked(ufunc(x.value, y.value), is_open, m)


@rule_of_each(np.isnan, np.isinf, np.isfinite)
def _quality(ufunc: np.ufunc, m: Model, x: Tracked) -> Tracked:
    """A question about one number that is open only where the number may overflow."""
    return Tracked(ufunc(x.value), np.isinf(x.bound), m)


@rule(np.signbit)
def _signbit(m: Model, x: Tracked) -> Tracked:
    is_open = (x.bound > 0) & (np.abs(x.value) <= x.bound)
    return Tracked(np.signbit(x.value), is_open, m)


def _truths(x: Tracked) -> tuple[np.ndarray, np.ndarray]:
    """Where a number is certainly not zero, and where it may not be."""
    is_open = (x.bound > 0) & (np.abs(x.value) <= x.bound)
    truth = x.value != 0
    if x.value.dtype.kind == "b":
        is_open = x.bound > 0
    return truth & ~is_open, truth | is_open


@rule_of_each(np.logical_and, np.logical_or)
def _logic(ufunc: np.ufunc, m: Model, x: Tracked, y: Tracked) -> Tracked:
    """An operation on truth values that does not fall as its operands grow."""
    low, high = (ufunc(*ends) for ends in zip(_truths(x), _truths(y), strict=True))
    return Tracked(ufunc(x.value, y.value), low != high, m)


@rule_of_each(np.logical_xor, np.logical_not)
def _turning_logic(ufunc: np.ufunc, m: Model, *operands: Tracked) -> Tracked:
    """An operation on truth values that is open where an operand is."""
    is_open = [low != high for low, high in map(_truths, operands)]
    return Tracked(ufunc(*(x.value for x in operands)), functools.reduce(np.logical_or, is_open), m)


@rule_of_each(
    np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.invert, np.left_shift, np.right_shift
)
def _bits(ufunc: np.ufunc, m: Model, *operands: Tracked) -> Tracked:
    """Bits of whole numbers are exact if no operand is open."""
    known: dict[np.ufunc, np.ufunc] = {
        np.bitwise_and: np.logical_and,
        np.bitwise_or: np.logical_or,
    }
    logical = known.get(ufunc)
    if logical is not None and all(x.value.dtype.kind == "b" for x in operands):
        return _logic(logical, m, *operands)
    z = ufunc(*(x.value for x in operands))
    is_open = functools.reduce(np.logical_or, (x.bound > 0 for x in operands))
    sure = 1.0 if z.dtype.kind == "b" else np.inf
    return Tracked(z, np.where(np.broadcast_to(is_open, z.shape), sure, 0.0), m)


@function(np.where)
def _where(condition: Any, x: Any = None, y: Any = None) -> Tracked:
    if x is None or y is None:
        raise UnknownOperationError("no error bound is known for numpy.where with one argument")
    condition, x, y = all_tracked(condition, x, y)
    low, high = _truths(condition)
    truth = condition.value != 0
    value = np.where(truth, x.value, y.value)
    bound = np.where(truth, x.bound, y.bound)
    if (low != high).any():
        # Where the comparison is undecided, the result may be the other operand.
        apart = np.where(x.value == y.value, 0.0, np.abs(x.value * 1.0 - y.value))
        bound = np.where(low != high, apart + np.maximum(x.bound, y.bound), bound)
        bound = np.where(np.isnan(bound), np.inf, bound)
    return Tracked(value, bound, x.model)


@function(np.select)
def _select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    for condition, choice in reversed([*zip(condlist, choicelist, strict=True)]):
        default = _numpy.where(condition, choice, default)
    return default


@function(np.nan_to_num)
def _nan_to_num(
    x: Tracked, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None
) -> Any:
    largest = x.model.largest
    z = _where(_numpy.isnan(x), nan, x)
    z = _where(x == np.inf, largest if posinf is None else posinf, z)
    return _where(x == -np.inf, -largest if neginf is None else neginf, z)


def _extreme(function: Any) -> Any:
    """The rule of a maximum or minimum along dimensions."""

    def rule(a: Tracked, axis: Any = None, out: Any = None, keepdims: bool = False) -> Tracked:
        along, largest = (
            functools.partial(f, axis=axis, keepdims=keepdims) for f in (function, np.max)
        )
        return extreme_of(along, (a,), largest, a.model)

    return rule


FUNCTIONS |= {f: _extreme(f) for f in (np.max, np.min, np.amax, np.amin, np.nanmax, np.nanmin)}


@function(np.ptp)
def _ptp(a: Tracked, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    most, least = (f(a, axis=axis, keepdims=keepdims) for f in (_numpy.max, _numpy.min))
    return most - least


def _truth_of(function: Any) -> Any:
    """The rule of any or all."""

    def rule(a: Tracked, axis: Any = None, out: Any = None, keepdims: bool = False) -> Tracked:
        how = {"axis": axis, "keepdims": keepdims}
        low, high = (function(ends, **how) for ends in _truths(a))
        return Tracked(function(a.value, **how), low != high, a.model)

    return rule


FUNCTIONS |= {f: _truth_of(f) for f in (np.any, np.all)}


@function(np.count_nonzero)
def _count(a: Tracked, axis: Any = None, *, keepdims: bool = False) -> Tracked:
    low, high = (np.count_nonzero(truths, axis=axis, keepdims=keepdims) for truths in _truths(a))
    z = np.count_nonzero(a.value, axis=axis, keepdims=keepdims)
    return Tracked(z, np.maximum(np.subtract(high, z), np.subtract(z, low)), a.model)
