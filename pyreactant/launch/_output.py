"""What programs print: a log per process, and live on the terminal with the process's number."""

import codecs
import os
import queue
import select
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

TAIL = 8192
"""Bytes of a log's end that are kept for the report."""

_LONGEST_LINE = 1 << 16
"""Characters of a line's beginning that wait for its end, at most."""

_QUEUED = 64
"""Chunks (of at most 64 KiB) that may wait for the terminal."""


class Log:
    """A log file, and its end in memory; a full disk loses the file, not the run."""

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
        """Append all of it, or note why not."""
        self._tail += data
        del self._tail[:-TAIL]
        view = memoryview(data)
        while self._descriptor is not None and view:
            try:
                view = view[os.write(self._descriptor, view) :]
            except OSError as error:
                self.error = error.strerror
                self.close()

    def tail(self) -> str:
        """The end of what was printed, as text."""
        return self._tail.decode(errors="replace")

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class Terminal:
    """Our own stdout or stderr, written by a thread so that a slow reader stops nobody else.

    It writes past Python's stream, whose lock it would hold, at exit too, while the reader waits.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._descriptor = _descriptor(stream)
        self._queue: queue.Queue[bytes | threading.Event | None] = queue.Queue()
        self._resume: list[Callable[[], None]] = []
        self._gone = self._descriptor is None
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    @property
    def full(self) -> bool:
        """Whether the reader is behind, so that programs had better wait."""
        return self._queue.qsize() >= _QUEUED

    def when_ready(self, resume: Callable[[], None]) -> None:
        """Call it, from the writing thread, when the reader has caught up."""
        self._resume.append(resume)
        self._queue.put(b"")  # it may have caught up since it was asked

    def put(self, data: bytes) -> None:
        """Write in turn; nothing where the reader has gone."""
        if not self._gone:
            self._queue.put(data)

    def drain(self, timeout: float) -> None:
        """Wait until what was put so far is written, at most so many seconds."""
        written = threading.Event()
        self._queue.put(written)
        written.wait(timeout)

    def close(self, timeout: float) -> None:
        """Wait until all is written, at most so many seconds."""
        self._queue.put(None)
        self._thread.join(timeout)

    def _write(self) -> None:
        while (data := self._queue.get()) is not None:
            if isinstance(data, threading.Event):
                data.set()
                continue
            try:
                self._write_all(memoryview(data))
            except OSError:  # as with `| head`: the run goes on, and its logs
                self._gone = True
            while self._resume and (self._gone or not self.full):
                self._resume.pop()()

    def _write_all(self, data: memoryview) -> None:
        while data and not self._gone:
            assert self._descriptor is not None
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:  # whoever started us has made it so
                select.select([], [self._descriptor], [])


_terminals: list[Terminal] = []


def terminals() -> tuple[Terminal, Terminal]:
    """Those of this process's stdout and stderr."""
    if not _terminals:
        _terminals.extend((Terminal(sys.stdout), Terminal(sys.stderr)))
    out, err = _terminals
    return out, err


def close_terminals(timeout: float) -> None:
    """Wait until all is written, at most so many seconds."""
    deadline = time.monotonic() + timeout
    for terminal in _terminals:
        terminal.close(max(0.0, deadline - time.monotonic()))
    _terminals.clear()


def _descriptor(stream: TextIO | None) -> int | None:
    try:
        return None if stream is None else stream.fileno()
    except (OSError, ValueError):
        return None


class Prefixed:
    """Bytes of one program on a terminal, each line after the program's number.

    Args:
        terminal: Where to.
        prefix: Before each line.
        whole_lines: Whether the parts of a line wait for its end, so that no other program's come
            between them; Python writes what one print() prints in several parts.
    """

    def __init__(self, terminal: Terminal, prefix: str, *, whole_lines: bool = False) -> None:
        self.terminal = terminal
        self._whole_lines = whole_lines
        self._waiting = ""
        self._prefix = prefix
        self._at_start = True
        # A character may be cut in two by a chunk's end, and binary must not reach a terminal.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def write(self, data: bytes) -> None:
        """Show a chunk."""
        text = self._waiting + self._decoder.decode(data)
        shown = len(text)
        if self._whole_lines and len(text) < _LONGEST_LINE:
            shown = max(text.rfind("\n"), text.rfind("\r")) + 1
        self._waiting = text[shown:]
        self._show(text[:shown])

    def end(self) -> None:
        """The program has ended, be it within a character or a line."""
        self._show(self._waiting + self._decoder.decode(b"", True))
        self._waiting = ""
        if not self._at_start:
            self._show("\n")

    def _show(self, text: str) -> None:
        if not text:
            return
        body, last = (text[:-1], "\n") if text.endswith("\n") else (text, "")
        start = self._prefix if self._at_start else ""
        self._at_start = bool(last)
        shown = start + body.replace("\n", "\n" + self._prefix) + last
        self.terminal.put(shown.encode(errors="replace"))
