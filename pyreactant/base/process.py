"""This process: its limit of open files, its threads, what it asks of the kernel, and its end.

A runtime's exit hooks wait minutes for other processes, so a process that failed ends without them.
"""

import _thread
import contextlib
import gc
import io
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import FrameType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from .errors import RequirementError, code_of

if TYPE_CHECKING:
    from concurrent.futures import Future

LIKE_SIGTERM = (signal.SIGHUP, signal.SIGQUIT)
"""Sent by a closed terminal and by Ctrl-\\; they end what SIGTERM ends."""

Answer = TypeVar("Answer")
Handler = Callable[[int, FrameType | None], Any]


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


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Hold back Ctrl-C within the block; it comes at its end, also on an error.

    A handler holds it, so a child process is not born with the signal blocked. Nothing is held in
    another thread, where none arrives, nor if the program has a handler of its own.
    """
    before = signal.getsignal(signal.SIGINT)
    first = before.first if isinstance(before, _Noting) else before
    if first is not signal.default_int_handler:
        yield
        return
    came: list[int] = []
    try:
        with _handling(lambda number, _: came.append(number)):
            yield
    finally:
        if came:
            signal.raise_signal(signal.SIGINT)


@contextlib.contextmanager
def interrupts_noted() -> Iterator[list[int]]:
    """Note each Ctrl-C that comes within the block; it acts as before.

    A KeyboardInterrupt without one was raised by the code in the block itself.
    """
    before = signal.getsignal(signal.SIGINT)
    if not callable(before):  # ignored
        yield []
        return
    noting = _Noting(before)
    with _handling(noting):
        yield noting.came


class _Noting:
    """A handler that notes each signal, and does what the one before it does."""

    def __init__(self, before: Handler) -> None:
        self._before, self.came = before, list[int]()
        self.first: Handler = before.first if isinstance(before, _Noting) else before

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.came.append(number)
        self._before(number, frame)


@contextlib.contextmanager
def _handling(handler: Handler) -> Iterator[None]:
    """Handle Ctrl-C so within the block, in the one thread where it arrives."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        signal.signal(signal.SIGINT, handler)
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is handler:  # the block may have set its own
            signal.signal(signal.SIGINT, before)


def hold_interrupts_in(packages: str) -> None:
    """From now on Ctrl-C is held back while one of these packages loads.

    KeyboardInterrupt in the start of a compiled module crashes the process, or becomes an
    ImportError.

    Args:
        packages: Their names, separated by spaces.
    """
    sys.meta_path.insert(0, _Holder(frozenset(packages.split())))


def repeat_ignored_interrupts() -> None:
    """From now on Ctrl-C within a callback whose exceptions Python ignores is repeated after it.

    JAX has such a callback, which the garbage collector calls; the command would go on.
    """
    previous = sys.unraisablehook

    def hook(ignored: Any) -> None:
        if not issubclass(ignored.exc_type, KeyboardInterrupt):
            previous(ignored)
            return
        _thread.start_new_thread(repeat, ())  # `Thread.start` waits, and may be interrupted there

    def repeat() -> None:
        time.sleep(0.1)  # in which the hook ends
        os.kill(os.getpid(), signal.SIGINT)

    sys.unraisablehook = hook


class _Holder:
    """Finds modules as Python does; those of some packages load with interrupts held."""

    def __init__(self, packages: frozenset[str]) -> None:
        self._packages = packages

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] not in self._packages:
            return None
        spec = PathFinder.find_spec(name, path, target)
        loader: Any = spec and spec.loader
        if loader is not None:
            loader.create_module = _held(loader.create_module)
            loader.exec_module = _held(loader.exec_module)
        return spec


def _held(call: Callable[[Any], Answer]) -> Callable[[Any], Answer]:
    def held(argument: Any) -> Answer:
        with interrupts_held():
            return call(argument)

    return held


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


_FLUSH = 2.0
"""Seconds for what open files have not written yet; a pipe that is full may never take it."""


def flush_files() -> None:
    """Write what the open files of this process hold back, as Python does when it ends."""

    def flush() -> None:
        for thing in gc.get_objects():
            # Not by isinstance, which asks a proxy for its class.
            if issubclass(type(thing), (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)):
                with contextlib.suppress(Exception):  # closed, read only, or on a full disk
                    thing.flush()

    with contextlib.suppress(Exception):  # no more time, threads or memory
        in_thread(flush).result(_FLUSH)


def end_at_once(code: int) -> NoReturn:
    """End this process without exit hooks; its output and its open files are kept."""
    flush_output()
    flush_files()
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
