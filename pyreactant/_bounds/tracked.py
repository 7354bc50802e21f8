"""Tracked: an oracle's array with a bound on the error of a right result of each element.

Running error analysis (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed.,
section 3.3): each operation computes its value in float64. From its operands' bounds it computes a
bound on the difference to the result of any correct runtime in its own dtype, for any order of
summation and any sharding. An oracle is a plain NumPy function; with Tracked arguments it returns
Tracked results. docs/checks.md derives the bounds.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from .model import Model

Rule = Callable[..., Any]

_numpy: Any = np
"""NumPy without types, because NumPy's annotations do not accept Tracked arrays."""

UFUNCS: dict[np.ufunc, Rule] = {}
"""Rules of NumPy ufuncs for Tracked operands; registered by `rules` and `sums`."""

FUNCTIONS: dict[Any, Rule] = {}
"""Rules of other NumPy functions; registered by `rules` and `sums`."""


class UnknownOperationError(NotImplementedError):
    """An operation without a known error bound."""


class Tracked(NDArrayOperatorsMixin):
    """An array with an elementwise bound on the error of a right result.

    Args:
        value: Exact values, float64 or complex128.
        bound: Error bounds, float64, broadcastable to the shape of `value`, not negative;
            infinite where unknown.
        model: Rounding model of the runtime.
    """

    __slots__ = ("bound", "model", "value")

    def __init__(self, value: Any, bound: Any, model: Model) -> None:
        self.value = np.asarray(value)
        self.bound = np.asarray(bound, np.float64)
        if self.bound.shape != self.value.shape:
            self.bound = np.broadcast_to(self.bound, self.value.shape)
        self.model = model

    shape = property(lambda self: self.value.shape)
    ndim = property(lambda self: self.value.ndim)
    size = property(lambda self: self.value.size)
    dtype = property(lambda self: self.value.dtype)
    T = property(lambda self: np.transpose(self))
    real = property(lambda self: np.real(self))
    imag = property(lambda self: np.imag(self))

    @property
    def narrow(self) -> np.ndarray:
        """The bound, with length 1 along dimensions in which it is broadcast."""
        return self.bound[tuple(slice(None) if step else slice(1) for step in self.bound.strides)]

    @property
    def allowed(self) -> np.ndarray:
        """The tolerance of a result: the bound and one unit in the last place."""
        return self.bound + 2 * self.model.roundoff * (np.abs(self.value) + self.bound)

    def __len__(self) -> int:
        return len(self.value)

    def __getitem__(self, key: Any) -> "Tracked":
        return type(self)(self.value[key], self.bound[key], self.model)

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise UnknownOperationError(
            "an oracle's array became a plain NumPy array, which has no error bound; use only the "
            "NumPy functions that docs/checks.md lists"
        )

    def __bool__(self) -> bool:
        raise UnknownOperationError(
            "an oracle's result decides a branch, which has no error bound; use numpy.where"
        )

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method == "reduce" and ufunc in _REDUCTIONS:
            return self.__array_function__(_REDUCTIONS[ufunc], (), inputs, options)
        rule = UFUNCS.get(ufunc) if method == "__call__" and not options else None
        if rule is None:
            raise UnknownOperationError(_unknown(f"numpy.{ufunc.__name__}", method, options))
        with np.errstate(all="ignore"):
            return rule(self.model, *(as_tracked(x, self.model) for x in inputs))

    def __array_function__(
        self, function: Any, types: Any, args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        rule = FUNCTIONS.get(function)
        name = f"{function.__module__}.{function.__name__}"
        if rule is None:
            raise UnknownOperationError(_unknown(name, "__call__", {}))
        try:
            with np.errstate(all="ignore"):
                return rule(*args, **options)
        except TypeError as error:
            raise UnknownOperationError(_unknown(name, "__call__", options)) from error

    def sum(self, axis: Any = None, keepdims: bool = False) -> "Tracked":
        """As `numpy.ndarray.sum`."""
        return _numpy.sum(self, axis=axis, keepdims=keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> "Tracked":
        """As `numpy.ndarray.mean`."""
        return _numpy.mean(self, axis=axis, keepdims=keepdims)

    def var(self, axis: Any = None, keepdims: bool = False) -> "Tracked":
        """As `numpy.ndarray.var`."""
        return _numpy.var(self, axis=axis, keepdims=keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> "Tracked":
        """As `numpy.ndarray.max`."""
        return _numpy.max(self, axis=axis, keepdims=keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> "Tracked":
        """As `numpy.ndarray.min`."""
        return _numpy.min(self, axis=axis, keepdims=keepdims)

    def cumsum(self, axis: Any = None) -> "Tracked":
        """As `numpy.ndarray.cumsum`."""
        return _numpy.cumsum(self, axis=axis)

    def copy(self) -> "Tracked":
        """As `numpy.ndarray.copy`."""
        return type(self)(self.value.copy(), self.bound, self.model)

    def conj(self) -> "Tracked":
        """As `numpy.ndarray.conj`."""
        return _numpy.conjugate(self)

    def reshape(self, *shape: Any) -> "Tracked":
        """As `numpy.ndarray.reshape`."""
        return _numpy.reshape(self, shape[0] if len(shape) == 1 else shape)

    def transpose(self, *axes: Any) -> "Tracked":
        """As `numpy.ndarray.transpose`."""
        return _numpy.transpose(self, axes or None)

    def __repr__(self) -> str:
        return f"Tracked({self.value!r}, bound={self.bound!r})"


class Estimated(Tracked):
    """A Tracked array whose bound is estimated, not derived (see `estimate`).

    Attributes:
        reason: Why no bound could be derived.
    """

    __slots__ = ("reason",)

    def __init__(self, value: Any, bound: Any, model: Model, reason: str = "") -> None:
        super().__init__(value, bound, model)
        self.reason = reason

    def __getitem__(self, key: Any) -> "Estimated":
        return Estimated(self.value[key], self.bound[key], self.model, self.reason)


_REDUCTIONS = {np.add: np.sum, np.maximum: np.max, np.minimum: np.min}


def track(array: np.ndarray, model: Model) -> Tracked:
    """An oracle's input; its bound is zero because the runtime gets the same elements."""
    kind = np.complex128 if array.dtype.kind == "c" else np.float64
    return Tracked(array.astype(kind), 0.0, model)


def as_tracked(x: Any, model: Model) -> Tracked:
    """An operand as Tracked; constants have the error of rounding to the runtime's dtype."""
    if isinstance(x, Tracked):
        return x
    value = np.asarray(x)
    if value.dtype.kind not in "biufc":
        raise UnknownOperationError(
            f"an oracle's operands must be numbers or arrays, got {type(x).__name__}"
        )
    bound = model.constant(value)
    # In float64, as the class promises: squares of small float32 numbers would underflow to 0.
    wide = {"f": np.float64, "c": np.complex128}.get(value.dtype.kind, value.dtype)
    value = value.astype(wide, copy=False)
    if np.isinf(bound).any():
        # A constant beyond the largest number, such as -1e30 in float16, is infinite there.
        value = np.where(np.isinf(bound), np.sign(value) * np.inf, value)
        bound = np.where(np.isinf(bound), 0.0, bound)
    return Tracked(value, bound, model)


Certain = Callable[[], Any]
"""Where an infinite value is the only one that the operands' errors allow."""


def rounded(
    value: Any, error: Any, relative: float, model: Model, certain: Certain | None = None
) -> Tracked:
    """A result with the error inherited from its operands and one rounding of its own."""
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


def is_finite(x: Tracked) -> Any:
    """Where the bound of an operand is finite."""
    return np.isfinite(x.bound)


def _unknown(name: str, method: str, options: dict[str, Any]) -> str:
    how = name if method == "__call__" else f"{name}.{method}"
    given = f" with {', '.join(options)}" if options else ""
    return f"no error bound is known for {how}{given}"
