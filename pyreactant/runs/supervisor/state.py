"""The state of each process of a run, built by the head from the processes' events."""

import signal
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ...arrays.text import ranges_text
from ...process.events import (
    ClockCompared,
    Compiled,
    Cooperates,
    Event,
    Exited,
    GaveUp,
    Killed,
    LogFailed,
    Lost,
    Phase,
    Profiled,
    Pulse,
    Raised,
    Restored,
    Spawned,
    Stacks,
    Stalled,
    Step,
    Stopped,
)

PHASES = (
    "expected",
    "joined",
    "spawned",
    "started",
    "initializing",
    "initialized",
    "leaving",
    "shutdown",
    "ending",
    "exited",
)
"""The phases of a process, in order; a program without a runtime skips some."""

_MAX_AGE = 1e9
"""Largest age of an event in seconds; a larger one is malformed."""


_MAX_KILLED = 50
"""Killed processes that the report lists, for each process of the run."""


@dataclass(slots=True)
class ProcessState:
    """One process. Times are seconds of this machine's monotonic clock; None if it never happened.

    Attributes:
        phase: The latest of `PHASES` that it reached.
        times: When it reached each phase, and when "error", "stalled" and "lost" happened.
        code: Its exit code, negative for a signal; None while it runs.
        by_supervisor: Whether its supervisor sent the signal that ended it.
        ending_code: The exit code with which it is about to end.
        alone: Whether its program has loaded a runtime by then, and not called JAX's initialize.
        error: The exception that ends it.
        lost: Why its supervisor is gone.
        gave_up: Why its supervisor ended it without an order of process 0's.
        stalled: Its state in the kernel when its pulse stopped.
        killed: Command lines of what it left behind, which its supervisor killed, also before a
            restart.
        collectives: Number of collective operations that it has begun.
        waiting_at: Since when it waits in a collective operation.
        saving: Whether it writes or reads a checkpoint.
        restored: The step of the checkpoint from which its program goes on; None if it told none.
        cooperates: Whether its program calls `reached_preemption`.
        stopped: Whether `reached_preemption` was true in it.
        profiled: What became of its profile; None if it has begun none.
        clock: The clock of its host against that of process 0's; None if they were not compared.
        compiled: What it has compiled and loaded; None if it told nothing of it.
        step_reported: Whether it has answered a preemption with its step.
        step: That step; None if it has not begun one.
        own_name, address: As in `Join`.
        process_index: Its index in this start; less than `index` once the run goes on without
            others. Its log, its certificate and its line keep `index`.
    """

    index: int
    host: str | None = None
    phase: str = "expected"
    pid: int | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    times: dict[str, float] = field(default_factory=dict)
    code: int | None = None
    by_supervisor: bool = False
    out_of_memory: bool = False
    ending_code: int | None = None
    alone: bool = False
    error: Raised | None = None
    lost: str | None = None
    gave_up: str | None = None
    stalled: str | None = None
    killed: list[str] = field(default_factory=list)
    collectives: int = 0
    waiting_at: float | None = None
    saving: bool = False
    restored: int | None = None
    cooperates: bool = False
    stopped: bool = False
    profiled: Profiled | None = None
    clock: ClockCompared | None = None
    compiled: Compiled | None = None
    step_reported: bool = False
    step: int | None = None
    own_name: str = ""
    address: str = ""
    process_index: int = -1
    stacks: str | None = None
    log: str | None = None
    log_tail: str = ""
    log_error: str | None = None

    def __post_init__(self) -> None:
        if self.process_index < 0:
            self.process_index = self.index

    @property
    def gone(self) -> bool:
        """Whether its supervisor is gone, or has ended its program by itself."""
        return self.lost is not None or self.gave_up is not None

    @property
    def finished(self) -> bool:
        """Whether it has exited or is lost, so that no more events are expected."""
        return self.code is not None or self.lost is not None

    @property
    def initialized(self) -> bool:
        """Whether it has joined a runtime."""
        return "initialized" in self.times

    @property
    def clean(self) -> bool:
        """Whether it has left, or is leaving, through a shutdown that waits for the others."""
        return "shutdown" in self.times or ("ending" in self.times and not self.ending_code)

    @property
    def ended_at(self) -> float | None:
        """When its program ended without an error, or did its last operation; None if not yet."""
        leaving = "leaving" in self.times and self.error is None
        if self.code == 0 or leaving or ("ending" in self.times and not self.ending_code):
            ends = ("leaving", "ending", "exited")  # of a program: it does no more operations
            return next((self.times[phase] for phase in ends if phase in self.times), None)
        return None

    def enter(self, phase: str, at: float) -> None:
        """Note a phase; a late event never moves the process back."""
        if phase in PHASES:
            self.times.setdefault(phase, at)
            if PHASES.index(phase) > PHASES.index(self.phase):
                self.phase = phase

    def apply(self, event: Event, now: float) -> None:
        """Apply an event of this process; one with an impossible age changes nothing."""
        if not 0 <= event.age < _MAX_AGE:
            return
        at = now - event.age
        match event:
            case Spawned(pid):
                self.pid = pid
                self.enter("spawned", at)
            case Phase(phase, collectives, code, alone):
                if phase == "ending":
                    self.ending_code, self.alone = code or 0, alone
                self._count(collectives)
                self.enter(phase, at)
            case Pulse(collectives, waiting, saving):
                self.saving = saving
                if self._count(collectives):
                    self.waiting_at = (self.waiting_at or at) if waiting else None
            case Raised():
                self.error = self.error or event
                self.times.setdefault("error", at)
            case Stalled(state):
                self.stalled = state
                self.times.setdefault("stalled", at)
            case Exited():
                self.code, self.log_tail = event.code, event.log_tail
                self.by_supervisor = event.by_supervisor
                self.out_of_memory = event.out_of_memory
                self.enter("exited", at)
            case Lost(why) if not self.finished:
                self.lost = why
                self.times.setdefault("lost", at)
            case GaveUp(why) if not self.finished and self.error is None:
                self.gave_up = why
                self.times.setdefault("gave_up", at)
            case Step(step):
                self.step, self.step_reported = step, True
            case Profiled():
                self.profiled = event
            case ClockCompared():
                self.clock = event
            case Compiled():
                self._compile(event)
            case Restored(step):
                self.restored = step
            case Cooperates():
                self.cooperates = True
            case Stopped():
                self.stopped = True
            case Killed(commands):
                room = _MAX_KILLED - len(self.killed)
                self.killed += [command[:300] for command in commands[:room]]
            case Stacks(stacks):
                self.stacks = stacks
            case LogFailed(path, error):
                self.log_error = self.log_error or f"{path}: {error}"

    def _compile(self, event: Compiled) -> None:
        """Note what it compiled; an earlier event that comes later changes nothing."""
        old = self.compiled
        if old is None or event.compiled + event.loaded >= old.compiled + old.loaded:
            self.compiled = event

    def _count(self, collectives: int) -> bool:
        """Note the number of collective operations; false if a later event reported more."""
        if collectives > self.collectives:
            self.collectives, self.waiting_at = collectives, None
        return collectives == self.collectives

    def restarted(self, process_index: int) -> "ProcessState":
        """The state of the same process before a new start, in which it has this index."""
        new = ProcessState(self.index, self.host, facts=self.facts, process_index=process_index)
        new.own_name, new.address = self.own_name, self.address
        new.killed, new.log_error, new.clock = self.killed, self.log_error, self.clock
        new.enter("joined", self.times.get("joined", 0.0))
        return new

    def name(self) -> str:
        """Index and host, for a sentence."""
        moved = f" (index {self.process_index} now)" if self.process_index != self.index else ""
        return f"process {self.index}{moved}" + (f" on {self.host}" if self.host else "")

    def ending(self) -> str:
        """How it ended, or the phase it is in, for a table."""
        if self.lost:
            return f"lost in phase {self.phase}"
        if self.stalled:
            return "stopped answering"
        if self.code is None and self.phase == "expected":
            return "did not join"
        if self.code is None:
            return f"in phase {self.phase}"
        if self.by_supervisor and self.error is not None:
            return f"raised {self.error.exception}, and was ended by the supervisor"
        if self.by_supervisor:
            return f"ended by the supervisor with {_signal_name(-self.code)}"
        return exit_text(self.code)


def exit_text(code: int) -> str:
    """An exit code in words."""
    return f"exit code {code}" if code >= 0 else f"killed by {_signal_name(-code)}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def names(states: Sequence[ProcessState], limit: int = 4) -> str:
    """The names of several processes, for a sentence."""
    text = ", ".join(s.name() for s in states[:limit])
    return text + (f" and {len(states) - limit} more" if len(states) > limit else "")


def processes_text(indices: Collection[int]) -> str:
    """Indices of processes for a sentence: "process 3" or "processes 0-2, 5"."""
    return f"process{'es' * (len(indices) > 1)} {ranges_text(indices)}"


def utc(seconds_ago: float = 0.0) -> str:
    """The UTC time so many seconds ago, in ISO 8601 with milliseconds."""
    at = datetime.now(UTC).timestamp() - seconds_ago
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
