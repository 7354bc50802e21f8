"""What one operation of a process is, for comparison with the others, and the order of a thread's.

A digest of the order so far says whether two processes did the same.
"""

import hashlib
import os
import re
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CodeType, FrameType

import numpy as np

from ...backend import Call, Lowered, is_out_sharding
from ...sharding import Aval
from ...tree import Trees

PLACEMENTS = ("device_put", "from_callback", "from_process_local", "from_jax")
"""Kinds of operations that place arrays. The caller's line is part of them."""

VALUES = "digest of the values"
"""The field with the digest of the values; it is not part of `Operation.key`."""

PROGRAM = "program"
"""The field with the digest of a program; where it differs, `Operation.text` is shown."""


_ALL = 1 << 20
"""Bytes: of larger arrays `device_put` compares as many, at equal distances."""


def digest_of(parts: list[str]) -> int:
    """A 64-bit digest of texts, equal on every process; Python's own hash is not."""
    data = "\0".join(f"{len(part)} {part}" for part in parts)
    digest = hashlib.blake2b(data.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


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


_PACKAGE = str(Path(__file__).resolve().parents[3]) + os.sep


def caller_line() -> str:
    """File and line of the innermost caller outside pyreactant, such as "train.py:12".

    Call it before anything of another package calls back, or that package's line is found.
    """
    return _line(_outside(sys._getframe(1), _PACKAGE))


def _outside(frame: FrameType, *folders: str) -> FrameType:
    """The innermost frame, from this one on, of code that lies in none of these folders."""
    while frame.f_code.co_filename.startswith(folders) and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _line(frame: FrameType) -> str:
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"  # noqa: PTH119


_MODULE = re.compile(r"^( *)module @(\S+)", re.MULTILINE)
_LOCATION_LINE = re.compile(r"^#loc\d* = .*\n?", re.MULTILINE)
_LOCATION = re.compile(r" loc\((?:#loc\d*|unknown|\"(?:[^\"\\]|\\.)*\"[^()\n]*)\)")


def canonical(text: str) -> str:
    """StableHLO text without what differs between processes that run the same program.

    The module's name and locations in source files are removed. Nothing else differs: JAX numbers
    Python callbacks per program (jax 0.10.2 and 0.12). Large constants are skipped, not read.
    """
    match = _MODULE.search(text, 0, _start_of_body(text))
    if match:
        text = f"{text[: match.start()]}{match[1]}module{text[match.end() :]}"
    if "\n#loc" in text or text.startswith("#loc"):
        text = _LOCATION.sub("", _LOCATION_LINE.sub("", text))
    return text


def program_digest(text: str) -> str:
    """A digest of StableHLO text, in 32 hexadecimal digits."""
    return hashlib.blake2b(canonical(text).encode(), digest_size=16).hexdigest()


def _start_of_body(text: str) -> int:
    """Where the first function begins; large constants come later."""
    start = text.find("func.func")
    return start if start >= 0 else len(text)


def placing(kind: str, aval: Aval, array: np.ndarray | None = None) -> Operation:
    """A placement; its values are compared if every process gives the whole array."""
    fields = [*_fields_of(aval)]
    if array is not None:
        fields.append((VALUES, values_digest(array)))
    return Operation(kind, "", tuple(fields), caller_line())


def compiling(call: Call, lowered: Lowered, trees: Trees) -> Operation:
    """A program that is compiled, after it was lowered.

    Of static values the numbers and texts are named where they differ. What others change, and the
    trees of arguments and results, is in the program's text.
    """
    static = [f"{name}={value!r}" for name, value in call.static.items() if _is_plain(value)]
    outs, _ = trees.flatten(call.out_sharding, is_out_sharding)
    fields = [
        *(
            (f"argument {number} {name}", value)
            for number, aval in enumerate(call.avals)
            for name, value in _fields_of(aval)
        ),
        ("static values", ", ".join(static)),
        ("out_sharding", ", ".join(map(str, outs))),
        ("precision", str(call.precision)),
        ("donate", str(call.donate)),
        (PROGRAM, program_digest(lowered.text)),
    ]
    line = caller_line()
    return Operation("compile", call.program.name, tuple(fields), line, lambda: lowered.text)


def _is_plain(value: object) -> bool:
    """Whether a value has the same `repr` on every process; that of a function has its address."""
    if type(value) is tuple:
        return all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, float, complex, str)


def jitting(text: str, folder: str) -> Operation | None:
    """A program that a runtime compiles for its user; None for one that pyreactant needs itself.

    Args:
        text: Its StableHLO.
        folder: Where the runtime's own code lies.
    """
    caller = sys._getframe(1)
    frame = _outside(_outside(caller, _PACKAGE), folder + os.sep)
    if frame.f_code.co_filename.startswith(_PACKAGE):
        return None
    name = _MODULE.search(text, 0, _start_of_body(text))
    what = name[2] if name else ""
    return Operation(
        "compile", what, ((PROGRAM, program_digest(text)),), _line(frame), lambda: text
    )


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
        entry = self._operations.get(key)
        if entry is None:
            program = (("program", f"{self._compiled.digest:016x}"),)
            what = f"{self._compiled.what} (compiled at {self._compiled.line})"
            operation = Operation("run", what, program, caller_line())
            entry = self._operations[key] = (operation, code)
        return entry[0]


def gathering(what: str) -> Operation:
    """An array that is gathered, by its description."""
    return Operation("gather", what, (("of", what),), caller_line())


def _fields_of(aval: Aval) -> Sequence[tuple[str, str]]:
    sharding = aval.sharding
    return (
        ("shape", str(aval.shape)),
        ("dtype", str(aval.dtype)),
        ("mesh", repr(sharding.mesh)),
        ("spec", str(sharding.spec)),
    )


_ODD = 0x9E3779B97F4A7C15  # odd, so that no operation is lost from the digest
_MASK = (1 << 64) - 1
_AUTOMATIC = re.compile(r"ThreadPoolExecutor-\d+_\d+|asyncio_\d+|Dummy-\d+|Thread-\d+( \(.*\))?")
_PLAIN = re.compile(r"[\w .()\-]{1,40}", re.ASCII)


class Stream:
    """The operations of the threads of one name; the processes' streams of this name must agree.

    `history` is appended to without a lock, because that is part of every call of a program. The
    digest is computed when it is asked for.

    Attributes:
        name: The thread's name.
        id: The name in keys and messages.
        history: The operations from number `base` on.
        takes: For each of them the numbers of the arrays that it takes; appended to first. Not one
            list of pairs, which Python's garbage collector would have to look at.
        base: Number of operations that all processes agree about, which are no longer held.
        turn: Held by the thread that announces an operation.
        agreed: Keys of the operations that all processes have announced.
        entered: Digests of the operations that are entered only once.
        exchanged: Number of the operation that was announced last, if any.
        compared: Whether the order is the same on every process; not in threads without a name of
            their own.
        made: Number of the next array that this thread makes; the thread's name is part of it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.id = stream_id(name)
        self.compared = not is_automatic(name)
        self.history: list[Operation] = []
        self.takes: list[tuple[int, ...]] = []
        self.made = digest_of([name]) >> 32 << 32  # of the low half, one for each array
        self.base = 0
        self.turn = threading.Lock()
        self.agreed: set[int] = set()
        self.entered: set[int] = set()
        self.exchanged: int | None = None
        self._base_digest = 0
        self._mark = (0, 0)  # a number of operations, and their digest
        self._lock = threading.Lock()  # of all but `history`, which only `trim` shortens

    @property
    def count(self) -> int:
        """Number of operations so far."""
        with self._lock:
            return self.base + len(self.history)

    def enter(self, operation: Operation) -> int:
        """Append an operation; its number, from 0."""
        with self._lock:
            self.takes.append(())
            self.history.append(operation)
            return self.base + len(self.history) - 1

    def digest_at(self, count: int) -> int:
        """Digest of the first `count` operations, of at least `base`."""
        with self._lock:
            start, digest = self._mark if self._mark[0] <= count else (self.base, self._base_digest)
            digest = self._mix(digest, start, count)
            self._mark = max(self._mark, (count, digest))
            return digest

    def operation(self, number: int) -> Operation | None:
        """The operation of this number, of at least `base`; None if it is yet to come."""
        with self._lock:
            index = number - self.base
            if index >= len(self.history):
                return None
            return self._with_arrays(self.history[index], self.takes[index])

    def _mix(self, digest: int, start: int, stop: int) -> int:
        """A digest, and the operations of these numbers."""
        part = slice(start - self.base, stop - self.base)
        for operation, arrays in zip(self.history[part], self.takes[part], strict=True):
            taken = operation.digest
            for array in arrays:
                taken = (taken * _ODD ^ array) & _MASK
            digest = (digest * _ODD ^ taken) & _MASK
        return digest

    def _with_arrays(self, operation: Operation, arrays: tuple[int, ...]) -> Operation:
        """An operation, with the arrays that it takes among its fields."""
        if not arrays:
            return operation
        names = ", ".join(
            f"array {(array & 0xFFFFFFFF) + 1}"
            + ("" if array >> 32 == self.made >> 32 else f" of thread {array >> 32:08x}")
            for array in arrays
        )
        return replace(operation, fields=(*operation.fields, ("takes", names)))

    def make(self, count: int) -> int:
        """Number of the first of `count` arrays that an operation of this thread makes."""
        first = self.made
        self.made = first + count
        return first

    def trim(self, count: int) -> None:
        """Note that all processes agree about the first `count` operations."""
        digest = self.digest_at(count)
        with self._lock:
            del self.history[: count - self.base], self.takes[: count - self.base]
            self.base, self._base_digest = count, digest


def is_automatic(name: str) -> bool:
    """Whether Python made up a thread's name.

    Its number depends on the threads that were started before, and a pool gives a task to any of
    its threads, so threads of such names do not match between processes.
    """
    return _AUTOMATIC.fullmatch(name) is not None


def stream_id(name: str) -> str:
    """A thread's name as part of a key: short and without a slash."""
    if _PLAIN.fullmatch(name):
        return name
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8)
    return f"~{digest.hexdigest()}"
