"""What this process is doing, for its supervisor: collective operations begun, and waiting.

`pyreactant run` reads these counts to tell a process that waits for others from one that has
left them. Counting is cheap enough for every call of a compiled program.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

collectives = 0
"""Collective operations that this process has begun."""

waiting = 0
"""Operations in progress that may wait for other processes."""

saving = 0
"""Checkpoints that this process is writing or reading, in whichever threads."""

stored = 0
"""Blocks of checkpoints that it has written or read."""

_lock = threading.Lock()  # of `saving`

gathered: Callable[[str, int], object] | None = None
"""The guard's: takes the description and number of each array that is gathered."""


compiled: Callable[[Any], None] | None = None
"""The guard's: takes what the runtime compiles for the user, as an operation, before it does."""


failed: Callable[[], None] | None = None
"""The guard's: called when a collective failed; raises if the processes differ."""


@contextlib.contextmanager
def collective() -> Iterator[None]:
    """Count an operation that every process must take part in."""
    global collectives, waiting
    collectives += 1
    waiting += 1
    try:
        yield
    except Exception:
        if failed is not None:
            failed()
        raise
    finally:
        waiting -= 1


@contextlib.contextmanager
def storing() -> Iterator[None]:
    """Count a checkpoint that is written or read."""
    global saving
    with _lock:
        saving += 1
    try:
        yield
    finally:
        with _lock:
            saving -= 1


def store_block() -> None:
    """Count a block that was written or read."""
    global stored
    stored += 1
