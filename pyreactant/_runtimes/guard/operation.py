"""What one operation of a process is, for comparison with the other processes."""

import hashlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

PLACEMENTS = ("device_put", "from_callback", "from_process_local", "from_jax")
"""Kinds of operations that place arrays. The caller's line is part of them."""

VALUES = "digest of the values"
"""The field with the digest of the values; it is not part of `Operation.key`."""

PROGRAM = "program"
"""The field with the digest of a program; where it differs, `Operation.text` is shown."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation; equal digests mean that processes do the same.

    Attributes:
        kind: Such as "device_put", "compile", "run", "gather", "barrier".
        what: For people, such as the name of the program. Not compared.
        fields: Names and values that are compared, in the order in which differences are named.
        line: The caller, such as "train.py:12". Compared only if the operation places an array.
        text: The StableHLO of a program.
        key: Digest of all that is compared, without the values; 64 bits.
        digest: Digest of all that is compared; 64 bits.
    """

    kind: str
    what: str
    fields: tuple[tuple[str, str], ...]
    line: str
    text: Callable[[], str] | None = field(default=None, compare=False, repr=False)
    key: int = field(init=False)
    digest: int = field(init=False)

    def __post_init__(self) -> None:
        parts = [self.kind, self.line if self.kind in PLACEMENTS else ""]
        values = [value for name, value in self.fields if name == VALUES]
        parts += [part for pair in self.fields if pair[0] != VALUES for part in pair]
        object.__setattr__(self, "key", digest_of(parts))
        object.__setattr__(self, "digest", digest_of([*parts, *values]) if values else self.key)


def digest_of(parts: list[str]) -> int:
    """A 64-bit digest of texts, equal on every process (Python's own hash is not)."""
    data = "\0".join(f"{len(part)} {part}" for part in parts)
    found = hashlib.blake2b(data.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(found, "little")


_PACKAGE = str(Path(__file__).resolve().parents[2]) + os.sep


def caller_line() -> str:
    """File and line of the innermost caller outside pyreactant, such as "train.py:12".

    Call it before anything of another package calls back, or that package's line is found.
    """
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_back is not None:
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"  # noqa: PTH119
