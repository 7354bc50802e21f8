"""End a process without its exit hooks: those of a runtime wait minutes for other processes."""

import contextlib
import os
import sys
from types import TracebackType
from typing import NoReturn

from .._errors import PyReactantError


def flush_output() -> None:
    """Flush standard output and standard error; a closed stream is skipped."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # closed, never open, or the user's own class
            stream.flush()


def end_at_once(code: int) -> NoReturn:
    """End this process without exit hooks; its output is kept."""
    flush_output()
    os._exit(code)


def end_at_once_on_error() -> None:
    """From now on an uncaught exception ends this process at once.

    Otherwise the process that raised waits at XLA's exit barrier for the others to shut down (300 s
    with JAX's defaults), and they wait for it. The traceback is printed first; the others see the
    connection close.
    """
    previous = sys.excepthook

    def hook(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        previous(kind, value, trace)
        if isinstance(value, PyReactantError):
            end_at_once(value.exit_code)
        end_at_once(1 if isinstance(value, Exception) else 130)

    sys.excepthook = hook
