"""The operations of this process, as the guard compares them."""

import hashlib
import sys
from collections.abc import Mapping, Sequence
from types import CodeType
from typing import Any

import numpy as np

from ..._core.array import Aval
from ..._core.backend import Call, Lowered
from .operation import PROGRAM, VALUES, Operation, caller_line
from .program import program_digest

_ALL = 1 << 20
"""Bytes: of larger arrays `device_put` compares as many, at equal distances."""


def placing(kind: str, aval: Aval, array: np.ndarray | None = None) -> Operation:
    """An array that is placed.

    Args:
        kind: The function, such as "device_put".
        aval: Shape, dtype and sharding.
        array: The global array if every process gives it; its values are compared then.
    """
    fields = [*_described(aval)]
    if array is not None:
        fields.append((VALUES, values_digest(array)))
    return Operation(kind, "", tuple(fields), caller_line())


def compiling(call: Call, lowered: Lowered) -> Operation:
    """A program that is compiled, after it was lowered."""
    arguments = [
        (f"argument {number} {name}", value)
        for number, aval in enumerate(call.avals)
        for name, value in _described(aval)
    ]
    fields = [
        *arguments,
        ("structure of the arguments", str(call.structure)),
        ("static values", _static(call.static)),
        ("out_sharding", str(call.out_sharding)),
        ("precision", str(call.precision)),
        ("donate", str(call.donate)),
        (PROGRAM, program_digest(lowered.text)),
    ]
    line = caller_line()
    return Operation("compile", call.program.name, tuple(fields), line, lambda: lowered.text)


class Calls:
    """The calls of one compiled program, an operation for each line that calls it."""

    __slots__ = ("_compiled", "_operations")

    def __init__(self, compiled: Operation) -> None:
        self._compiled = compiled
        self._operations: dict[tuple[int, int], tuple[Operation, CodeType]] = {}

    def here(self) -> Operation:
        """The operation of a call from the caller's caller; quick, as it is part of every call."""
        frame = sys._getframe(2)
        code = frame.f_code
        # The code object itself takes longer to hash; it is kept, so that its id stays its own.
        key = (id(code), frame.f_lasti)
        found = self._operations.get(key)
        if found is None:
            program = (("program", f"{self._compiled.digest:016x}"),)
            what = f"{self._compiled.what} (compiled at {self._compiled.line})"
            operation = Operation("run", what, program, caller_line())
            found = self._operations[key] = (operation, code)
        return found[0]


def gathering(what: str) -> Operation:
    """An array that is gathered, by its description."""
    return Operation("gather", what, (("of", what),), caller_line())


def values_digest(array: np.ndarray) -> str:
    """A digest of an array's values: of all bytes up to 1 MiB, of 1 MiB of larger arrays."""
    some = array if array.nbytes <= _ALL else _sample(array)
    digest = hashlib.blake2b(digest_size=8)
    digest.update(np.ascontiguousarray(some).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _sample(array: np.ndarray) -> np.ndarray:
    """About 1 MiB of a large array, the same elements whatever its memory order."""
    step = -(-array.nbytes // _ALL)
    return array[np.unravel_index(np.arange(0, array.size, step), array.shape)]


def _described(aval: Aval) -> Sequence[tuple[str, str]]:
    sharding = aval.sharding
    return (
        ("shape", str(aval.shape)),
        ("dtype", str(aval.dtype)),
        ("mesh", repr(sharding.mesh)),
        ("spec", str(sharding.spec)),
    )


def _static(static: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in static.items())
