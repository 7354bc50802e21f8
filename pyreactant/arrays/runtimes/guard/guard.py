"""The guard of one process: takes its operations, and waits for those of the others.

A process that cannot raise, because it waits in a collective for one that differs, is ended here;
it may abort before the guard has found out, so abort() waits for that.
"""

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from ....base.errors import MismatchError, PyReactantError, StateError
from ....base.process import end_at_once, flush_output
from ....process import progress, supervised
from ...backend import Store
from .operation import Operation, Stream
from .tree import Tree, equal
from .watch import Watch

END = "end"
"""Kind of the last operation of a process."""


class Guard:
    """Checks that every process does the same operations in the same order.

    Operations are numbered per thread; the threads of the processes match by their Python names.

    Args:
        store: The run's store.
        process_index: This process.
        num_processes: Number of processes.
        namespace: Guards of different namespaces know nothing of each other.
        fail: Called in a thread of the guard when the processes differ, for a main thread that
            cannot raise because it waits in the runtime. From then on every operation raises.
        tick: Seconds between two comparisons in the background; None for what fits the number of
            processes, 0 for none.
    """

    def __init__(
        self,
        store: Store,
        process_index: int,
        num_processes: int,
        *,
        namespace: str = "guard",
        fail: Callable[[MismatchError], None],
        tick: float | None = None,
    ) -> None:
        self._names = f"{namespace}/thread"
        self._fail = fail
        self._error: PyReactantError | None = None
        self._failed = threading.Event()
        self._streams: dict[str, Stream] = {}
        self._lock = threading.Lock()  # of the streams
        self._local: Any = threading.local()  # `stream`
        self._pid = os.getpid()
        self._tree = partial(Tree, store, process_index, num_processes)
        self._watch = Watch(
            store,
            process_index,
            num_processes,
            name=f"{namespace}/watch",
            streams=self._all_streams,
            take_error=self._take_error,
        )
        if tick is None:
            tick = 0.25 if num_processes <= 64 else 0.5
        if tick:
            self._watch.start(tick)

    @property
    def error(self) -> MismatchError | None:
        """The error that every operation raises since the processes differ."""
        return self._error if isinstance(self._error, MismatchError) else None

    def ran(self, operation: Operation, arrays: tuple[int, ...] = (), made: int = 0) -> int:
        """Enter an operation that is about to run; waits for nobody.

        Args:
            operation: The operation.
            arrays: The numbers of the arrays that it takes.
            made: How many arrays it makes.

        Returns:
            The number of the first array that it makes.

        Raises:
            MismatchError: The processes differ, here or earlier.
        """
        if self._error is not None:
            self._raise_failure()
        try:
            stream: Stream = self._local.stream
        except AttributeError:
            stream = self._stream()
        if not stream.compared:
            return 0
        stream.takes.append(arrays)
        stream.history.append(operation)
        first = stream.made
        stream.made = first + made
        return first

    def ran_once(self, operation: Operation) -> None:
        """Enter an operation about to run, unless this thread entered an equal one; waits for none.

        JAX compiles a program again when its cache has dropped it, which is no difference.

        Raises:
            MismatchError: The processes differ, here or earlier.
        """
        stream = self._stream()
        if operation.digest in stream.entered:
            self._raise_failure()
        else:
            stream.entered.add(operation.digest)
            self.ran(operation)

    def announce(self, operation: Operation, made: int = 0) -> int:
        """Enter an operation; wait until every process has announced it. Collective.

        It waits for nobody if this thread has announced an operation with this `key` before.
        Arguments and result are as of `ran`.

        Raises:
            MismatchError: The processes differ, here or earlier.
            StateError: Two threads of one name do operations at the same time.
        """
        self._raise_failure()
        stream = self._stream()
        if not stream.compared:
            return 0
        if not stream.turn.acquire(blocking=False):
            raise StateError(
                f"two threads named {stream.name!r} do operations at the same time, but operations "
                "are compared between the processes by the names of their threads; give each "
                "thread a name of its own, the same on every process"
            )
        try:
            number = stream.enter(operation)
            if operation.key not in stream.agreed:
                self._agree(stream, number, operation)
                stream.agreed.add(operation.key)
        finally:
            stream.turn.release()
        return stream.make(made)

    def settle(self, timeout: float = 2.0) -> None:
        """Wait for the next comparison, after an error that another process may have caused.

        When one of the processes that differ ends, the collectives of the others fail. One that is
        gone compares nothing, hence the timeout.

        Raises:
            MismatchError: The processes differ.
        """
        compared = self._watch.hurry()
        deadline = time.monotonic() + timeout
        while not self._failed.wait(0.02) and time.monotonic() < deadline:
            if self._watch.compared > compared + 1:  # one that began later is complete
                break
        if self.error is not None:
            self._raise_failure()

    def end(self, timeout: float = 30.0) -> None:
        """Enter the end of this process's operations, and wait for the others'. Collective.

        A process that is only slow is no mismatch: if the time is over, this returns.

        Raises:
            MismatchError: The processes differ.
        """
        if os.getpid() != self._pid or self._watch.ending or self._watch.closed:
            return  # a fork, or called before
        self._raise_failure()
        self._stream_of(threading.main_thread().name).enter(Operation(END, "", (), ""))
        self._watch.end()
        deadline = time.monotonic() + timeout
        while not self._watch.finished.wait(0.1) and time.monotonic() < deadline:
            self._raise_failure()
        self._raise_failure()

    def close(self) -> None:
        """End the comparison in the background."""
        self._watch.close()

    def _agree(self, stream: Stream, number: int, operation: Operation) -> None:
        name = f"{self._names}/{stream.id}"
        mine = f"{operation.digest:016x}{stream.digest_at(number):016x}"

        def check() -> None:
            self._raise_failure()
            # Another process did the same without announcing it, so it is agreed in the background.
            if stream.base > number:
                raise _AgreedError

        tree = self._tree(check)
        try:
            verdict = tree.exchange(f"{name}/{number}", mine, equal)
        except _AgreedError:
            return
        if tree.index == 0:
            if stream.exchanged is not None:
                # All came to this exchange, so all have read the verdict of the one before.
                tree.store.delete(f"{name}/{stream.exchanged}")
            stream.exchanged = number
        if verdict is None:
            # Every process's watch compares this thread too; it finds the first difference.
            self._watch.hurry()
            while not self._failed.wait(0.25):
                pass
            self._raise_failure()

    def _stream(self) -> Stream:
        """The stream of this thread."""
        try:
            stream: Stream = self._local.stream
        except AttributeError:
            stream = self._local.stream = self._stream_of(threading.current_thread().name)
        return stream

    def _stream_of(self, name: str) -> Stream:
        with self._lock:
            return self._streams.setdefault(name, Stream(name))

    def _all_streams(self) -> list[Stream]:
        with self._lock:
            return [stream for stream in self._streams.values() if stream.compared]

    def _take_error(self, error: PyReactantError) -> None:
        self._error = error
        self._failed.set()
        if isinstance(error, MismatchError):
            self._fail(error)

    def _raise_failure(self) -> None:
        if self._error is not None:
            # A new one, because each raise adds to its traceback.
            raise type(self._error)(str(self._error))


class _AgreedError(Exception):
    """All processes have done the operation that is waited for."""


_STEP = 0.05  # seconds
_STEPS = 10
_STANDS = 100
"""Steps after which a main thread that stands still counts as waiting.

Calls of the runtime's own programs are not counted in `progress.waiting`.
"""
_SAVES = 1200
"""The same while the process has a checkpoint to write, of which no block is written either."""


class Terminator:
    """Ends the process if it waits in one collective for half a second after a mismatch.

    It also ends it if the main thread stands in one place for five seconds; while the process
    writes or reads a checkpoint, for a minute in which no block is written or read.

    It is the `fail` of a `Guard`, and goes on looking until `close`: a process that computes when
    the mismatch is found may wait later. Until then abort() is delayed too.
    """

    def __init__(self) -> None:
        self._closed = threading.Event()
        self._aborts = AbortsDelayed()

    def close(self) -> None:
        """Let the process go on, whatever it does."""
        self._closed.set()
        self._aborts.restore()

    def __call__(self, error: MismatchError) -> None:
        """Look until the process waits; then report the error and end with its exit code."""
        steps, collectives, stands, place = 0, progress.collectives, 0, _main_place()
        stored = progress.stored
        while steps < _STEPS and stands < (_SAVES if progress.saving else _STANDS):
            if self._closed.wait(_STEP):
                return
            counted = progress.waiting > 0 and not progress.saving
            same = counted and progress.collectives == collectives
            steps, collectives = steps + 1 if same else 0, progress.collectives
            last, place = place, _main_place()
            before, stored = stored, progress.stored
            stands = stands + 1 if (place, stored) == (last, before) else 0
        end_with(error)


def _main_place() -> tuple[int, int] | None:
    """Where the main thread is in its innermost function."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return None if frame is None else (id(frame), frame.f_lasti)


def end_with(error: PyReactantError) -> NoReturn:
    """Report an error that nothing can catch, and end with its exit code."""
    supervised.tell_error(error)
    flush_output()
    with contextlib.suppress(Exception):
        sys.stderr.write(f"pyreactant: {type(error).__name__}: {error}\n")
    end_at_once(error.exit_code)


_libc: Any = ctypes.CDLL(None)

_LOOK = 0.25
"""Seconds between looks at whether SIGABRT was delivered."""

_SLEPT = signal.SIGABRT + 0.5
"""Seconds after which a thread that called abort() has ended the process."""


class AbortsDelayed:
    """From now until `restore`, a thread that calls abort() first sleeps for 6 seconds.

    Gloo, which does the collectives on CPUs, ends the process when it receives data of another size
    than it expects, in a thread of its own and within milliseconds.

    The handler of SIGABRT is the C function sleep, which takes the signal's number as its argument.
    It needs neither Python's global lock nor anything else that another thread may hold. A thread
    that called abort() then ends the process; one that was only sent the signal, as by kill, would
    go on. So the kernel is asked to reset the handler when it delivers the signal, which a thread
    here sees: it sends the signal again if the process still runs after the sleep.
    """

    def __init__(self) -> None:
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._is_installed = sys.platform == "linux" and hasattr(_libc, "sysv_signal")
        if self._is_installed:
            for function in (_libc.signal, _libc.sysv_signal):
                function.restype = ctypes.c_void_p
                function.argtypes = [ctypes.c_int, ctypes.c_void_p]
            self._sleep = ctypes.cast(_libc.sleep, ctypes.c_void_p)
            self._previous = _libc.sysv_signal(signal.SIGABRT, self._sleep)
            self._flags = _flags()
            threading.Thread(target=self._watch, name="pyreactant aborts", daemon=True).start()

    def restore(self) -> None:
        """Let abort() end the process at once again."""
        with self._lock:
            self._closed.set()
            if self._is_installed:
                self._is_installed = False
                _libc.signal(signal.SIGABRT, self._previous)

    def _watch(self) -> None:
        while not self._closed.wait(_LOOK):
            with self._lock:
                # A program that sets its own handler, or the default one, sets other flags too.
                if self._closed.is_set() or _flags(of_default=True) != self._flags:
                    continue
                _libc.sysv_signal(signal.SIGABRT, self._sleep)  # others may abort meanwhile
            if not self._closed.wait(_SLEPT):
                self.restore()
                os.kill(os.getpid(), signal.SIGABRT)


class _Action(ctypes.Structure):
    """glibc's `struct sigaction`."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_byte * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


def _flags(*, of_default: bool = False) -> int | None:
    """The flags of SIGABRT's handler; with `of_default` None if there is a handler."""
    action = _Action()
    _libc.sigaction(signal.SIGABRT, None, ctypes.byref(action))
    return None if of_default and action.handler else int(action.flags)
