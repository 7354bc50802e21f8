"""The output of programs: a log per process, and the terminal with the process index.

Lines that several processes print alike are shown once: ``[0-7] step 3``.
"""

import bisect
import codecs
import itertools
import math
import os
import queue
import re
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from ...arrays.text import break_lines
from ...base.counted import counted
from ...base.process import LIKE_SIGTERM

TAIL = 8192
"""Bytes at the end of a log that are kept for the report."""

_LONGEST_LINE = 1 << 16
"""Longest part of a line that is held back until its end arrives, in characters."""

_QUEUED = 64
"""Chunks (of at most 64 KiB) of programs that may be queued for the terminal."""

_READS = 2.0
"""Seconds after which a reader that has taken nothing does not read."""

_PIECE = 4096
"""Bytes written at a time, so that a slow reader is seen to read."""

_LAST = 300.0
"""Seconds at the end to wait for a reader that does not read."""


_CHATTER = (
    # What the library through which CPU processes communicate prints when it connects them, also
    # within a line of the program.
    re.compile(
        r"\[Gloo\] Rank \d+ is connected to \d+ peer ranks\. "
        r"Expected number of connected peer ranks is : \d+\n?"
    ),
    # A thread for each device prints it part by part, so that the parts of two lines may be mixed.
    re.compile(
        r"^(?=.*(?:Gloo|peer ranks))(?:\[Gloo\] Rank |\d| is connected to | peer ranks\. "
        r"|Expected number of connected peer ranks is : )++(?:\n|\Z)",
        re.MULTILINE,
    ),
)


def own_lines(text: str) -> tuple[str, str]:
    """A text from a program without what libraries print about connections.

    Returns:
        The text, and how many lines are left out, such as "2 lines"; "" if none are.
    """
    count = 0
    for chatter in _CHATTER:
        text, some = chatter.subn("", text)
        count += some
    return text, counted(count, "line") if count else ""


class Own:
    """The output of a program, as it comes, without that of libraries about connections."""

    def __init__(self) -> None:
        self._held = ""

    def take(self, text: str, *, final: bool = False) -> str:
        """The next part of what is the program's own.

        Args:
            text: What came; a last line that may be a library's waits for its end.
            final: Whether nothing more comes.
        """
        text, self._held = self._held + text, ""
        if not final:
            start = text.rfind("\n") + 1
            last = text[start:]
            may_begin = any(last.endswith(_BEGINNING[:n]) for n in range(1, len(_BEGINNING)))
            if len(last) < _LONGEST_LINE and (may_begin or _BEGINNING in last):
                text, self._held = text[:start], last
        if _BEGINNING not in text and "peer ranks" not in text:
            return text
        return own_lines(text)[0]


_BEGINNING = "[Gloo]"
"""How a library's line about connections begins."""


class Log:
    """A log file, and its end in memory; if the disk is full, the run goes on without the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.error: str | None = None
        self._tail = bytearray()
        self._descriptor: int | None = None
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._descriptor = os.open(path, flags, 0o644)
        except OSError as error:
            self.error = error.strerror

    def write(self, data: bytes) -> None:
        """Append the data; on failure note the error and close the file."""
        self._tail += data
        del self._tail[:-TAIL]
        view = memoryview(data)
        while self._descriptor is not None and view:
            try:
                view = view[os.write(self._descriptor, view) :]
            except OSError as error:
                self.error = error.strerror
                self.close()

    def check(self) -> None:
        """Note an error if somebody has deleted the file."""
        if self._descriptor is not None and not os.fstat(self._descriptor).st_nlink:
            self.error = "it was deleted while the program ran"

    def tail(self) -> str:
        """The end of the output, as text."""
        return self._tail.decode(errors="replace")

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class Terminal:
    """The supervisor's stdout or stderr, written by a thread so that a slow reader delays no other.

    It writes to the file descriptor, since a blocked write would hold the lock of Python's stream,
    also at exit. What programs print waits for a reader that is behind, and is left out for one
    that does not read; the logs have it.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._descriptor = _descriptor(stream)
        self._queue: queue.Queue[bytes | threading.Event | None] = queue.Queue()
        self._gone = self._descriptor is None
        self.error = ""  # why what programs print could not be written, as to a full disk
        self._unfinished: object = None
        self._left_out = 0
        self._read_at = time.monotonic()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    @property
    def full(self) -> bool:
        """Whether the reader is so far behind that programs should wait; it does read."""
        return self._behind() and not self._gone and self._reads()

    def show(self, data: bytes, writer: object = None) -> None:
        """Queue what a program printed; it is left out if nothing reads what came before.

        Args:
            data: Whole lines, or a piece of one.
            writer: Who may continue the last line with a later piece; None if nobody does. A line
                that another writer has not finished is ended first.
        """
        # One look at the queue: the reader may catch up before a second.
        if self._behind() and (self._gone or not self._reads()):
            self._left_out += data.count(b"\n") or 1
        else:
            self._say_left_out()
            self._put(data, writer)

    def say(self, line: bytes) -> None:
        """Queue a line of the supervisor, which is never left out."""
        self._say_left_out()
        self._put(line, None)

    def continues(self, writer: object) -> bool:
        """Whether the last line is an unfinished one of this writer."""
        return writer is not None and self._unfinished is writer and not self._left_out

    def drain(self, timeout: float) -> None:
        """Wait until everything queued so far is written, at most `timeout` seconds."""
        written = threading.Event()
        self._queue.put(written)
        written.wait(timeout)

    def finish(self) -> None:
        """Queue nothing more."""
        self._say_left_out()
        self._queue.put(None)

    def join(self, timeout: float) -> bool:
        """Wait for at most `timeout` seconds until all is written; false if it is not."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _behind(self) -> bool:
        return self._queue.qsize() >= _QUEUED

    def _reads(self) -> bool:
        return time.monotonic() - self._read_at < _READS

    def _say_left_out(self) -> None:
        if self._left_out:
            some = counted(self._left_out, "line")
            self._left_out = 0
            text = (
                f"pyreactant: {some} of the programs are left out here, since nothing read this "
                "output; the logs have them\n"
            )
            self._put(text.encode(), None)

    def _put(self, data: bytes, writer: object) -> None:
        if self._unfinished is not None and self._unfinished is not writer:
            data = b"\n" + data
        self._unfinished = None if data.endswith(b"\n") else writer
        self._send(data)

    def _send(self, data: bytes) -> None:
        if not self._gone:
            if self._queue.empty():
                self._read_at = time.monotonic()  # so far there was nothing to take
            self._queue.put(data)

    def _write(self) -> None:
        while (data := self._queue.get()) is not None:
            if isinstance(data, threading.Event):
                data.set()
                continue
            try:
                self._write_all(memoryview(data))
            except BrokenPipeError:  # the reader is gone, as with `| head`; the run goes on
                self._gone = True
            except OSError as error:
                self._gone, self.error = True, error.strerror or str(error)

    def _write_all(self, data: memoryview) -> None:
        while data and not self._gone:
            assert self._descriptor is not None
            try:
                data = data[os.write(self._descriptor, data[:_PIECE]) :]
                self._read_at = time.monotonic()
            except BlockingIOError:  # the parent process made the descriptor non-blocking
                select.select([], [self._descriptor], [])


_terminals: list[Terminal] = []


def terminals() -> tuple[Terminal, Terminal]:
    """The terminals of this process's stdout and stderr; one, if both go to the same file."""
    if not _terminals:
        out = Terminal(sys.stdout)
        _terminals.extend((out, out if _same_file() else Terminal(sys.stderr)))
    out, err = _terminals
    return out, err


def _same_file() -> bool:
    """Whether stdout and stderr are the same terminal, pipe or file."""
    out, err = _descriptor(sys.stdout), _descriptor(sys.stderr)
    return out is not None and err is not None and os.path.sameopenfile(out, err)


def close_terminals() -> None:
    """Write what is queued, such as the report, and close both terminals.

    A reader that does not read is awaited for minutes, or until a signal asks to end. The logs and
    the report's file are complete without it.
    """
    for terminal in _terminals:
        terminal.finish()
    asked, deadline = threading.Event(), time.monotonic() + _LAST
    if not all(terminal.join(0.5) for terminal in _terminals):
        for number in (signal.SIGINT, signal.SIGTERM, *LIKE_SIGTERM):
            signal.signal(number, lambda *_: asked.set())
    while not asked.is_set() and time.monotonic() < deadline:
        if all(terminal.join(0.1) for terminal in _terminals):
            break
    _terminals.clear()


def _descriptor(stream: TextIO | None) -> int | None:
    try:
        return None if stream is None else stream.fileno()
    except (OSError, ValueError):
        return None


_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, and movements of the cursor
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # such as a window's title
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
    r"|[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"  # turn the text that follows around
)


def plain(text: str) -> str:
    """The text without control characters, which could hide it on a terminal; line ends stay."""
    return _CONTROL.sub(lambda match: "" if len(match[0]) > 1 else ascii(match[0])[1:-1], text)


def say(text: str) -> None:
    """Print a line to stderr, in order with the output of the programs."""
    _, err = terminals()
    err.say(f"{break_lines(f'pyreactant: {plain(text)}')}\n".encode(errors="backslashreplace"))


class Prefixed:
    """The output of one program on a terminal, each line with a prefix.

    Args:
        whole_lines: Whether to hold back a line until its end arrives, so that lines of several
            programs do not mix; Python writes one print() in several parts.
    """

    def __init__(self, terminal: Terminal, prefix: str, *, whole_lines: bool = False) -> None:
        self.terminal = terminal
        self._whole_lines = whole_lines
        self._waiting = ""
        self._prefix = prefix
        # A chunk may end within a character, and binary data must not reach a terminal.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._own = Own()

    def write(self, data: bytes) -> None:
        """Show a chunk."""
        text = self._waiting + self._own.take(self._decoder.decode(data))
        shown = len(text)
        if self._whole_lines and len(text) < _LONGEST_LINE:
            shown = max(text.rfind("\n"), text.rfind("\r")) + 1
        self._waiting = text[shown:]
        self._show(text[:shown])

    def end(self) -> None:
        """Show the rest once the program has ended, and complete its last line."""
        rest = self._own.take(self._decoder.decode(b"", True), final=True)
        self._show(self._waiting + rest)
        self._waiting = ""
        if self.terminal.continues(self):
            self._show("\n")

    def _show(self, text: str) -> None:
        if not text:
            return
        body, last = (text[:-1], "\n") if text.endswith("\n") else (text, "")
        start = "" if self.terminal.continues(self) else self._prefix
        shown = start + body.replace("\n", "\n" + self._prefix) + last
        self.terminal.show(shown.encode(errors="replace"), self)


WINDOW = 0.15
"""Seconds that a line waits for the other processes to print it."""

_MOST = 4096
"""Lines that wait at most; beyond it the oldest is shown."""


@dataclass(slots=True, eq=False)
class _Line:
    """A line that waits: its text, the processes that printed it, and its place in the order."""

    text: str
    number: int
    due: float
    processes: set[int] = field(default_factory=set)


class Merged:
    """The output of several programs on one terminal, equal lines merged.

    The lines of each process keep their order. A line waits for `WINDOW` seconds at most, and not
    at all once every process has printed it and no earlier line waits.
    """

    def __init__(
        self, terminal: Terminal, count: int, later: Callable[[float, Callable[[], None]], object]
    ) -> None:
        self._terminal, self._count, self._later = terminal, count, later
        self._ended = 0
        self._lines: dict[int, _Line] = {}
        self._of_text: dict[str, list[_Line]] = {}
        self._last: dict[int, int] = {}
        self._numbers = itertools.count()
        self._timer: object = None

    def add(self, process: int, text: str, now: float | None = None) -> None:
        """Take one line of a process, with its end."""
        now = time.monotonic() if now is None else now
        last = self._last.get(process, -1)
        same = self._of_text.setdefault(text, [])
        # The lines of this process have numbers up to `last`, so any later one lacks it.
        place = bisect.bisect_right(same, last, key=lambda x: x.number)
        if place < len(same):
            line = same[place]
        else:
            line = _Line(text, next(self._numbers), now + WINDOW)
            self._lines[line.number] = line
            same.append(line)
        line.processes.add(process)
        self._last[process] = line.number
        self.show(now)

    def show(self, now: float) -> None:
        """Show the lines that need not wait any longer, in order."""
        shown = []
        while self._lines:
            line = self._lines[next(iter(self._lines))]
            complete = len(line.processes) == self._count
            if not (complete or line.due <= now or len(self._lines) > _MOST):
                break
            shown.append(self._take(line))
        if shown:
            self._terminal.show("".join(shown).encode(errors="replace"))
        self._wake()

    def end(self) -> None:
        """Note that one program has ended; after the last, show everything."""
        self._ended += 1
        if self._ended == self._count:
            self.show(math.inf)

    def _wake(self) -> None:
        """Show the lines when they are due, if no other call does."""
        if self._timer is None and self._lines:
            self._timer = self._later(WINDOW, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.show(time.monotonic())

    def _take(self, line: _Line) -> str:
        del self._lines[line.number]
        same = self._of_text[line.text]
        same.remove(line)
        if not same:
            del self._of_text[line.text]
        return f"[{ranges(line.processes)}] {line.text}"


class Part(Prefixed):
    """One program's part of a merged terminal."""

    def __init__(self, terminal: Terminal, merged: Merged, process: int) -> None:
        super().__init__(terminal, "", whole_lines=True)
        self._merged, self._process = merged, process

    def end(self) -> None:
        """Show the rest once the program has ended, and complete its last line."""
        super().end()
        self._merged.end()

    def _show(self, text: str) -> None:
        for line in _LINE.findall(text):
            self._merged.add(self._process, line if line[-1] in "\r\n" else f"{line}\n")


_LINE = re.compile(r"[^\r\n]*(?:\r\n|[\r\n])|[^\r\n]+\Z")


def ranges(numbers: Iterable[int]) -> str:
    """Numbers as ranges: "0-2,5"."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][-1] == number - 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)
