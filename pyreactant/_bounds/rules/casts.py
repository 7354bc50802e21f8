"""Conversions to other element types, and parts of complex numbers."""

from typing import Any

import numpy as np

from ..._core.dtypes import EXTENDED, as_dtype
from ..rounding import bounded, unshared
from ..tracked import Tracked, UnknownOperationError, _numpy
from ._register import function
from .order import extreme_of


@function(np.astype)
def cast(x: Tracked, dtype: Any, *, copy: bool = True) -> Tracked:
    """A conversion: one rounding if the type is shorter, none if it is longer.

    Whole numbers are exact where all numbers within the bound are converted to the same one.
    """
    kind = np.dtype(dtype) if str(dtype) not in EXTENDED else as_dtype(dtype)
    if kind.kind == "b":
        return _numpy.not_equal(x, 0)
    if kind.kind in "iu":
        found = extreme_of(np.trunc, (x,), None, x.model) if x.value.dtype.kind == "f" else x
        if np.iscomplexobj(found.value):
            raise UnknownOperationError("no error bound is known for complex numbers as integers")
        bound = np.where(np.isfinite(found.value), found.bound, np.inf)
        whole = np.where(np.isfinite(found.value), found.value, 0)
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


@function(_numpy.real)
def _real(val: Tracked) -> Tracked:
    return Tracked(val.value.real.copy(), unshared(val), val.model)


@function(_numpy.imag)
def _imag(val: Tracked) -> Tracked:
    return Tracked(np.array(val.value.imag), unshared(val), val.model)


def _like(make: Any) -> Any:
    """The rule of a function that makes exact constants of an array's shape."""

    def found(a: Any, *args: Any, **options: Any) -> Any:
        dtype = options.pop("dtype", None)
        value = make(a.value, *args, **options)
        made = Tracked(value, np.zeros(value.shape), a.model)
        return made if dtype is None else cast(made, dtype)

    return found


for _make in (np.zeros_like, np.ones_like, np.empty_like):
    function(_make)(_like(_make))


@function(np.full_like)
def _full_like(a: Any, fill_value: Any, dtype: Any = None) -> Any:
    found = _numpy.zeros_like(a)
    found[...] = fill_value
    return found if dtype is None else cast(found, dtype)
