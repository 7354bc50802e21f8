"""This process's word to its supervisor, if `pyreactant run` started it; else nothing happens.

Everything here is cheap enough to stand in every call of a compiled program.
"""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._link import Link

link: "Link | None" = None
"""The connection to the supervisor; set by `_main` before the program starts."""

collectives = 0
"""How many collective operations this process has begun."""

waiting = 0
"""How many operations it is in now that may wait for other processes."""


def tell(kind: str, **message: Any) -> None:
    """Say something to the supervisor."""
    if link is not None:
        link.tell(kind, **message)


@contextlib.contextmanager
def collective() -> Iterator[None]:
    """Count what every process must take part in."""
    global collectives, waiting
    collectives += 1
    waiting += 1
    try:
        yield
    finally:
        waiting -= 1
