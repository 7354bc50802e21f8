"""Messages from this process to its supervisor; no-ops if `pyreactant run` did not start it."""

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from .. import progress

if TYPE_CHECKING:
    from ...base.errors import PyReactantError
    from ..events import Event
    from .link import Link

connection: "Link | None" = None
"""The connection to the supervisor; `main` sets it before the program starts."""

initializes = False
"""Whether the program has called JAX's initialize, with whatever arguments."""

at_end: Callable[[int], None] | None = None
"""What `main` calls with the program's exit code before it reports that; it may raise."""

_RUNTIMES = ("jax", "juliacall")
"""Modules that a program with a runtime has imported."""

_BEGIN, _END = 4000, 8000
"""Characters of a traceback that are kept of its two ends; a message has a limit.

The end says most, unless it is the text of an exception, which can be longer than that.
"""


def tell(event: "Event") -> None:
    """Tell the supervisor of an event in this process."""
    if connection is not None:
        connection.tell(event)


def tell_phase(phase: str, code: int | None = None) -> None:
    """Tell the supervisor that this process has reached a phase; "ending" has its exit code."""
    if connection is not None:
        from ..events import Phase  # a command without a supervisor starts sooner

        if code is not None:
            _tell_compiled()
        loaded = code is not None and not sys.modules.keys().isdisjoint(_RUNTIMES)
        tell(Phase(phase, progress.collectives, code, loaded and not initializes))


def tell_error(error: BaseException) -> None:
    """Report the exception that ends the program."""
    if connection is None:
        return
    from ..events import Raised

    _tell_compiled()
    tell(Raised.of(error, traceback=_shortened(_traceback(error))))


def end_with(error: "PyReactantError") -> NoReturn:
    """End this program by an error whose traceback says no more, such as a full disk."""
    from ...base.say import say
    from ..events import Raised

    tell(Raised.of(error, traceback=""))
    say(f"error: {error}")
    os._exit(error.exit_code)


def _tell_compiled() -> None:
    from .. import compilations  # as above

    counts = compilations.counts
    if counts.compiled or counts.loaded or counts.cache:
        tell(counts)


def _traceback(error: BaseException) -> str:
    try:
        import traceback
    except (ImportError, OSError):  # such as a program that may not open another file
        return ""  # Python prints it all the same, into the log
    return "".join(traceback.format_exception(error))


def _shortened(text: str) -> str:
    left_out = len(text) - _BEGIN - _END
    if left_out <= 0:
        return text
    return f"{text[:_BEGIN]}\n... {left_out} characters are left out ...\n{text[-_END:]}"
