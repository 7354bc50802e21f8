"""The element types that both runtimes hold, arrays converted to them, and memory for arrays."""

import functools
import math
import sys
from typing import Any

import numpy as np

from ..base.errors import DTypeError, InvalidArgumentError

FLOAT8 = (
    "float8_e4m3fn",
    "float8_e4m3b11fnuz",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
)

EXTENDED = ("bfloat16", *FLOAT8)
"""Element types that the package ml_dtypes adds to NumPy; XLA and Julia have them too."""

NAMES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
    *EXTENDED,
)


def as_dtype(dtype: Any) -> np.dtype[Any]:
    """The NumPy dtype of a name or type, in this machine's byte order.

    Raises:
        DTypeError: It is not a dtype, or no runtime holds it.
    """
    if isinstance(dtype, str) and dtype in EXTENDED:
        # ml_dtypes comes with jax. Import it only for such a name, because that takes time.
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, dtype))
    try:
        converted = np.dtype(dtype)
    except TypeError:
        raise DTypeError(f"unknown dtype {dtype!r}; known are {', '.join(NAMES)}") from None
    if converted.name not in NAMES:
        raise DTypeError(
            f"no runtime holds dtype {converted}; convert the array to one of {', '.join(NAMES)}"
        )
    return converted.newbyteorder("=")


def as_array(x: Any) -> np.ndarray:
    """A NumPy array of a dtype that runtimes hold, copied only if the byte order differs.

    Raises:
        DTypeError: Object arrays, text, dates and other types that no runtime holds; masked arrays.
        InvalidArgumentError: A value that JAX traces.
    """
    if isinstance(x, np.ma.MaskedArray):
        raise DTypeError(
            "no runtime holds the mask of a masked array; fill it first, for instance with "
            "x.filled(0)"
        )
    if is_traced(x):
        raise InvalidArgumentError(
            f"a host array is required, got a {type(x).__name__}: the function is traced (jax.jit, "
            "jax.grad, a program), and its values have no elements yet; place arrays outside of it"
        )
    array = np.asarray(x)
    if array.dtype.kind == "O":
        large = [v for v in array.flat if isinstance(v, int) and not -(2**63) <= v < 2**64]
        if large:
            raise DTypeError(
                "no runtime holds whole numbers of more than 64 bits, got one of "
                f"{large[0].bit_length()} bits; make it a float, which rounds it"
            )
        raise DTypeError(
            "no runtime holds arrays of Python objects; build the array with a numeric "
            "dtype, for instance np.array(x, dtype=np.float32)"
        )
    return array.astype(as_dtype(array.dtype), copy=False)


ALIGNMENT = 64  # bytes; XLA's CPU client takes over memory with this alignment only


def aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """An array in new memory that XLA can take over on a CPU; its elements are not set."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def is_traced(x: object) -> bool:
    """Whether this is a value of a function that JAX traces (`jax.jit`); it has no elements."""
    jax = sys.modules.get("jax")  # without it nothing is traced
    return jax is not None and isinstance(x, jax.core.Tracer)


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether a type rounds: real and complex floats, also those that NumPy itself lacks."""
    return dtype.kind in "fc" or dtype.name in EXTENDED


def wide(array: np.ndarray) -> np.ndarray:
    """An array in float64, or in complex128 if it is complex."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


@functools.cache
def finfo(dtype: np.dtype[Any]) -> Any:
    """`numpy.finfo` for every float and complex type that runtimes hold."""
    if dtype.name not in EXTENDED:
        return np.finfo(dtype)
    import ml_dtypes

    return ml_dtypes.finfo(dtype)
