"""The operations of one thread in their order, with a digest of the order so far."""

import hashlib
import re
import threading
from collections.abc import Sequence
from dataclasses import replace

from .operation import Operation, digest_of

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
        exchanged: Number of the operation that was announced last, if any.
        compared: Whether the order is the same on every process; not in threads without a name of
            their own.
        made: Number of the next array that this thread makes; the thread's name is part of it.
    """

    __slots__ = (
        "_base_digest",
        "_lock",
        "_mark",
        "agreed",
        "base",
        "compared",
        "exchanged",
        "history",
        "id",
        "made",
        "name",
        "takes",
        "turn",
    )

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
            digest = self._mixed(digest, start, count)
            self._mark = max(self._mark, (count, digest))
            return digest

    def digests_at(self, counts: Sequence[int]) -> list[int]:
        """As `digest_at`, for ascending counts."""
        with self._lock:
            start, digest = self.base, self._base_digest
            found = []
            for count in counts:
                digest = self._mixed(digest, start, count)
                start = count
                found.append(digest)
            return found

    def operation(self, number: int) -> Operation | None:
        """The operation of this number, of at least `base`; None if it is yet to come."""
        with self._lock:
            index = number - self.base
            if index >= len(self.history):
                return None
            return self._described(self.history[index], self.takes[index])

    def _mixed(self, digest: int, start: int, stop: int) -> int:
        """A digest, and the operations of these numbers."""
        part = slice(start - self.base, stop - self.base)
        for operation, arrays in zip(self.history[part], self.takes[part], strict=True):
            taken = operation.digest
            for array in arrays:
                taken = (taken * _ODD ^ array) & _MASK
            digest = (digest * _ODD ^ taken) & _MASK
        return digest

    def _described(self, operation: Operation, arrays: tuple[int, ...]) -> Operation:
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
