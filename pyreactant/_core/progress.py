"""What this process is doing, for its supervisor: collective operations begun, and waiting.

`pyreactant run` reads these counts to tell a process that waits for others from one that has
left them. Counting is cheap enough for every call of a compiled program.
"""

import contextlib
from collections.abc import Callable, Iterator

collectives = 0
"""Collective operations that this process has begun."""

waiting = 0
"""Operations in progress that may wait for other processes."""


observe: Callable[[str, str], None] | None = None
"""The guard's: takes the kind and the description of each gather and barrier."""


def collective(kind: str, what: str) -> contextlib.AbstractContextManager[None]:
    """Count an operation that every process must take part in, and let the guard compare it."""
    if observe is not None:
        observe(kind, what)
    return _counted()


@contextlib.contextmanager
def _counted() -> Iterator[None]:
    global collectives, waiting
    collectives += 1
    waiting += 1
    try:
        yield
    finally:
        waiting -= 1
