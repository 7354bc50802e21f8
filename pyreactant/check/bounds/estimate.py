"""Error bounds of what has no rule, by running an oracle again with other numbers.

First those of functions without a rule: estimates, no proofs. The oracle runs again with inputs
that are perturbed by one rounding, and once in the runtime's own dtype. docs/checks.md describes
what this detects.

Then those of constants that a program computes itself, such as the angles of a rotary embedding.
An oracle computes them by NumPy in float64, a runtime in its own type: not only their last rounding
differs. So the oracle runs with a NumPy whose ranges are Tracked arrays, and every constant from
them carries the error of its computation; or, for an estimate, with ranges in the runtime's type.
"""

import builtins
import contextlib
import math
import types
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from ...arrays.dtypes import EXTENDED, wide
from ...arrays.tree import data_fields, is_user_dataclass
from .model import Model
from .rules.arithmetic import bounded
from .tracked import Tracked, UnknownOperationError, as_tracked, in_float

_RUNS = 4

_WORDS = 160
"""Characters of an error that a reason quotes."""


def estimate(
    oracle: Callable[..., Any],
    parts: tuple[Any, ...],
    model: Model,
    reason: str = "",
    other: Callable[..., Any] | None = None,
) -> tuple[Any, ...]:
    """The oracle's results with estimated bounds, always as a tuple.

    Args:
        oracle: A plain NumPy function.
        parts: Its arguments in float64 or complex128; integers and booleans are unchanged.
        model: Rounding model of the runtime.
        reason: Why no bound could be derived; the results carry it.
        other: The same oracle with other roundings, such as those of the constants that it
            computes; it is left out if it fails.
    """
    exact = outputs_of(oracle(*parts))
    others = [outputs_of(oracle(*_perturbed(parts, model, run))) for run in range(_RUNS)]
    if model.dtype.name not in EXTENDED:
        others.append(outputs_of(oracle(*(_as(part, model.dtype) for part in parts))))
    if other is not None:
        with contextlib.suppress(Exception):
            others.append(outputs_of(other(*parts)))
    longest = max((n for part in parts for n in np.shape(part)), default=1)
    bounds = [
        _bound(value, [run[i] for run in others], longest, model) for i, value in enumerate(exact)
    ]
    return tuple(
        Tracked(wide(value), bound, model, reason)
        for value, bound in zip(exact, bounds, strict=True)
    )


def tracked_results(
    function: Callable[..., Any], parts: tuple[Any, ...], model: Model
) -> tuple[Any, ...] | str:
    """The results of an oracle on Tracked arrays, or why it has none."""
    try:
        results = function(*(part.copy() for part in parts))
        return tuple(in_float(as_tracked(leaf, model)) for leaf in leaves(results))
    except MemoryError:
        raise
    except UnknownOperationError as error:
        return in_short(error)
    except (Exception, SystemExit) as error:
        # Tracked arrays lack methods such as astype, and an oracle may require NumPy arrays.
        # If the oracle itself is wrong, the estimate, which runs it on NumPy arrays, raises
        # its error.
        return f"the oracle needs NumPy arrays ({type(error).__name__}: {in_short(error)})"


def in_short(error: BaseException) -> str:
    """An error's words in one line; it may quote whole arrays."""
    text = " ".join(str(error).split())
    return text if len(text) <= _WORDS else f"{text[:_WORDS]} ..."


def outputs_of(result: Any) -> tuple[np.ndarray, ...]:
    """The results of an oracle, which may be a tree, as a tuple of arrays."""
    return tuple(map(np.asarray, leaves(result)))


def leaves(tree: Any) -> list[Any]:
    """The leaves of a dict, list, tuple, namedtuple, dataclass or None, or of a nest of these.

    They are in the order in which runtimes flatten trees. An oracle runs where no runtime does too,
    so this needs neither jax nor optree.
    """
    kind: type = type(tree)
    if tree is None:
        return []
    if isinstance(tree, (tuple, list)):
        parts = list(tree)
    elif isinstance(tree, OrderedDict):
        parts = list(tree.values())
    elif kind in (dict, defaultdict):
        parts = [tree[key] for key in sorted(tree)]
    elif is_user_dataclass(kind):
        parts = [getattr(tree, name) for name in data_fields(kind)[0]]
    else:
        return [tree]
    return [leaf for part in parts for leaf in leaves(part)]


def _bound(value: np.ndarray, others: list[np.ndarray], longest: int, model: Model) -> Any:
    if value.dtype.kind in "biu":
        # Indices and comparisons: exact where nothing moves them.
        apart = [np.abs(wide(other) - wide(value)) for other in others]
        return 8 * math.sqrt(longest) * np.max(apart, axis=0, initial=0.0)
    with np.errstate(all="ignore"):
        moved = np.max([np.abs(other - value) for other in others], axis=0, initial=0.0)
        # All runs have the same infinity, or all have NaN.
        same = [(other == value) | (np.isnan(other) & np.isnan(value)) for other in others]
        moved = np.where(np.all(same, axis=0), 0.0, moved)
        finite = moved[np.isfinite(moved)]
        usual = math.sqrt(np.square(finite).mean()) if finite.size else 0.0
        bound = 8 * math.sqrt(longest) * (moved + usual)
        bound += 64 * model.roundoff * np.abs(value)
        bound += longest * model.tiny
        return bounded(value, bound, model, lambda: moved == 0).bound


def _perturbed(parts: tuple[Any, ...], model: Model, run: int) -> list[Any]:
    """The parts with each element rounded once more, randomly up or down."""
    numbers = np.random.Generator(np.random.Philox(key=run))
    u = model.roundoff + model.operand_roundoff
    return [
        part * (1 + u * (2.0 * numbers.integers(0, 2, np.shape(part)) - 1))
        if part.dtype.kind in "fc"
        else part
        for part in parts
    ]


def _as(part: Any, dtype: np.dtype[Any]) -> Any:
    if part.dtype.kind not in "fc":
        return part
    real_of_complex = dtype.kind == "c" and part.dtype.kind != "c"
    return part.astype(np.finfo(dtype).dtype if real_of_complex else dtype)


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
        module = builtins.__import__(name, *args, **options)
        return replaced if module is np else module

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
        function = getattr(np, name)
        if name not in _RANGES:
            return function

        def ranged(*args: Any, **options: Any) -> Any:
            given = np.asarray(function(*args, **options))
            if given.dtype.kind in "iu":
                return self._make(given)
            # In float64, whatever type the oracle names: the error is that of the runtime's type.
            options.pop("dtype", None)
            return self._make(np.asarray(function(*args, **options), np.float64))

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
    return tuple(_moved(*both, reason) for both in zip(results, others, strict=True))


def _moved(x: Tracked, other: Tracked, reason: str) -> Tracked:
    with np.errstate(all="ignore"):
        apart = np.abs(other.value - x.value)
    apart = np.where(np.isfinite(apart), apart, 0.0)
    if not apart.any():
        return x
    # As an estimate: each element, and all of them, may move more on another runtime.
    reach = 8 * math.sqrt(max(x.shape, default=1))
    more = reach * (apart + math.sqrt(np.square(apart).mean()))
    return Tracked(x.value, x.bound + more, x.model, reason)
