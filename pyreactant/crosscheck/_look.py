"""What wrong values look like by themselves: memory that nobody wrote to, or fewer bits."""

import math

import numpy as np

from .._dtypes import as_dtype
from .._tolerance import finfo
from ._values import Expected, is_float

_FAR = 2.0**20

_OF_RANGE = 0.15
"""Random bits have exponents with a standard deviation of 0.29 of their range."""


def looks_uninitialised(got: np.ndarray, expected: Expected) -> str | None:
    """Whether the wrong elements of a tile are what unwritten memory holds, in words."""
    wrong = _wrong(got, expected)
    some = got[wrong]
    if not some.size:
        return None
    if is_float(got.dtype) and not np.isfinite(some).any():
        half = some.size * 2 >= got.size
        return "it holds NaN or infinity" if half else None
    if not np.count_nonzero(some):
        return "it holds zeros"
    if some.size > 3 and (some == some.flat[0]).all():
        return f"every wrong element is {some.flat[0]}"
    if not is_float(got.dtype):
        return None
    info = finfo(got.dtype)
    whole = math.log2(float(info.max)) - math.log2(float(info.tiny))
    of_all_sizes = _spread(some) > _OF_RANGE * whole > 2 * _spread(expected.value)
    if of_all_sizes or _far(some, expected.value):
        return "its numbers are of all sizes, like memory that nobody wrote"
    return None


def _far(values: np.ndarray, right: np.ndarray) -> bool:
    """Whether most numbers have nothing to do with the right ones, by their size."""
    with np.errstate(all="ignore"):
        sizes = np.abs(values.astype(np.complex128 if values.dtype.kind == "c" else np.float64))
        usual = float(np.median(np.abs(right)))
        far = ~np.isfinite(sizes) | (sizes > _FAR * usual) | (sizes * _FAR < usual)
    return bool(np.mean(far) > 0.5)


def _spread(values: np.ndarray) -> float:
    """Standard deviation of the binary logarithms of what is finite and not zero."""
    with np.errstate(all="ignore"):
        sizes = np.abs(values.astype(np.complex128 if values.dtype.kind == "c" else np.float64))
        logs = np.log2(sizes)
    logs = logs[np.isfinite(logs)]
    return float(logs.std()) if logs.size > 3 else 0.0


def looks_rounded(got: np.ndarray, expected: Expected) -> str | None:
    """Whether all elements of a tile are a little off, as in lower precision, in words."""
    if not is_float(got.dtype) or not got.size:
        return None
    with np.errstate(all="ignore"):
        value = expected.value.astype(np.complex128 if got.dtype.kind == "c" else np.float64)
        error = np.abs(got.astype(value.dtype) - value)
        sizes = np.abs(value)
    if not np.isfinite(error).all():
        return None
    eps = float(finfo(got.dtype).eps)
    small = error.max() <= 2.0**-4 * sizes.max()
    spread = (error > 2 * eps * sizes).mean() >= 0.25
    if not (small and spread):
        return None
    held = next((name for name in _shorter(got.dtype) if _representable(got, name)), None)
    if held:
        return f"its elements are those of {held}"
    bits = -np.log2(max(error.max() / sizes.max(), eps))
    return f"it is right to about {bits:.0f} bits"


def _wrong(got: np.ndarray, expected: Expected) -> np.ndarray:
    """Which elements are wrong."""
    if expected.bound is None:
        return np.asarray(got != expected.value.astype(got.dtype, copy=False))
    with np.errstate(all="ignore"):
        error = np.abs(got.astype(expected.value.dtype) - expected.value)
        return ~(error <= expected.allowed(got.dtype))


def _shorter(dtype: np.dtype[np.generic]) -> list[str]:
    part = dtype.itemsize // (2 if dtype.kind == "c" else 1)
    return [name for name in ("bfloat16", "float16", "float32") if as_dtype(name).itemsize < part]


def _representable(got: np.ndarray, name: str) -> bool:
    parts = [got.real, got.imag] if got.dtype.kind == "c" else [got]
    with np.errstate(all="ignore"):
        return all((part.astype(as_dtype(name)).astype(part.dtype) == part).all() for part in parts)
