"""This process: its limit of open files, its threads, what it asks of the kernel, and its end.

A runtime's exit hooks wait minutes for other processes, so a process that failed ends without them.
"""

import contextlib
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, TypeVar

from .errors import RequirementError, code_of

if TYPE_CHECKING:
    from concurrent.futures import Future

LIKE_SIGTERM = (signal.SIGHUP, signal.SIGQUIT)
"""Sent by a closed terminal and by Ctrl-\\; they end what SIGTERM ends."""

Answer = TypeVar("Answer")


def die_with_parent() -> None:
    """From now on the kernel kills this process when its parent dies; also after an exec."""
    if sys.platform == "linux":
        import ctypes  # a command's --help does not wait for it

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


_soft_before: int | None = None
"""The soft limit before it was raised."""


def raise_limit(needed: int, what: str, *, spare: int = 0) -> None:
    """Raise the soft limit of open files of this process, if it is too low.

    Args:
        spare: Number of further files for which the limit is raised if that is possible.

    Raises:
        RequirementError: The hard limit is lower.
    """
    global _soft_before
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = hard == resource.RLIM_INFINITY
    wanted = needed + spare if unlimited else min(needed + spare, hard)
    if not unlimited and hard < needed:
        raise RequirementError(
            f"{what} need {needed} open files, but the limit is {hard} (ulimit -Hn); raise it "
            f"with ulimit -n {needed}, or ask the administrator of this machine to"
        )
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    _soft_before = soft if _soft_before is None else _soft_before


def restore_limit(pid: int) -> None:
    """Give a child the limit that this process had: some programs close or visit every number."""
    if _soft_before is not None and hasattr(resource, "prlimit"):
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (_soft_before, hard))
        except ProcessLookupError:
            pass  # it has ended already


def in_thread(call: Callable[[], Answer]) -> "Future[Answer]":
    """Call in a thread that does not keep this process from ending; its answer or error."""
    from concurrent.futures import Future  # a command's --help does not wait for it

    future: Future[Answer] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return future


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
        end_at_once(code_of(value))

    sys.excepthook = hook
