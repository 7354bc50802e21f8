"""Lines that several processes print alike, shown once: ``[0-7] step 3``."""

import bisect
import itertools
import math
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ._output import Prefixed, Terminal

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

    Args:
        terminal: The terminal to write to.
        count: Number of processes.
        later: Calls a function after some seconds, such as `asyncio.loop.call_later`.
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
        """Take one line of a process, with its end.

        Args:
            process: Its index.
            text: The line.
            now: Seconds of the monotonic clock; None for the present.
        """
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
            self._terminal.put("".join(shown).encode(errors="replace"))
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
    """One program's part of a merged terminal.

    Args:
        terminal: The terminal.
        merged: Where its lines are merged with those of the others.
        process: Index of the program's process.
    """

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
