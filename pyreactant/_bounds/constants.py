"""Constants that a program computes itself, such as the angles of a rotary embedding.

An oracle computes such constants by NumPy in float64, a runtime in its own type: not only their
last rounding differs. Here an oracle runs with a NumPy whose ranges are Tracked arrays, so that
every constant computed from them carries the error of that computation; or, for an estimate, with
ranges in the runtime's type.
"""

import builtins
import math
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from .model import Model
from .rounding import rounded
from .tracked import UFUNCS, Estimated, Tracked, as_tracked

_RANGES = ("arange", "linspace", "indices")
"""NumPy functions from which constants are computed: a range has no other argument to track."""


Range = Callable[[np.ndarray], Any]
"""What replaces a range, which is given in float64, or as integers if it is one of integers."""


def tracked_ranges(model: Model) -> Range:
    """Ranges that carry the error of the runtime's own ones.

    Whole numbers are exact, and integers stay integers, so that a mask such as ``j <= i + 1`` is
    exact too. Others are a sum of two products of the ends or of the step, so that each may have
    four roundings of the largest one.
    """

    def tracked(values: np.ndarray) -> Tracked:
        if (values == np.rint(values)).all():
            return as_tracked(values, model)
        return Tracked(values, 4 * model.roundoff * np.max(np.abs(values)), model)

    return tracked


def rounded_ranges(model: Model) -> Range:
    """Ranges in the runtime's real type, in which NumPy then computes the constants."""
    return lambda values: values.astype(np.empty(0, model.dtype).real.dtype)


def with_ranges(function: Callable[..., Any], make: Range) -> Callable[..., Any] | None:
    """An oracle whose NumPy makes other ranges; None if it is not a function of Python.

    The functions of its module that it calls are replaced too. Others, such as methods, keep the
    plain NumPy, and their constants then count as exact up to one rounding.

    Args:
        function: The oracle.
        make: Makes a range.
    """
    if not isinstance(function, types.FunctionType):
        return None
    replaced: Any = _NumPy(make)
    own = function.__globals__
    scope: dict[str, Any] = {}
    for name, value in own.items():
        if value is np:
            scope[name] = replaced
        elif isinstance(value, types.FunctionType) and value.__globals__ is own:
            scope[name] = _in_scope(value, scope)
        else:
            known = [each for each in _RANGES if value is getattr(np, each)]
            scope[name] = getattr(replaced, known[0]) if known else value

    def imported(name: str, *args: Any, **options: Any) -> Any:
        found = builtins.__import__(name, *args, **options)
        return replaced if found is np else found

    scope["__builtins__"] = {**vars(builtins), "__import__": imported}
    return _in_scope(function, scope)


def _in_scope(function: types.FunctionType, scope: dict[str, Any]) -> types.FunctionType:
    """The same function with other globals."""
    copy = types.FunctionType(
        function.__code__, scope, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


class _NumPy:
    """NumPy with other ranges."""

    def __init__(self, make: Range) -> None:
        self._make = make

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        if name not in _RANGES:
            return found

        def ranged(*args: Any, **options: Any) -> Any:
            given = np.asarray(found(*args, **options))
            if given.dtype.kind in "iu":
                return self._make(given)
            # In float64, whatever type the oracle names: the error is that of the runtime's type.
            options.pop("dtype", None)
            return self._make(np.asarray(found(*args, **options), np.float64))

        return ranged


def moved_by_constants(
    results: tuple[Tracked, ...], others: tuple[Tracked, ...], reason: str
) -> tuple[Tracked, ...]:
    """Results whose bounds cover how far constants in the runtime's type move them.

    Args:
        results: Results with constants in float64.
        others: The same with constants computed in the runtime's type.
        reason: Why the constants have no derived bound.
    """
    found = []
    for one, other in zip(results, others, strict=True):
        with np.errstate(all="ignore"):
            apart = np.abs(other.value - one.value)
        apart = np.where(np.isfinite(apart), apart, 0.0)
        if apart.any():
            # As an estimate: each element, and all of them, may move more on another runtime.
            reach = 8 * math.sqrt(max(one.shape, default=1))
            more = reach * (apart + math.sqrt(np.square(apart).mean()))
            one = Estimated(one.value, one.bound + more, one.model, reason)
        found.append(one)
    return tuple(found)


_any_power = UFUNCS[np.power]


def _power(m: Model, x: Tracked, y: Tracked) -> Tracked:
    """A positive constant to the power of an array, as ``exp(y log(x))``."""
    base = x.value
    if not (base.ndim == 0 and y.value.ndim and base.dtype.kind == "f" and base > 0):
        return _any_power(m, x, y)
    z, slope = np.power(base, y.value), np.abs(np.log(base))
    # The product y log(x) is rounded once or twice, and its error is relative in the result.
    moved = slope * y.narrow + np.abs(y.value) * x.bound / base
    relative = m.function("exp").relative + 4 * m.roundoff * np.max(slope * np.abs(y.value))
    return rounded(z, z * np.expm1(moved), float(relative), m)


UFUNCS[np.power] = _power
