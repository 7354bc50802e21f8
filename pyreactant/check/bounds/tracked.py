"""Tracked: an oracle's array with a bound on the error of a right result of each element.

Running error analysis (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed.,
section 3.3): each operation computes its value in float64. From its operands' bounds it computes a
bound on the difference to the result of any correct runtime in its own dtype, for any order of
summation and any sharding. An oracle is a plain NumPy function; with Tracked arguments it returns
Tracked results. docs/checks.md derives the bounds.
"""

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from ...arrays.dtypes import EXTENDED, wide
from .model import Model

Rule = Callable[..., Any]

_numpy: Any = np
"""NumPy without types, because NumPy's annotations do not accept Tracked arrays."""

UFUNCS: dict[np.ufunc, Rule] = {}
"""Rules of NumPy ufuncs for Tracked operands; registered by `rules`."""

FUNCTIONS: dict[Any, Rule] = {}
"""Rules of other NumPy functions; registered by `rules`."""


class UnknownOperationError(NotImplementedError):
    """An operation without a known error bound."""


class UnknownMethodError(UnknownOperationError, AttributeError):
    """A method of NumPy arrays without a known error bound."""


class OracleArray(NDArrayOperatorsMixin):
    """An oracle's array, with the methods of NumPy arrays whose NumPy functions have a rule.

    Attributes:
        shape: Its shape.
        unknown: The words of an error before the name of what has no rule.
    """

    __slots__ = ()

    shape: Any
    unknown: ClassVar[str]

    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: math.prod(self.shape))
    T = property(lambda self: _numpy.transpose(self))
    mT = property(lambda self: _numpy.matrix_transpose(self))
    real = property(lambda self: _numpy.real(self))
    imag = property(lambda self: _numpy.imag(self))

    def __getattr__(self, name: str) -> Any:
        if name in _METHODS:
            return functools.partial(getattr(_numpy, name), self)
        if not name.startswith("__") and hasattr(np.ndarray, name):
            raise UnknownMethodError(f"{self.unknown} numpy.ndarray.{name}")
        raise AttributeError(f"a NumPy array has no attribute {name!r}")

    def astype(self, dtype: Any, *_: Any, **__: Any) -> Any:
        """As `numpy.ndarray.astype`; see `Model.cast` for the roundings that follow."""
        return _numpy.astype(self, dtype)

    def flatten(self) -> Any:
        """As `numpy.ndarray.flatten`."""
        return _numpy.ravel(self).copy()

    def sort(self, axis: int = -1, kind: str | None = None) -> None:
        """As `numpy.ndarray.sort`."""
        self[...] = _numpy.sort(self, axis=axis)

    def fill(self, value: Any) -> None:
        """As `numpy.ndarray.fill`."""
        self[...] = value

    def conj(self) -> Any:
        """As `numpy.ndarray.conj`."""
        return _numpy.conjugate(self)

    conjugate = conj

    def reshape(self, *shape: Any) -> Any:
        """As `numpy.ndarray.reshape`."""
        return _numpy.reshape(self, shape[0] if len(shape) == 1 else shape)

    def transpose(self, *axes: Any) -> Any:
        """As `numpy.ndarray.transpose`."""
        if len(axes) == 1 and not isinstance(axes[0], int):
            axes = axes[0] or ()
        return _numpy.transpose(self, axes or None)


class Tracked(OracleArray):
    """An array with an elementwise bound on the error of a right result.

    Args:
        value: Exact values, float64 or complex128; integers and booleans are not rounded. Inputs
            may be float32: they are converted when something needs `value`.
        bound: Error bounds, float64, broadcastable to the shape of `value`, not negative;
            infinite where unknown. Views of `value` have the same views of `bound`.
        model: Rounding model of the runtime.
        estimated: Why the bound is estimated (see `estimate`); "" if it is derived.

    Attributes:
        held: The values as they are in memory; products in float32 and moves take them.
    """

    __slots__ = ("bound", "estimated", "held", "model")

    unknown = "no error bound is known for"

    def __init__(self, value: Any, bound: Any, model: Model, estimated: str = "") -> None:
        self.held = np.asarray(value)
        self.bound = np.asarray(bound, np.float64)
        if self.bound.shape != self.held.shape:
            self.bound = np.broadcast_to(self.bound, self.held.shape)
        self.model, self.estimated = model, estimated

    @property
    def value(self) -> np.ndarray:
        """The values, in which float64 computes; not rounded, also where `held` is float32."""
        if self.held.dtype.char == "f":
            self.held = self.held.astype(np.float64)
        return self.held

    shape = property(lambda self: self.held.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type in the runtime; float64 for those that NumPy lacks."""
        kind = self.held.dtype.kind
        if kind in "biu" or self.model.dtype.name in EXTENDED:
            return self.value.dtype
        if kind == "c":
            return np.result_type(self.model.dtype, np.complex64)
        return np.empty(0, self.model.dtype).real.dtype

    @property
    def narrow(self) -> np.ndarray:
        """The bound, with length 1 along dimensions in which it is broadcast."""
        return self.bound[tuple(slice(None) if step else slice(1) for step in self.bound.strides)]

    @property
    def allowed(self) -> np.ndarray:
        """The tolerance of a result: the bound and one unit in the last place."""
        return self.bound + 2 * self.model.roundoff * (np.abs(self.value) + self.bound)

    def __len__(self) -> int:
        return len(self.held)

    def __getitem__(self, key: Any) -> "Tracked":
        index = certain_index(key)
        return Tracked(self.held[index], self.bound[index], self.model, self.estimated)

    def __setitem__(self, key: Any, new: Any) -> None:
        if isinstance(key, Tracked) and key.bound.any() and np.ndim(new) == 0:
            key, new = ..., _numpy.where(key, new, self)
        index, new = certain_index(key), as_tracked(new, self.model)
        if not (self.value.flags.writeable and self.bound.flags.writeable):
            raise UnknownOperationError(
                "an oracle changes an array whose error bound is shared; change a copy, such as "
                "x.copy()"
            )
        if not np.can_cast(new.value.dtype, self.value.dtype, "same_kind"):
            raise UnknownOperationError(
                f"no error bound is known for {new.dtype} numbers stored in {self.dtype}"
            )
        if new.model.roundoff < self.model.roundoff:
            new = new.astype(self.dtype)
        self.value[index], self.bound[index] = new.value, new.bound

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise UnknownOperationError(
            "an oracle's array became a plain NumPy array, which has no error bound; use only the "
            "NumPy functions that docs/checks.md lists"
        )

    def __bool__(self) -> bool:
        raise UnknownOperationError(
            "an oracle's result decides a branch, which has no error bound; use numpy.where"
        )

    def _number(self) -> NoReturn:
        raise UnknownOperationError(
            "an oracle's result became a Python number, which has no error bound; compute with "
            "arrays"
        )

    __float__ = __int__ = __index__ = __complex__ = _number

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        name, given, out = f"numpy.{ufunc.__name__}", options, _out(options)
        options = {key: value for key, value in options.items() if key != "out"}
        along = _ALONG.get((ufunc, method))
        if along is not None:
            return _stored(_numpy_call(along, inputs, {"axis": 0} | options), out, name)
        rule = UFUNCS.get(ufunc) if method in ("__call__", "outer") and not options else None
        if rule is None:
            raise UnknownOperationError(_unknown(name, method, given))
        model = model_of(self, *inputs)
        operands = _widened(ufunc, [as_tracked(x, model) for x in inputs])
        if method == "outer":
            x, y = operands
            operands = [x[(..., *[None] * y.ndim)], y]
        with np.errstate(all="ignore"):
            return _stored(_integers_exact(rule(model, *operands), operands), out, name)

    def __array_function__(
        self, function: Any, types: Any, args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        own = {key: value for key, value in options.items() if key != "out"}
        return _stored(_numpy_call(function, args, own), _out(options), _name(function))

    def copy(self, *_: Any) -> "Tracked":
        """As `numpy.ndarray.copy`."""
        return Tracked(self.value.copy(), self.bound.copy(), self.model)

    def __repr__(self) -> str:
        return f"Tracked({self.value!r}, bound={self.bound!r})"


_METHODS = (
    *("all", "any", "argmax", "argmin", "argsort", "clip", "cumprod", "cumsum", "diagonal", "dot"),
    *("max", "mean", "min", "prod", "ravel", "repeat", "round", "squeeze", "std", "sum"),
    *("swapaxes", "take", "trace", "var"),
)
"""Methods of NumPy arrays with the arguments of the NumPy function of the same name."""

_ALONG: dict[tuple[np.ufunc, str], Any] = {
    (np.add, "reduce"): np.sum,
    (np.multiply, "reduce"): np.prod,
    (np.maximum, "reduce"): np.max,
    (np.minimum, "reduce"): np.min,
    (np.logical_and, "reduce"): np.all,
    (np.logical_or, "reduce"): np.any,
    (np.add, "accumulate"): np.cumsum,
    (np.multiply, "accumulate"): np.cumprod,
}
"""NumPy functions that do what a method of a ufunc does."""


def track(array: np.ndarray, model: Model) -> Tracked:
    """An oracle's input; its bound is zero because the runtime gets the same elements."""
    if array.dtype == np.float32:
        return Tracked(array, 0.0, model)
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
    if value.dtype.kind in "fc":
        value = wide(value)
    if np.isinf(bound).any():
        # A constant beyond the largest number, such as -1e30 in float16, is infinite there.
        value = np.where(np.isinf(bound), np.sign(value) * np.inf, value)
        bound = np.where(np.isinf(bound), 0.0, bound)
    return Tracked(value, bound, model)


def model_of(*operands: Any) -> Model:
    """The model of a result: that of the operands' most precise type, as in NumPy and XLA."""
    models = [x.model for x in operands if isinstance(x, Tracked)]
    return min(models, key=lambda model: model.roundoff)


def all_tracked(*operands: Any) -> tuple[Tracked, ...]:
    """The operands as Tracked arrays."""
    model = model_of(*operands)
    return tuple(as_tracked(x, model) for x in operands)


def in_float(x: Tracked) -> Tracked:
    """The same array; integers and booleans as floats, which comparisons with results take."""
    return Tracked(wide(x.value), x.bound, x.model) if x.value.dtype.kind in "biu" else x


def certain_index(key: Any) -> Any:
    """An index without Tracked arrays.

    Raises:
        UnknownOperationError: Errors may change the index.
    """
    if isinstance(key, tuple):
        return tuple(map(certain_index, key))
    if not isinstance(key, Tracked):
        return key
    if key.bound.any():
        raise UnknownOperationError(
            "no error bound is known for an index that rounding errors may change; use numpy.where"
        )
    return key.value


def _numpy_call(function: Any, args: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    """Call the rule of a NumPy function."""
    rule, name = FUNCTIONS.get(function), _name(function)
    if rule is None:
        raise UnknownOperationError(_unknown(name, "__call__", {}))
    place = _place_of_out(rule)
    if place is not None and len(args) > place and args[place] is not None:
        raise UnknownOperationError(_unknown(name, "__call__", {"out, given by position": None}))
    try:
        with np.errstate(all="ignore"):
            return _integers_exact(rule(*args, **options), args)
    except TypeError as error:
        raise UnknownOperationError(_unknown(name, "__call__", options)) from error


def _widened(ufunc: np.ufunc, operands: list[Tracked]) -> list[Tracked]:
    """The operands; those of 8 or 16 bits in float64 if NumPy would compute in a short float."""
    kinds = [x.held.dtype for x in operands]
    if all(kind.kind in "biu" and kind.itemsize < 4 for kind in kinds):
        types = ufunc.resolve_dtypes((*kinds, *[None] * ufunc.nout))
        if types[-1].kind == "f":
            return list(map(in_float, operands))
    return operands


def _integers_exact(result: Any, operands: Sequence[Any]) -> Any:
    """A result; integers of exact operands are exact, in whatever order they are summed.

    A program may compute them as floats, which hold them up to a size.
    """
    if not isinstance(result, Tracked) or result.held.dtype.kind not in "iu":
        return result
    if any(isinstance(x, Tracked) and x.narrow.any() for x in operands):
        return result
    if np.abs(wide(result.held)).max(initial=0) > 1 / result.model.roundoff:
        return result
    return Tracked(result.held, 0.0, result.model, result.estimated)


@functools.cache
def _place_of_out(rule: Rule) -> int | None:
    names = [*inspect.signature(rule).parameters]
    return names.index("out") if "out" in names else None


def _name(function: Any) -> str:
    return f"{function.__module__}.{function.__name__}"


def _out(options: Mapping[str, Any]) -> Any:
    """The array for the result that the caller gave; None without one."""
    out = options.get("out")
    return out[0] if isinstance(out, tuple) and len(out) == 1 else out


def _stored(result: Any, out: Any, name: str) -> Any:
    """The result, stored in the array that the caller gave."""
    if out is None:
        return result
    if not isinstance(out, Tracked) or not isinstance(result, Tracked):
        raise UnknownOperationError(_unknown(name, "__call__", {"out": out}))
    out[...] = result
    return out


def _unknown(name: str, method: str, options: Mapping[str, Any]) -> str:
    how = name if method == "__call__" else f"{name}.{method}"
    given = f" with {', '.join(options)}" if options else ""
    return f"{Tracked.unknown} {how}{given}"


def rule(*ufuncs: np.ufunc) -> Callable[[Rule], Rule]:
    """Register the rule of ufuncs: ``rule(model, *operands)`` with Tracked operands."""

    def register(function: Rule) -> Rule:
        UFUNCS.update(dict.fromkeys(ufuncs, function))
        return function

    return register


def rule_of_each(*ufuncs: np.ufunc) -> Callable[[Rule], Rule]:
    """Register one rule of several ufuncs: ``rule(ufunc, model, *operands)``."""

    def register(function: Rule) -> Rule:
        UFUNCS.update({ufunc: functools.partial(function, ufunc) for ufunc in ufuncs})
        return function

    return register


def function(*functions: Any) -> Callable[[Rule], Rule]:
    """Register the rule of NumPy functions, which has their parameters in the same order."""

    def register(rule: Rule) -> Rule:
        FUNCTIONS.update(dict.fromkeys(functions, rule))
        return rule

    return register
