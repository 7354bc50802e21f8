"""What broke a process, and which of several failures broke the run.

When one process ends, the others fail a moment later because it is gone. So failures that can be
consequences (a closed connection, a deadline, XLA's abort) count only if there is no other
failure; of the others, the earliest is the cause. If all can be consequences, a process that a
signal ended at the time of the first broken connection is the cause: its end broke it.
"""

import re
import signal
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .._errors import PortTakenError
from ._state import PHASES, ProcessState, exit_text, names

EXIT_CODES = {
    "user": 1,
    "environment": 3,
    "rendezvous": 4,
    "lost": 6,
    "out of memory": 6,
    "preempted": 6,
    "timeout": 7,
    "interrupted": 130,
}
"""The cause classes, with the exit code of each."""

_CRASH = 0.5
"""Seconds between a crash and the first broken connection that it can explain."""

PORT_TAKEN = PortTakenError.__name__
"""The error of a process 0 whose runtime cannot listen on the port that the head chose."""

_RUNTIME_ERRORS = re.compile(
    r"^(XlaRuntimeError|JaxRuntimeError|RuntimeError|ValueError|JuliaError):"
)
_CONNECTION = re.compile(
    r"UNAVAILABLE|DEADLINE_EXCEEDED|ABORTED|CANCELLED|[Cc]onnection (closed|reset|refused)|"
    r"[Gg]loo|[Hh]eartbeat|[Cc]oordination ?[Ss]ervice|[Ss]ocket closed|NCCL|by peer|Broken pipe|"
    # Julia's words: EOFError, and IOError with libuv's names of errors.
    r"EOFError|\b(ECONN(RESET|REFUSED|ABORTED)|EPIPE|ETIMEDOUT|ENOTCONN)\b|[Bb]roken pipe"
)
_NO_MEMORY = re.compile(r"^MemoryError:|RESOURCE_EXHAUSTED|[Oo]ut of memory")


@dataclass(frozen=True, slots=True)
class Failure:
    """What broke the run.

    Attributes:
        cause: A key of `EXIT_CODES`.
        summary: One sentence that names the process.
        process: Index of the process; None if the failure is not that of one process.
        at: Time of the failure, in seconds of the head's monotonic clock.
        exit_code: Exit code of the whole run.
        consequence: Whether it may be a mere consequence of another process's end.
    """

    cause: str
    summary: str
    process: int | None
    at: float
    exit_code: int
    consequence: bool = False

    @property
    def order(self) -> tuple[float, int, str]:
        """The key by which the first of several is found, whichever of them was seen first."""
        return self.at, -1 if self.process is None else self.process, self.summary


def crashed(states: Mapping[int, ProcessState], found: Collection[Failure]) -> Failure | None:
    """The end by a signal that explains the first broken connection, if there is one.

    A process that aborts closes its connections before its supervisor sees its end.
    """
    found = [f for f in found if f.process is not None]
    failed = [states[f.process] for f in found if f.process is not None]
    by_signal = {s.index for s in failed if s.error is None and (s.code or 0) < 0}
    broken = [f.at for s, f in zip(failed, found, strict=True) if _lost_connection(s)]
    if not broken:
        return None
    ended = [f for f in found if f.process in by_signal and abs(f.at - min(broken)) <= _CRASH]
    return min(ended, key=lambda f: f.order, default=None)


def _lost_connection(state: ProcessState) -> bool:
    """Whether it ended because a connection broke, by whichever kind of error."""
    return state.error is not None and any(map(_CONNECTION.search, _chain(state.error)))


def _chain(error: Mapping[str, Any]) -> list[str]:
    """An exception and those that led to it, as texts."""
    return [f"{error['exception']}: {error['message']}", *map(str, error.get("causes", ()))]


def failure(
    cause: str, summary: str, state: ProcessState | None, at: float, **more: Any
) -> Failure:
    """A failure with the exit code of its cause."""
    index = None if state is None else state.index
    return Failure(cause, summary, index, at, **{"exit_code": EXIT_CODES[cause], **more})


_SET = 5.0
"""Seconds by which a clock was set, at least; less is no reason for a failure."""

_AFTER_SET = 60.0
"""Seconds within which a failure follows from it."""


class Clock:
    """Notices that the clock of process 0's machine is set, or that the machine slept.

    JAX's coordinator takes the heartbeats' times from that clock, so that it finds all processes
    silent and they abort.

    Args:
        wall: The clock, in seconds.
        now: The monotonic clock at the same time, as in all other times here.
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


_BEGUN = set(PHASES[PHASES.index("started") : PHASES.index("exited")])
"""What only a process that has begun reaches."""


def first_failure(state: ProcessState) -> Failure | None:
    """The earliest failure of one process."""
    return min(_failures(state), key=lambda f: f.at, default=None)


def _failures(state: ProcessState) -> Iterator[Failure]:
    name, times = state.name(), state.times
    if state.gave_up is not None:
        # Whatever follows in this process is the work of its supervisor.
        summary = f"the supervisor of {name} ended its program: {state.gave_up}"
        yield replace(failure("lost", summary, state, times["gave_up"]), process=0)
        return
    if state.lost:
        yield failure("lost", f"{name} was lost: {state.lost}", state, times["lost"])
    if state.stalled:
        summary = f"{name} stopped answering while {state.stalled} (in phase {state.phase})"
        if "spawned" in times and not _BEGUN & set(times):
            limit = times["stalled"] - times["spawned"]
            summary = (
                f"{name} did not begin within {limit:.0f} s: Python is {state.stalled}; see "
                "whether its files can be read, or give a larger --start-timeout"
            )
        yield failure("timeout", summary, state, times["stalled"])
    if state.error is not None:
        yield _from_error(state, state.error)
    elif state.code:
        yield _from_exit(state, state.code)
    elif state.ending_code:
        code = state.ending_code
        yield failure("user", f"{name} ends with exit code {code}", state, times["ending"])


def _from_error(state: ProcessState, error: Mapping[str, Any]) -> Failure:
    kind, at = str(error["exception"]), state.times["error"]
    first, *_ = str(error["message"]).splitlines() or [""]
    summary = f"{state.name()} raised {kind}" + (f": {first[:300]}" if first else "")
    chain = _chain(error)
    if any(_NO_MEMORY.search(text) for text in chain):
        return failure("out of memory", summary, state, at)
    if kind == PORT_TAKEN:
        return failure("rendezvous", summary, state, at)
    if kind == "RendezvousError":
        return failure("rendezvous", summary, state, at, consequence=True)
    if kind == "DeadlineError":
        return failure("timeout", summary, state, at, consequence=True)
    if any(_RUNTIME_ERRORS.match(text) and _CONNECTION.search(text) for text in chain):
        return failure("lost", summary, state, at, consequence=True)
    if kind == "RequirementError":
        return failure("environment", summary, state, at)
    if kind == "KeyboardInterrupt":
        return failure("interrupted", summary, state, at)
    return failure("user", summary, state, at, exit_code=int(error.get("code") or 1))


def _from_exit(state: ProcessState, code: int) -> Failure:
    name, at = state.name(), state.times["exited"]
    if code > 0:
        # sys.exit and os._exit, which leave no exception behind.
        summary = f"{name} ended with exit code {code}"
        return failure("user", summary, state, at)
    if state.out_of_memory:
        summary = f"{name} was killed because its machine or cgroup is out of memory"
        return failure("out of memory", summary, state, at)
    # XLA aborts when its coordinator is gone; launchers send SIGTERM when they clean up.
    consequence = -code in (signal.SIGABRT, signal.SIGTERM)
    return failure("lost", f"{name} was {exit_text(code)}", state, at, consequence=consequence)


def absent_from_rendezvous(states: Sequence[ProcessState], timed_out: Failure) -> Failure:
    """The failure of the processes that never called initialize, if there are any."""
    absent = [s for s in states if "initializing" not in s.times]
    if not absent:
        return timed_out
    where = "; ".join(f"{s.name()} is in phase {s.phase!r}" for s in absent[:8])
    return replace(
        timed_out,
        process=absent[0].index,
        consequence=False,  # the absent process is the cause, so do not wait for another
        summary=f"{names(absent)} never reached initialize ({where}); {timed_out.summary}",
    )


_MAX_DIFFERENCES = 8
"""Differences named in the message, which goes to every process."""


def differences(states: Sequence[ProcessState], now: float) -> Failure | None:
    """The failure of the processes whose facts differ from the majority's; None if all agree."""
    texts = []
    odd: dict[int, ProcessState] = {}
    for item in dict.fromkeys(key for state in states for key in state.facts):
        values = Counter(state.facts.get(item, "") for state in states)
        if len(values) == 1:
            continue
        usual = values.most_common(1)[0][0]
        for value in values:
            if value != usual:
                different = [s for s in states if s.facts.get(item, "") == value]
                odd.update((s.index, s) for s in different)
                texts.append(
                    f"{names(different)} has {item} {value or 'absent'}, "
                    f"the other {values[usual]} {usual or 'absent'}"
                )
    if not odd:
        return None
    first = odd[min(odd)]
    if len(texts) > _MAX_DIFFERENCES:
        texts[_MAX_DIFFERENCES:] = [f"and {len(texts) - _MAX_DIFFERENCES} more differences"]
    summary = (
        f"the processes run in different environments: {'; '.join(texts)}; install the same "
        "versions and set the same variables on every machine, or pass "
        "--allow-different-environments"
    )
    return failure("environment", summary, first, now)
