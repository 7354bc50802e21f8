"""Processes that wait for others, and a run without progress: said while it happens.

The report of a run without progress has the Python stacks of all; the run is ended on request.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .._errors import FileError
from .._system.files import write_text
from ._cause import Failure, failure
from ._report import utc
from ._state import ProcessState, names

FIRST = 60.0
"""Seconds that a process waits before it is said; then twice as long each time."""

_PERIOD = 1.0


class Waits:
    """Finds the process that waits longest for others that have not begun the operation."""

    def __init__(self) -> None:
        self._looked = 0.0
        self._said: tuple[int, int] | None = None  # process, operation
        self._next = FIRST

    def message(self, states: Sequence[ProcessState], now: float) -> str | None:
        """A sentence that is due now, or None; to be called often.

        Args:
            states: All processes.
            now: Seconds of the head's monotonic clock.
        """
        if now - self._looked < _PERIOD:
            return None
        self._looked = now
        waiting = [s for s in states if not s.finished and s.waiting_at is not None]
        if not waiting:
            return None
        first = min(waiting, key=lambda s: (s.waiting_at or now, s.index))
        seconds = now - (first.waiting_at or now)
        if (first.index, first.collectives) != self._said:
            self._said, self._next = (first.index, first.collectives), FIRST
        behind = [s for s in states if not s.finished and s.collectives < first.collectives]
        if seconds < self._next or not behind:
            return None
        while self._next <= seconds:
            self._next *= 2
        have = "has" if len(behind) == 1 else "have"
        return (
            f"{first.name()} has waited {seconds:.0f} s in operation {first.collectives}, which "
            f"{names(behind)} {have} not begun"
        )


_MOST_SHOWN = 12
"""Lines of the stack on the terminal; the file has every line of all processes."""

_STACKS = 1.0
"""Seconds in which the stacks of all processes should have arrived."""


class Stalls:
    """Collects the processes that report no progress, and reports them together.

    Args:
        folder: The run's folder, for the files with the stacks.
        limit: `RunOptions.stall_timeout`.
        ends: Whether such a run is ended.
        broadcast: Sends an order to every machine.
        say: Prints a line.
    """

    def __init__(
        self,
        folder: Path,
        limit: float,
        *,
        ends: bool,
        broadcast: Callable[[Mapping[str, Any]], None],
        say: Callable[[str], None],
    ) -> None:
        self.failure: Failure | None = None
        self.reports: list[dict[str, str]] = []
        self._folder, self._ends = folder, ends
        self._broadcast, self._say = broadcast, say
        self._settle = min(30.0, limit / 5)
        self._since: dict[int, float] = {}
        self._first_at: float | None = None
        self._asked_at: float | None = None
        self._count = 0

    def take(self, process: int, seconds: float, now: float) -> None:
        """Note a process that has made no progress for some seconds; 0 if it does again."""
        if not seconds:
            if self._since.pop(process, None) is not None:
                self._say(f"process {process} makes progress again")
            return
        self._since[process] = now - seconds
        self._first_at = self._first_at or now

    def check(self, states: Sequence[ProcessState], now: float) -> None:
        """Report what was noted: first ask for the stacks, then write them.

        Other processes wait for the stalled one and are noted a moment after it, so that this
        waits for them.
        """
        if self._first_at is None:
            return
        stalled = [s for s in states if s.index in self._since and not s.finished]
        if self._asked_at is None:
            running = [s for s in states if not s.finished]
            if len(stalled) < len(running) and now - self._first_at < self._settle:
                return
            if stalled:
                self._broadcast({"type": "stacks"})
            self._asked_at = now
        if stalled and now - self._asked_at < _STACKS:
            return
        if stalled:
            self._report(sorted(stalled, key=lambda s: self._since[s.index]), states, now)
        self._first_at = self._asked_at = None

    def restarted(self) -> None:
        """Forget everything: the programs were restarted."""
        self.failure = self._first_at = self._asked_at = None
        self._since = {}

    def _report(
        self, stalled: Sequence[ProcessState], states: Sequence[ProcessState], now: float
    ) -> None:
        self._count += 1
        first = stalled[0]
        since = self._since[first.index]
        summary = (
            f"{names(stalled)} made no progress for {now - since:.0f} s: the main thread's stack "
            "stays the same, and no CPU is used"
        )
        path = self._folder / f"stalled-{self._count}.txt"
        try:
            write_text(_text(summary, stalled, states, self._since, now), path)
            where = f"the Python stacks of all processes are in {path}"
        except FileError as error:
            where = str(error)
        advice = "" if self._ends else "; the run goes on, --end-stalled would end it"
        self._say(f"{summary}; {where}{advice}")
        self.reports.append({"summary": summary, "time": utc(), "file": path.name})
        _, _, main = (first.stacks or "").rstrip().rpartition("\n\n")  # the main thread is last
        for line in main.splitlines()[:_MOST_SHOWN]:
            self._say(f"  | {line}")
        if self._ends:
            self.failure = failure("timeout", summary, first, since)
            return
        for state in states:
            state.stacks = None  # they are of this moment, not of the run's end


def _text(
    summary: str,
    stalled: Sequence[ProcessState],
    states: Sequence[ProcessState],
    since: Mapping[int, float],
    now: float,
) -> str:
    parts = [summary]
    for state in [*stalled, *(s for s in states if s not in stalled)]:
        silent = f", no progress for {now - since[state.index]:.1f} s" if state in stalled else ""
        stacks = state.stacks or "no Python stacks\n"
        parts.append(f"{state.name()}, {state.ending()}{silent}:\n{stacks}")
    return "\n\n".join(parts)
