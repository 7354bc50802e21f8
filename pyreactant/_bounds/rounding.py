"""The bound of a result, from the errors of its operands and the rounding of the operation."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .model import Accuracy, Model
from .tracked import Tracked, UnknownOperationError, as_tracked

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


def model_of(*operands: Any) -> Model:
    """The model of a result: that of the operands' most precise type, as in NumPy and XLA."""
    models = [x.model for x in operands if isinstance(x, Tracked)]
    return min(models, key=lambda model: model.roundoff)


def all_tracked(*operands: Any) -> tuple[Tracked, ...]:
    """The operands as Tracked arrays."""
    model = model_of(*operands)
    return tuple(as_tracked(x, model) for x in operands)
