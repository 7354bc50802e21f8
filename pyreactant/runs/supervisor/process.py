"""One supervised program: start it, read its output and messages, watch its pulse, end it."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from ...base.child import MemoryKills
from ...base.process import restore_limit
from ...base.settings import DESCRIPTORS
from ...process.events import (
    Event,
    Exited,
    GotSignal,
    Killed,
    LogFailed,
    Order,
    Phase,
    ProgramEvent,
    Pulse,
    Spawned,
    Stacks,
    Stalled,
    read,
    write,
)
from ...process.supervised.main import STACKS_SIGNAL
from .leftovers import Leftovers
from .options import RunOptions
from .output import Log, Prefixed
from .program import Program
from .watch import WARNINGS

Emit = Callable[[Event], None]

_CHUNK = 1 << 16
_BEHIND = 0.02
"""Seconds between looks at a terminal whose reader is behind."""
_ABORTS = 12.0
"""Seconds that a process which calls abort() may be silent: the guard makes it wait for 6 s, and
Python's lock may be held meanwhile."""
_LINE_LIMIT = 1 << 20
_STACKS_LIMIT = 16_000
_LAST_OF_STACKS = b" in _run_module_as_main\n"
"""`faulthandler` writes the main thread last, and the first call of a thread at the end."""
_STATES = {
    "T": "stopped by a signal",
    "t": "stopped by a debugger",
    "R": "running",
    "S": "waiting",
    "D": "waiting for a device or file",
    "Z": "ended",
}


class ChildProcess:
    """A started program; it emits its events, of which only Python programs have their own.

    Args:
        options: Its limits. The first pulse may come later than the others: a busy machine or a
            slow disk starts Python slowly.
        terminals: Where its stdout and stderr are shown; None if they are not.
    """

    def __init__(
        self,
        index: int,
        program: Program,
        environment: Mapping[str, str],
        log: Log,
        *,
        options: RunOptions,
        terminals: tuple[Prefixed, Prefixed] | None,
        emit: Emit,
        memory_kills: MemoryKills,
        leftovers: Leftovers,
    ) -> None:
        self.index = index
        self.exited = asyncio.Event()
        self._memory_kills = memory_kills
        self._leftovers = leftovers
        self._loop = asyncio.get_running_loop()
        self._emit = emit
        self._log = log
        self._log_error: str | None = None
        self._stall_timeout = options.stall_timeout
        self._unbegun_limit = max(options.stall_timeout, options.start_timeout)
        self._begun = False  # whether it has sent anything
        self._ending = False
        self._buffer = b""
        self._pulse = (0, False, False)
        self._pulse_due = 0.0
        self._stacks = b""
        self._stacks_due = False
        self._signalled: set[int] = set()
        line, program_end = socket.socketpair()
        self._stacks_end, stacks = os.pipe()
        descriptors = program_end.fileno(), stacks
        try:
            self._popen = subprocess.Popen(
                program.argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**environment, DESCRIPTORS: ",".join(map(str, descriptors))},
                pass_fds=descriptors,
                start_new_session=True,
                bufsize=0,
            )
        finally:
            program_end.close()
            os.close(stacks)
        leftovers.started(self._popen.pid)
        restore_limit(self._popen.pid)
        line.setblocking(False)
        self._line: socket.socket | None = line
        self._last_pulse = time.monotonic()
        self._loop.add_reader(line, self._receive)
        os.set_blocking(self._stacks_end, False)
        assert self._popen.stdout is not None
        assert self._popen.stderr is not None
        self._streams: dict[IO[bytes], Prefixed | None] = {
            self._popen.stdout: terminals and terminals[0],
            self._popen.stderr: terminals and terminals[1],
        }
        for stream in self._streams:
            os.set_blocking(stream.fileno(), False)
            self._listen(stream)
        threading.Thread(target=self._wait, daemon=True).start()
        self._emit(Spawned(self._popen.pid, process=self.index))
        self._tell_log_error()

    def order(self, order: Order) -> None:
        """Send an order to the program's pulse thread."""
        if self._line is not None:
            with contextlib.suppress(OSError):
                self._line.send(json.dumps(write(order)).encode() + b"\n")

    def signal(self, number: int) -> None:
        """Send a signal to the program and to its process group."""
        if not self.exited.is_set():
            self._signalled.add(number)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._popen.pid, number)

    def forward(self, number: int) -> None:
        """Pass a signal on to the program; a warning only if the program handles it."""
        if not self.exited.is_set() and (number not in WARNINGS or self._catches(number)):
            self._signalled.add(number)
            self._signal_one(number)

    def watch(self, suspended: float) -> None:
        """Check the pulse; the `suspended` seconds of this supervisor do not count as silence."""
        self._last_pulse += suspended
        silent = time.monotonic() - self._last_pulse
        limit = self._stall_timeout if self._begun else self._unbegun_limit
        if self._line is None or silent <= limit or self.exited.is_set():
            return
        state = self._kernel_state()
        if self._begun and silent <= _ABORTS and state == _STATES["S"]:
            return
        self._last_pulse = float("inf")
        self._emit(Stalled(state, process=self.index, age=silent - limit))

    def dump_stacks(self, *, resume: bool = True) -> None:
        """Make the program write the Python stack of every thread; with `resume` if it is stopped.

        Args:
            resume: Whether a stopped program continues; it writes its stacks before anything else.
        """
        # One that has not begun has no handler yet, and the signal would end it.
        if self._begun and not self.exited.is_set() and self._line is not None:
            self.read_stacks()
            self._stacks, self._stacks_due = b"", True  # a late answer to an earlier request is old
            self._signal_one(STACKS_SIGNAL)
            if resume:
                self._signal_one(signal.SIGCONT)

    def read_stacks(self) -> bool:
        """Read what there is of the stacks that `dump_stacks` asked for; false if more is due."""
        with contextlib.suppress(OSError):
            self._stacks += os.read(self._stacks_end, 1 << 16)
        # In exit hooks the stack of the main thread has another end.
        whole = self._stacks.endswith(_LAST_OF_STACKS) or self._ending
        if self.exited.is_set() or whole:
            self._stacks_due = False
        return not self._stacks_due

    def emit_stacks(self) -> None:
        """Emit the stacks that were read; of many, the last ones, from the start of a line."""
        text = self._stacks.decode(errors="replace")
        if len(text) > _STACKS_LIMIT:
            text = "...\n" + text[-_STACKS_LIMIT:].partition("\n")[2]
        if text and not self.exited.is_set():  # what has ended has none
            self._emit(Stacks(text, process=self.index))
        self._stacks, self._stacks_due = b"", False

    def close(self) -> None:
        """Close all files and the line; the program has ended."""
        self._close_line()
        for stream, shown in self._streams.items():
            self._loop.remove_reader(stream)
            stream.close()
            if shown is not None:
                shown.end()
        os.close(self._stacks_end)
        self._log.close()

    def _signal_one(self, number: int) -> None:
        """Send a signal to the program alone; callers check that its pid is still its own."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._popen.pid, number)

    def _read(self, stream: IO[bytes]) -> None:
        shown = self._streams[stream]
        if shown is not None and shown.terminal.full:
            # The program waits for a reader that is behind, as it would on a pipe of its own.
            self._loop.remove_reader(stream)
            self._loop.call_later(_BEHIND, self._listen, stream)
        elif self._read_chunk(stream) == b"":
            self._loop.remove_reader(stream)

    def _listen(self, stream: IO[bytes]) -> None:
        if not stream.closed and not self.exited.is_set():
            self._loop.add_reader(stream, self._read, stream)

    def _read_chunk(self, stream: IO[bytes]) -> bytes | None:
        """Read one chunk and pass it on: b"" at the end of the file, None if none is ready."""
        try:
            data = os.read(stream.fileno(), _CHUNK)
        except BlockingIOError:
            return None
        self._log.write(data)
        self._tell_log_error()
        shown = self._streams[stream]
        if shown is not None:
            shown.write(data)
        return data

    def _tell_log_error(self) -> None:
        error = self._log.error
        if error is not None and error != self._log_error:
            self._log_error = error
            self._emit(LogFailed(str(self._log.path), error, process=self.index))

    def _receive(self) -> bool:
        """Read from the pulse thread once; false if nothing is ready."""
        assert self._line is not None
        try:
            data = self._line.recv(_CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._handle(line)
        if not data or len(self._buffer) > _LINE_LIMIT:
            self._close_line()
        return bool(data)

    def _handle(self, line: bytes) -> None:
        now = time.monotonic()
        self._last_pulse = max(now, self._last_pulse)  # stays infinite after a stall
        self._begun = True
        try:
            message = json.loads(line)
            age = max(0.0, now - float(message["at"]))
        except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError):
            return  # the program wrote to a file descriptor that it did not open
        event = read(ProgramEvent, {**message, "process": self.index, "age": age})
        if isinstance(event, GotSignal) and event.number in self._signalled:
            return  # its supervisor sent it, to end the program before a restart, say
        if isinstance(event, Pulse):
            self._pass_on_pulse(now, event)
        elif event is not None:
            self._ending |= isinstance(event, Phase) and event.phase == "ending"
            self._emit(event)

    def _pass_on_pulse(self, now: float, pulse: Pulse) -> None:
        """Emit a changed pulse, at most every 0.4 s: process 0 receives those of all processes."""
        state = pulse.collectives, pulse.waiting, pulse.saving
        if state != self._pulse and now > self._pulse_due:
            self._pulse, self._pulse_due = state, now + 0.4
            self._emit(pulse)

    def _wait(self) -> None:
        """Wait for the end without reaping, so that the process group id is not reused."""
        os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOWAIT)
        ended = time.monotonic()
        self._loop.call_soon_threadsafe(self._end, ended)

    def _end(self, ended: float) -> None:
        if killed := self._leftovers.of_session(self._popen.pid):
            self._emit(Killed(tuple(killed), process=self.index))
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)  # processes that it left behind
        code = self._popen.wait()
        self._leftovers.ended(self._popen.pid)
        while self._line is not None and self._receive():
            pass  # its last messages may still be in the socket
        for stream in self._streams:
            self._loop.remove_reader(stream)
            for _ in range(64):  # more than a pipe holds; its children may still write
                if not self._read_chunk(stream):
                    break
        self._log.check()
        self._tell_log_error()
        self.exited.set()
        age = time.monotonic() - ended
        memory = code == -signal.SIGKILL and self._memory_kills.is_recent()
        by_supervisor, tail = -code in self._signalled, self._log.tail()
        self._emit(Exited(code, tail, by_supervisor, memory, process=self.index, age=age))

    def _close_line(self) -> None:
        if self._line is not None:
            self._loop.remove_reader(self._line)
            self._line.close()
            self._line = None

    def _kernel_state(self) -> str:
        try:
            stat = Path(f"/proc/{self._popen.pid}/stat").read_text()
        except OSError:
            return "unknown"
        letter = stat.rpartition(")")[2].split()[0]
        return _STATES.get(letter, letter)

    def _catches(self, number: int) -> bool:
        try:
            status = Path(f"/proc/{self._popen.pid}/status").read_text()
        except OSError:
            return False
        mask = next(x.split()[1] for x in status.splitlines() if x.startswith("SigCgt:"))
        return bool(int(mask, 16) >> (number - 1) & 1)
