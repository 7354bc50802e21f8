"""Which process broke the run, and how: a pure function of the states of all processes.

When one process ends, the others fail a moment later because it is gone. So failures that can be
consequences (a closed connection, a deadline, XLA's abort) count only if there is no other
failure; of the others, the earliest is the cause.
"""

import re
import signal
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ._state import ProcessState, exit_text, names

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

EARLY = 0.75
"""Seconds that others must wait for an ended process before its end counts as a failure."""

_RUNTIME_ERRORS = re.compile(
    r"^(XlaRuntimeError|JaxRuntimeError|RuntimeError|ValueError|JuliaError):"
)
_CONNECTION = re.compile(
    r"UNAVAILABLE|DEADLINE_EXCEEDED|ABORTED|CANCELLED|[Cc]onnection (closed|reset|refused)|"
    r"[Gg]loo|[Hh]eartbeat|[Cc]oordination ?[Ss]ervice|[Ss]ocket closed|NCCL|by peer|Broken pipe"
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


def find_failure(states: Sequence[ProcessState], now: float) -> Failure | None:
    """The failure that broke the run, by what is known now; None if there is none."""
    found = [f for state in states if (f := _first_failure(state))]
    others = [s for s in states if s.code != 0 and not s.clean]
    if others:
        failed = bool(found)
        found += [f for state in states if (f := _ended_early(state, others, now, failed=failed))]
    if not found:
        return None
    earliest = min(found, key=lambda f: (f.consequence, f.at))
    if earliest.cause == "rendezvous" and earliest.consequence:
        return _absent_from_rendezvous(states, earliest)
    return earliest


def failure(
    cause: str, summary: str, state: ProcessState | None, at: float, **more: Any
) -> Failure:
    """A failure with the exit code of its cause."""
    index = None if state is None else state.index
    return Failure(cause, summary, index, at, **{"exit_code": EXIT_CODES[cause], **more})


def _first_failure(state: ProcessState) -> Failure | None:
    """The earliest failure of one process."""
    return min(_failures(state), key=lambda f: f.at, default=None)


def _failures(state: ProcessState) -> Iterator[Failure]:
    name, times = state.name(), state.times
    if state.lost:
        yield failure("lost", f"{name} was lost: {state.lost}", state, times["lost"])
    if state.stalled:
        yield failure(
            "timeout",
            f"{name} stopped answering while {state.stalled} (in phase {state.phase})",
            state,
            times["stalled"],
        )
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
    summary = f"{state.name()} raised {kind}: {first[:300]}"
    chain = [f"{kind}: {error['message']}", *map(str, error.get("causes", ()))]
    if any(_NO_MEMORY.search(text) for text in chain):
        return failure("out of memory", summary, state, at)
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


def _ended_early(
    state: ProcessState, others: Sequence[ProcessState], now: float, *, failed: bool
) -> Failure | None:
    """The failure of a process that ended without an error while others still need it.

    Args:
        state: The process.
        others: Those that have not ended cleanly.
        now: Seconds of the head's monotonic clock.
        failed: Whether another process has failed.
    """
    if state.code != 0 and not (state.clean and not state.finished):
        return None
    at = state.times.get("ending", state.times.get("exited", now))
    what = "ended with exit code 0" if state.code == 0 else "has ended its program"
    if state.code == 0 and state.initialized and not state.clean:
        # It left without the runtime's shutdown, as os._exit does: the others cannot succeed.
        if failed or now - at > EARLY:
            return failure(
                "user",
                f"{state.name()} {what} without shutdown, while {names(others)} still needed it",
                state,
                at,
            )
        return None
    for other in [s for s in others if not s.finished]:
        if other.phase == "initializing" and not state.initialized:
            return failure(
                "user",
                f"{state.name()} {what} before initialize, while {other.name()} waits for it there",
                state,
                at,
            )
        beyond = other.collectives > state.collectives and other.waiting_at is not None
        if beyond and state.initialized and now - max(at, other.waiting_at or now) > EARLY:
            return failure(
                "user",
                f"{state.name()} {what} after {state.collectives} collective operations, while "
                f"{other.name()} waits in number {other.collectives}",
                state,
                at,
            )
    return None


def _absent_from_rendezvous(states: Sequence[ProcessState], timed_out: Failure) -> Failure:
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
