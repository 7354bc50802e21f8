"""64-bit types in JAX, which truncates them while its setting x64 is off.

pyreactant leaves the setting alone. What holds a 64-bit type is placed, traced, compiled and
called under `jax.enable_x64(True)`, everything else under the user's setting.
"""

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import numpy as np

from ....base.errors import DTypeError
from ...backend import Call

WIDE = frozenset({"int64", "uint64", "float64", "complex128"})

_config: Any = jax.config  # its attributes are made at run time
_UNCHANGED = contextlib.nullcontext()


def is_on() -> bool:
    """Whether JAX holds 64-bit types in this thread now."""
    return bool(_config.jax_enable_x64)


def may_hold() -> bool:
    """Whether arrays may have 64-bit types; JAX_ENABLE_X64=0 in the environment forbids them."""
    text = os.environ.get("JAX_ENABLE_X64", "").strip().lower()
    return text in ("", "1", "true", "t", "yes", "y", "on")


def context(wide: bool) -> Any:
    """A context in which 64-bit types stay, if `wide`; otherwise the user's setting."""
    return jax.enable_x64(True) if wide and not is_on() else _UNCHANGED


_alone = threading.RLock()


@contextlib.contextmanager
def in_all_threads() -> Iterator[None]:
    """A context in which 64-bit types stay in every thread of this process.

    XLA calls Python callbacks in threads of its own, which do not inherit the calling thread's
    setting; they would get truncated values, and a program on several devices would hang.
    """
    with _alone:
        before = _config.jax_enable_x64
        jax.config.update("jax_enable_x64", True)
        try:
            yield
        finally:
            jax.config.update("jax_enable_x64", before)


def is_wide(dtype: Any) -> bool:
    """Whether a dtype has 64-bit elements (of complex types, 64-bit parts)."""
    return getattr(dtype, "name", "") in WIDE


def number(value: bool | int | float | complex) -> np.ndarray:
    """A number of Python in JAX's default type: of 32 bits while x64 is off, if it fits."""
    array = np.asarray(value)
    if is_on() or not is_wide(array.dtype):
        return array
    if array.dtype.kind in "iu":
        short = np.iinfo(np.int32).min <= value <= np.iinfo(np.int32).max  # type: ignore[operator]
        return array.astype(np.int32) if short else array
    return array.astype(np.float32 if array.dtype.kind == "f" else np.complex64)


def is_needed(call: Call) -> bool:
    """Whether a program must be traced with 64-bit types.

    An argument has one, or a static value is a NumPy number of one. Python's numbers do not
    count, `numpy.float64` does although it is a `float`.
    """
    if not may_hold():
        return False
    static = (value for item in call.static.values() for value in _flat(item))
    return (
        call.x64
        or any(is_wide(aval.dtype) for aval in call.avals)
        or any(isinstance(v, (np.generic, np.ndarray)) and is_wide(v.dtype) for v in static)
    )


def _flat(value: Any) -> Iterable[Any]:
    if isinstance(value, tuple):
        for part in value:
            yield from _flat(part)
    else:
        yield value


def check_widths(call: Call, outputs: Iterable[Any]) -> None:
    """Check that 64-bit integers did not make 32-bit floats wider.

    Raises:
        DTypeError: All 64-bit arguments are integers, some argument is floating, and an output is
            wider than every floating argument.
    """
    wide = [i for i, aval in enumerate(call.avals) if is_wide(aval.dtype)]
    floating = [a.dtype for a in call.avals if _is_floating(a.dtype)]
    if call.x64 or is_on() or not wide or not floating:  # asked for, or the user's own setting
        return
    if any(call.avals[i].dtype.kind not in "iu" for i in wide):
        return
    widest = max(_bits(dtype) for dtype in floating)
    for output in outputs:
        if _is_floating(output.dtype) and _bits(output.dtype) > widest:
            which = ", ".join(
                f"argument {i} ({call.avals[i].dtype}{list(call.avals[i].shape)})" for i in wide
            )
            raise DTypeError(
                f"program {call.program.name!r} gives a {output.dtype} result from floating "
                f"arguments of at most {widest} bits, because {which} has 64-bit integers and "
                "JAX's x64 mode is on for it; give int32 instead, or compile with x64=True if the "
                "wider result is wanted"
            )


def _is_floating(dtype: Any) -> bool:
    return jax.numpy.issubdtype(dtype, np.inexact)


def _bits(dtype: Any) -> int:
    size = int(dtype.itemsize) * 8
    return size // 2 if dtype.kind == "c" else size
