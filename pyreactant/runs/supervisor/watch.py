"""What a run is watched for besides the ends of its processes: signals, waits, stalls, a set clock.

The report of a run without progress has the Python stacks of all; the run is ended on request.
"""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from pathlib import Path
from types import FrameType

from ...base.errors import FileError
from ...base.files import write_text
from ...base.imports import users_line_in
from ...base.process import LIKE_SIGTERM
from ...process.events import Order, Preempt, SendSignal, SendStacks, StopAt
from .cause import Failure, failure
from .state import ProcessState, names, processes_text, utc

WARNINGS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)
"""Signals that only warn, as with Slurm's ``--signal=USR1@60``."""

_NOHUP = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
"""Whether this process was started to outlive its terminal; `handled` ignores SIGHUP, too."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, *LIKE_SIGTERM, *WARNINGS)


@contextlib.contextmanager
def handled(handle: Callable[[int], None]) -> Iterator[None]:
    """Handle signals until the run is over; afterwards they are ignored, and SIGHUP after nohup.

    A launcher ends the other tasks as soon as one has ended (srun --kill-on-bad-exit). That must
    not replace the exit code of a supervisor that is about to report what happened.
    """
    loop = asyncio.get_running_loop()

    def take(number: int, _: FrameType | None) -> None:
        loop.call_soon_threadsafe(handle, int(number))

    # Not loop.add_signal_handler, which restores the default action when the loop closes.
    for number in _SIGNALS:
        if number != signal.SIGHUP or not _NOHUP:
            signal.signal(number, take)
    try:
        yield
    finally:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)


_SAME_EVENT = 1.0
"""Seconds within which signals to several processes count as one, as Slurm sends them."""

_SLOW_END = 3.0
"""Seconds after a signal at which a line says which programs still run."""


class Asked(IntEnum):
    """What the signals that came ask of the run."""

    NOTHING = 0
    WARNED = 1
    """To prepare for its end."""
    END = 2
    """To end within the grace period."""
    END_AT_ONCE = 3


class Preemption(IntEnum):
    """How far the programs have agreed on a step to stop at."""

    NONE = 0
    ANNOUNCED = 1
    ASKED = 2
    """Every program was asked for its step."""
    AGREED = 3


class Stop:
    """The signals that asked the run to stop, and the orders that follow from them.

    SIGINT is passed on to the programs. SIGTERM and `WARNINGS` announce a preemption: programs that
    call `reached_preemption` agree on a step; other programs get the signal, a warning only if they
    handle it. After SIGINT or SIGTERM all must end within the grace period; a second one ends them
    at once. SIGHUP and SIGQUIT count as SIGTERM.
    """

    def __init__(self, grace: float) -> None:
        self.requested_at: float | None = None
        self.number = 0
        self._asked, self._preemption = Asked.NOTHING, Preemption.NONE
        self._grace = grace
        self._source: int | None = None
        self._pending: list[int] = []

    @property
    def ends_all(self) -> bool:
        """Whether all programs must end."""
        return self._asked >= Asked.END

    @property
    def cause(self) -> str:
        """The cause class of a run that these signals ended."""
        return "interrupted" if self.number == signal.SIGINT else "preempted"

    @property
    def summary(self) -> str:
        """One sentence: which process got which signal."""
        where = "the supervisor" if self._source is None else f"process {self._source}"
        return f"{where} got {signal.Signals(self.number).name}"

    def request(self, number: int, process: int | None, now: float) -> None:
        """Note a signal that a supervisor or a program received, if it asks to stop."""
        if number not in _SIGNALS:
            return
        asks = Asked.WARNED if number in WARNINGS else Asked.END
        if self.requested_at is None or asks > self._asked:
            self.requested_at, self.number, self._source = now, number, process
            self._pending.append(signal.SIGTERM if number in LIKE_SIGTERM else number)
        elif asks is Asked.END and now - self.requested_at > _SAME_EVENT:
            asks = Asked.END_AT_ONCE
        self._asked = max(self._asked, asks)

    def orders(self, states: Sequence[ProcessState]) -> Iterator[Order]:
        """The orders to send to every machine now."""
        if not self._pending and self._preemption is Preemption.NONE:
            return
        cooperate = any(s.cooperates for s in states)
        for number in self._pending:
            if number != signal.SIGINT:
                self._preemption = max(self._preemption, Preemption.ANNOUNCED)
            if number == signal.SIGINT or not cooperate:
                yield SendSignal(number)
        self._pending = []
        if self._preemption is Preemption.ANNOUNCED and cooperate:
            self._preemption = Preemption.ASKED
            yield Preempt()
        alive = [s for s in states if not s.finished]
        if self._preemption is Preemption.ASKED and all(s.step_reported for s in alive):
            self._preemption = Preemption.AGREED
            # The first step that no process has begun, so that each process still reaches it.
            steps = [s.step for s in alive if s.step is not None]
            yield StopAt(max(steps, default=0) + 1)

    def slow(self, now: float) -> bool:
        """Whether it is time to say which programs have not ended after a signal."""
        if self._asked is not Asked.END or self.requested_at is None:
            return False
        return now - self.requested_at > _SLOW_END

    def overdue(self, now: float) -> bool:
        """Whether the grace period is over."""
        if self._asked is Asked.END_AT_ONCE:
            return True
        return self.requested_at is not None and now - self.requested_at > self._grace

    def outcome(self, states: Sequence[ProcessState], now: float) -> Failure | None:
        """The failure that the signals caused in a run whose processes have all ended, if any."""
        if self.requested_at is None or not (self.ends_all or any(s.stopped for s in states)):
            return None
        agreed = self._preemption is Preemption.AGREED
        if agreed and all(s.code == 0 and not s.stopped for s in states):
            return None  # they finished before the agreed step
        return failure(self.cause, self.summary, None, now)

    def restarted(self) -> None:
        """Announce the preemption again: the programs were restarted."""
        self._preemption = min(self._preemption, Preemption.ANNOUNCED)


FIRST = 60.0
"""Seconds that a process waits before a line says so; then twice as long each time."""

EARLY_END = 10.0
"""Seconds after the end of one program at which a line says that others still run."""

_PERIOD = 1.0


class Waits:
    """Finds the process that waits longest for others, and the program that ended before others."""

    def __init__(self) -> None:
        self._looked = 0.0
        self._said: tuple[int, int] | None = None  # process, operation
        self._next = FIRST
        self._said_end = False

    def messages(self, states: Sequence[ProcessState], now: float) -> Iterator[str]:
        """The sentences that are due now; to be called often."""
        if now - self._looked < _PERIOD:
            return
        self._looked = now
        running = [s for s in states if not s.finished]
        yield from self._longest([s for s in running if s.waiting_at is not None], running, now)
        ended = [s for s in states if s.initialized and s.ended_at is not None]
        if self._said_end or not ended:
            return
        first = min(ended, key=lambda s: (s.ended_at or now, s.index))
        seconds = now - (first.ended_at or now)
        others = [s for s in running if s.ended_at is None]
        if seconds > EARLY_END and others:
            self._said_end = True
            yield (
                f"{first.name()} ended its program {seconds:.0f} s ago, and {names(others)} still "
                f"{'runs' if len(others) == 1 else 'run'}; a collective operation that waits for "
                "it never ends"
            )

    def _longest(
        self, waiting: Sequence[ProcessState], running: Sequence[ProcessState], now: float
    ) -> Iterator[str]:
        if not waiting:
            return
        first = min(waiting, key=lambda s: (s.waiting_at or now, s.index))
        seconds = now - (first.waiting_at or now)
        if (first.index, first.collectives) != self._said:
            self._said, self._next = (first.index, first.collectives), FIRST
        behind = [s for s in running if s.collectives < first.collectives]
        if seconds < self._next or not behind:
            return
        while self._next <= seconds:
            self._next *= 2
        have = "has" if len(behind) == 1 else "have"
        yield (
            f"{first.name()} has waited {seconds:.0f} s in operation {first.collectives}, which "
            f"{names(behind)} {have} not begun"
        )


_MOST_SHOWN = 12
"""Lines of the stack on the terminal; the file has every line of all processes."""

_STACKS = 1.0
"""Seconds in which the stacks of all processes should have arrived."""


class Stalls:
    """Collects the processes that report no progress, and reports them together."""

    def __init__(
        self,
        folder: Path,
        limit: float,
        *,
        ends: bool,
        broadcast: Callable[[Order], None],
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
            slow = any(s.saving for s in running if s.index not in self._since)
            if slow and stalled and all(s.saving for s in stalled):
                return  # they wait in a save for one that still writes
            if len(stalled) < len(running) and now - self._first_at < self._settle:
                return
            if stalled:
                self._broadcast(SendStacks())
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
        culprit, why = _awaited(stalled, states)
        summary = (
            f"{names(stalled)} made no progress for {now - since:.0f} s: the main thread's stack "
            f"stays the same, and no CPU is used{_places(stalled)}{why}"
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
        shown = culprit if culprit.stacks and not culprit.finished else first
        self._say(f"the stack of {shown.name()}:")
        for line in _main_stack(shown).splitlines()[:_MOST_SHOWN]:
            self._say(f"  | {line}")
        if self._ends:
            self.failure = failure("timeout", summary, culprit, since)
            return
        for state in states:
            state.stacks = None  # they are of this moment, not of the run's end


def _main_stack(state: ProcessState) -> str:
    """The stack of the main thread, which comes last."""
    return (state.stacks or "").rstrip().rpartition("\n\n")[2]


def _places(stalled: Sequence[ProcessState]) -> str:
    """At which lines of the user's files several processes are, for a sentence; "" if unknown."""
    at: dict[str, list[int]] = {}
    for state in stalled:
        if line := users_line_in(_main_stack(state)):
            at.setdefault(line, []).append(state.index)
    if len(stalled) < 2 or not at:
        return ""
    some = [f"{processes_text(group)} at {line}" for line, group in at.items()]
    more = f" and {len(some) - _PLACES} other lines" if len(some) > _PLACES else ""
    return f" ({', '.join(some[:_PLACES])}{more})"


_PLACES = 4
"""Lines of users' files that a sentence names."""


def _awaited(
    stalled: Sequence[ProcessState], states: Sequence[ProcessState]
) -> tuple[ProcessState, str]:
    """The process that the others seem to wait for, and what is known of that, for a sentence."""
    first, running = stalled[0], [s for s in states if not s.finished and not s.clean]
    waiting = [s for s in stalled if s.waiting_at is not None]
    if waiting:
        operation = max(s.collectives for s in waiting)
        waiting = [s for s in waiting if s.collectives == operation]
        if behind := [s for s in running if s.collectives < operation]:
            return behind[0], (
                f"; {names(behind)} did not begin operation {operation}, in which "
                f"{names(waiting)} {'waits' if len(waiting) == 1 else 'wait'}"
            )
    if gone := [s for s in states if s.ended_at is not None]:
        return gone[0], f"; {names(gone)} had ended its program, and they may wait for it"
    if busy := [s for s in running if s not in stalled]:
        return busy[0], f"; {names(busy)} did make progress, and they may wait for it"
    if len(running) == 1:
        return first, ""
    return first, "; which of them the others wait for is not known, and it need not be the first"


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
        stacks = (not state.finished and state.stacks) or "no Python stacks\n"
        parts.append(f"{state.name()}, {state.ending()}{silent}:\n{stacks}")
    return "\n\n".join(parts)


_SET = 5.0
"""Seconds by which a clock was set, at least; less is no reason for a failure."""

_AFTER_SET = 60.0
"""Seconds within which a failure follows from it."""


class Clock:
    """Notices that the clock of process 0's machine is set, or that the machine slept.

    JAX's coordinator takes the heartbeats' times from that clock, so that it finds all processes
    silent and they abort.
    """

    def __init__(self, wall: float, now: float) -> None:
        self._difference = wall - now
        self._set_at, self._by = float("-inf"), 0.0

    def look(self, wall: float, now: float) -> None:
        """Look at both clocks; to be called often, since a slow correction is no failure."""
        by, self._difference = wall - now - self._difference, wall - now
        if abs(by) >= _SET:
            self._set_at, self._by = now, by

    def explain(self, broken: Failure) -> Failure:
        """The failure, with the clock in its sentence if it may be the reason of JAX's abort."""
        before = broken.at - self._set_at
        if not broken.consequence or not 0 <= before < _AFTER_SET:
            return broken
        how = f"{'forward' if self._by > 0 else 'back'} by {abs(self._by):.0f} s"
        summary = (
            f"{broken.summary}; {before:.0f} s before, the clock of process 0's machine was set "
            f"{how}, and JAX's heartbeats go by it"
        )
        return replace(broken, summary=summary)
