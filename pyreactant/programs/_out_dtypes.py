"""Expected element types of the results of a user's program."""

from typing import Any

import numpy as np

from .._core.dtypes import EXTENDED, NAMES, as_dtype

INTEGERS = tuple(name for name in NAMES if "int" in name)


def out_dtypes(program: str, given: np.dtype[Any], result: np.dtype[Any]) -> tuple[str, ...]:
    """The element types that a result may have.

    It has the program's type, or its complex or real partner; a narrower one if the oracle
    converts to it. NumPy may also compute in a wider type than the program, so both are accepted
    then. Comparisons give bool, and indices any integer type, because runtimes differ in it.

    Args:
        program: Name of the program's element type.
        given: Type of the oracle's arguments; float64 if NumPy lacks the program's type.
        result: Type of the oracle's result.
    """
    if result.kind == "b":
        return ("bool",)
    if result.kind in "iu":
        return INTEGERS
    if given.kind in "biu":  # quotients and means of integers
        return ("complex64", "complex128") if result.kind == "c" else ("float32", "float64")
    own = _partner(as_dtype(program), result.kind).name
    usual = _partner(given, result.kind)
    if result == usual:
        return (own,)
    if program in EXTENDED or result.itemsize > usual.itemsize:
        return (own, result.name)
    return (result.name,)


def _partner(dtype: np.dtype[Any], kind: str) -> np.dtype[Any]:
    """The complex type of a real one, or the real one of a complex one."""
    if kind == "c":
        return np.result_type(np.complex64, dtype if dtype.name not in EXTENDED else np.float16)
    return np.empty(0, dtype).real.dtype if dtype.kind == "c" else dtype
