"""What a long command does now, and how far it is: told to whoever listens, by default nobody."""

import contextlib
from collections.abc import Callable, Iterator
from enum import IntEnum

Listener = Callable[[str], None]


class Level(IntEnum):
    """How much a command says beside its result."""

    QUIET = 0
    USUAL = 1
    VERBOSE = 2


level = Level.USUAL
"""What the command line asks for; nothing else sets it."""

_listener: Listener | None = None


def step(what: str, number: int = 0, total: int = 0) -> None:
    """Tell what begins now.

    Args:
        what: Such as "compiling".
        number: Which step of `total` it is, from 1.
        total: Number of such steps; 0 if they are not counted. One step has no number.
    """
    if _listener is not None:
        _listener(f"{what}, {number} of {total}" if total > 1 else what)


@contextlib.contextmanager
def told_to(listener: Listener) -> Iterator[bool]:
    """Tell a listener of the steps within the block.

    Within another such block only the outer listener is told.

    Yields:
        Whether this listener is told.
    """
    global _listener
    if _listener is not None:
        yield False
        return
    _listener = listener
    try:
        yield True
    finally:
        _listener = None
