"""The StableHLO file of a program: read as it is now, and its arguments without a parser.

The JAX runtime parses the module with MLIR; a process that only starts others reads it here.
"""

import functools
import hashlib
import os
import re
import stat
import time
from pathlib import Path

from ..base.errors import FileError, InvalidArgumentError
from .program import Program

LIMIT = 256 * 2**20
"""Bytes that a StableHLO file may have."""

_ARGUMENT = re.compile(r"%[\w$.-]+\s*:\s*tensor<((?:[^<>]|<[^<>]*>)*)>")
_TENSOR = re.compile(r"((?:\d+x)*)([a-zA-Z].*)")
_DTYPES = {"i1": "bool", "complex<f32>": "complex64", "complex<f64>": "complex128"}


def label(program: Program) -> str:
    """The program and its file in the words of a message."""
    return f"Program {program.name!r}: the StableHLO file {program.stablehlo!r}"


_SETTLED = 2.0
"""Seconds after which a file's times tell a later change from this one, on any file system."""


def state(program: Program) -> str:
    """A digest of the program's file; the file is read again if it may have changed.

    Size and time of modification may be those of the file that it replaces, but not the time of
    the change itself, once that is a while ago.

    Raises:
        FileError: It cannot be read, is not a file, or is larger than `LIMIT`.
    """
    facts = _facts(program)
    if time.time() - facts.st_ctime < _SETTLED:
        return digest(read(program))
    changes = facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns
    return _digest_of(program, changes)


@functools.lru_cache(maxsize=256)
def _digest_of(program: Program, changes: tuple[int, ...]) -> str:
    return digest(read(program))


def _facts(program: Program) -> os.stat_result:
    """What the system says of the program's file; raises as `state`."""
    what = label(program)
    try:
        facts = _path(program).stat()
    except (OSError, ValueError) as error:
        raise FileError(f"{what} cannot be read ({_reason(error)}); correct its path") from None
    if not stat.S_ISREG(facts.st_mode):
        raise FileError(f"{what} is not a file; give the path of a module as text")
    if facts.st_size > LIMIT:
        raise FileError(
            f"{what} has {facts.st_size / 2**20:.0f} MiB, but may have {LIMIT // 2**20}; turn its "
            "large constants into arguments"
        )
    return facts


def read(program: Program) -> bytes:
    """The program's file; raises as `state`."""
    _facts(program)
    try:
        return _path(program).read_bytes()
    except OSError as error:
        raise FileError(f"{label(program)} cannot be read ({_reason(error)})") from None


def digest(data: bytes) -> str:
    """A digest of a file, in 32 hexadecimal digits."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def arguments(program: Program, data: bytes) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Shape and element type of each argument of the function @main in a file's data.

    Raises:
        InvalidArgumentError: There is no function @main, or a shape is not fixed.
    """
    text = data.decode("utf-8", "replace")
    start = re.search(r"func\.func\s+(?:public\s+)?@\"?main\"?\s*\(", text)
    if start is None:
        raise InvalidArgumentError(
            f"{label(program)} has no function @main; export it as text, for instance with "
            "jax.jit(f).lower(...).as_text() or Reactant's @code_hlo"
        )
    listed = text[start.end() : _end(text, start.end())]
    return tuple(_tensor(program, argument) for argument in _ARGUMENT.findall(listed))


def mlir_dtype(text: str) -> str:
    """This package's name of an element type of MLIR, or MLIR's if there is none."""
    if text in _DTYPES:
        return _DTYPES[text]
    if number := re.fullmatch(r"(u|s)?i(\d+)", text):
        return f"{'u' if number[1] == 'u' else ''}int{number[2]}"
    if number := re.fullmatch(r"(b?)f(\d+)", text):
        return f"{'b' if number[1] else ''}float{number[2]}"
    eight = re.fullmatch(r"f8(E\w+)", text)
    return f"float8_{eight[1].lower()}" if eight else text


def _tensor(program: Program, text: str) -> tuple[tuple[int, ...], str]:
    match = _TENSOR.fullmatch(text.split(",")[0].strip())
    if match is None:
        raise InvalidArgumentError(
            f"{label(program)} has an argument tensor<{text}>; a program must have fixed "
            "shapes: export it for the shapes that it will run with"
        )
    return tuple(map(int, match[1].split("x")[:-1])), mlir_dtype(match[2])


def _end(text: str, start: int) -> int:
    """Where the parenthesis closes that is open at `start`; text in quotes does not count."""
    depth = 1
    for token in re.compile(r'"(?:[^"\\]|\\.)*"|[()]').finditer(text, start):
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        if not depth:
            return token.start()
    return len(text)


def _path(program: Program) -> Path:
    assert program.stablehlo is not None
    return Path(program.stablehlo).expanduser()


def _reason(error: Exception) -> str:
    errno = getattr(error, "errno", None)
    return os.strerror(errno) if errno else str(error)
