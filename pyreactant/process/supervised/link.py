"""The program's end of the line to its supervisor: sends a pulse and events, receives orders.

A thread of the program sends the pulse, so a process that is stopped, or that never releases
Python's global lock, falls silent. The pulse says whether the main thread still makes progress: its
stack changes, or the process computes. The line is a socket pair that the supervisor made; it
carries JSON lines.
"""

import json
import os
import select
import signal
import socket
import sys
import threading
import time
from types import FrameType

from ...base.errors import ExitCode
from ...base.settings import STALL_TIMEOUT
from .. import compilations, progress
from ..events import (
    Cooperates,
    Event,
    GotSignal,
    Idle,
    Order,
    Preempt,
    Pulse,
    Step,
    StopAt,
    Stopped,
    read,
    write,
)

_SHARE = 0.05
"""Share of one core below which a process uses no CPU.

The pulse and JAX's heartbeats use 2 to 3 % on a busy machine while the main thread waits.
"""


class Progress:
    """Watches this process from another thread than the main one.

    Args:
        limit: Seconds without progress until it is reported.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._period = min(5.0, limit / 10)
        self._main = threading.main_thread().ident
        self._due = 0.0
        self._stack: tuple[int, int] | None = None
        self._since = self._cpu = 0.0
        self._reported = False

    def look(self, now: float) -> float | None:
        """Seconds without progress, if they just exceeded the limit; 0 if it continues; or None."""
        if now < self._due:
            return None
        self._due = now + self._period
        stack, cpu = (self._stack_now(), progress.stored), time.process_time()
        if stack != self._stack or cpu - self._cpu > _SHARE * max(now - self._since, self._period):
            self._stack, self._since, self._cpu = stack, now, cpu
            was, self._reported = self._reported, False
            return 0.0 if was else None
        if self._reported or now - self._since < self._limit:
            return None
        self._reported = True
        return now - self._since

    def _stack_now(self) -> int:
        """A number that differs between two stacks of the main thread."""
        frame: FrameType | None = sys._current_frames().get(self._main or 0)
        calls = []
        while frame is not None:
            calls.append((id(frame), frame.f_lasti))
            frame = frame.f_back
        return hash(tuple(calls))


PULSE = 0.25
"""Seconds between pulses."""

_COMPILED = 2.0
"""Seconds between two counts of what was compiled; process 0 receives those of all processes."""


class Link:
    """The connection of a supervised program to its supervisor."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._send_lock = threading.Lock()
        # The pulse thread holds it from reporting this process's step until all processes have
        # agreed on the step to stop at, so that none passes that step in between.
        self._step_lock = threading.Lock()
        self._step: int | None = None
        self._stop_at: int | None = None
        self._preempted = False
        self._progress = Progress(float(os.environ.get(STALL_TIMEOUT) or "inf"))
        threading.Thread(target=self._listen, name="pyreactant pulse", daemon=True).start()

    def close(self) -> None:
        """Close the connection to the supervisor."""
        self._socket.close()

    def tell(self, event: Event) -> None:
        """Send an event; if the supervisor is gone, `_listen` ends this process."""
        line = json.dumps({**write(event), "at": time.monotonic()}) + "\n"
        with self._send_lock:
            try:
                self._socket.sendall(line.encode())
            except OSError:
                pass

    def reached_preemption(self, step: int) -> bool:
        """See `pyreactant.reached_preemption`."""
        if self._step is None:
            self._take_signals()
        with self._step_lock:
            self._step = step
            stop = self._stop_at is not None and step >= self._stop_at
        if stop:
            self.tell(Stopped())
        return stop

    def _take_signals(self) -> None:
        """From now on signals are only reported; the program stops itself at the agreed step."""

        def report(number: int, _: FrameType | None) -> None:
            # In a thread, since the main thread may be inside tell() and hold its lock.
            threading.Thread(target=self.tell, args=(GotSignal(number),)).start()

        for number in (signal.SIGTERM, signal.SIGUSR1):
            try:
                signal.signal(number, report)
            except ValueError:  # not the main thread: the supervisor gets the signal as well
                break
        self.tell(Cooperates())

    def _listen(self) -> None:
        buffer = b""
        due = compiled_due = time.monotonic()
        counts = compilations.counts
        orders = select.poll()  # select() does not accept descriptors above 1023
        orders.register(self._socket, select.POLLIN)
        while True:
            if (now := time.monotonic()) >= due:
                due = now + PULSE
                if (idle := self._progress.look(now)) is not None:
                    self.tell(Idle(idle))
                pulse = progress.collectives, progress.waiting > 0, progress.saving > 0
                self.tell(Pulse(*pulse))
                if now >= compiled_due and compilations.counts is not counts:
                    compiled_due, counts = now + _COMPILED, compilations.counts
                    self.tell(counts)
            if not orders.poll(max(0.0, due - now) * 1000):
                continue
            try:
                data = self._socket.recv(65536)
            except ConnectionError:
                data = b""
            except OSError:
                return  # the program closed all its file descriptors, or reused this one
            if not data:  # the supervisor is dead, so nothing else would end this process
                os._exit(ExitCode.LOST)
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                self._obey(read(Order, json.loads(line)))

    def _obey(self, order: Order | None) -> None:
        match order:
            case Preempt() if not self._preempted:
                self._preempted = True
                self._step_lock.acquire()
                self.tell(Step(self._step))
            case StopAt(step):
                self._stop_at = step
                if self._step_lock.locked():
                    self._step_lock.release()
