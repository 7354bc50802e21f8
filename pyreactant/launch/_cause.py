"""Which process broke the run, and how: a judgement over what is known of each.

Where one process ends, the others fail a moment later because it is gone. So failures that
can be consequences (a closed connection, a deadline, XLA's abort) count only where nothing else
is found, and of the others the first in time is the cause.
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
"""Seconds that others wait for a process that has ended before that counts as a fault."""

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
        summary: A sentence that names the process.
        process: Its index; None where it is not one process.
        at: When, on the head's monotonic clock.
        exit_code: Of the whole run.
        consequence: Whether it may only follow from another process's end.
    """

    cause: str
    summary: str
    process: int | None
    at: float
    exit_code: int
    consequence: bool = False


def judge(states: Sequence[ProcessState], now: float) -> Failure | None:
    """The failure that broke the run, as far as can be known now."""
    found = [f for state in states if (f := _first_failure(state))]
    others = [s for s in states if s.code != 0 and not s.clean]
    if others:
        in_doubt = bool(found)
        found += [f for state in states if (f := _ended_early(state, others, now, in_doubt))]
    if not found:
        return None
    earliest = min(found, key=lambda f: (f.consequence, f.at))
    if earliest.cause == "rendezvous" and earliest.consequence:
        return _absent_from_rendezvous(states, earliest)
    return earliest


def failure(
    cause: str, summary: str, state: ProcessState | None, at: float, **more: Any
) -> Failure:
    """A failure with its cause's exit code."""
    index = None if state is None else state.index
    return Failure(cause, summary, index, at, **{"exit_code": EXIT_CODES[cause], **more})


def _first_failure(state: ProcessState) -> Failure | None:
    """Of what went wrong in one process, the first in time."""
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
        # sys.exit and os._exit, which no exception tells of.
        summary = f"{name} ended with exit code {code}"
        return failure("user", summary, state, at)
    if state.out_of_memory:
        summary = f"{name} was killed because its machine or cgroup is out of memory"
        return failure("out of memory", summary, state, at)
    # XLA aborts when its coordinator is gone; SIGTERM is what whoever cleans up sends.
    consequence = -code in (signal.SIGABRT, signal.SIGTERM)
    return failure("lost", f"{name} was {exit_text(code)}", state, at, consequence=consequence)


def _ended_early(
    state: ProcessState, others: Sequence[ProcessState], now: float, in_doubt: bool
) -> Failure | None:
    """A process that has ended as if all was well, while others still count on it."""
    if state.code != 0 and not (state.clean and not state.finished):
        return None
    at = state.times.get("ending", state.times.get("exited", now))
    what = "ended with exit code 0" if state.code == 0 else "has ended its program"
    if state.code == 0 and state.initialized and not state.clean:
        # It left without the runtime's shutdown, as os._exit does: no other can end well.
        if in_doubt or now - at > EARLY:
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


def _absent_from_rendezvous(states: Sequence[ProcessState], seen: Failure) -> Failure:
    """Processes that waited in vain name those that never came."""
    absent = [s for s in states if "initializing" not in s.times]
    if not absent:
        return seen
    where = "; ".join(f"{s.name()} is in phase {s.phase!r}" for s in absent[:8])
    return replace(
        seen,
        process=absent[0].index,
        consequence=False,  # who never came is known, so nothing else need be waited for
        summary=f"{names(absent)} never came to initialize ({where}); {seen.summary}",
    )


_SHOWN = 8
"""Differences in the message, which every process is told."""


def differences(states: Sequence[ProcessState], now: float) -> Failure | None:
    """The processes whose facts are not those of the most; None where all agree."""
    texts = []
    odd: dict[int, ProcessState] = {}
    for item in dict.fromkeys(key for state in states for key in state.facts):
        values = Counter(state.facts.get(item, "") for state in states)
        if len(values) == 1:
            continue
        usual = values.most_common(1)[0][0]
        for value in values:
            if value != usual:
                those = [s for s in states if s.facts.get(item, "") == value]
                odd.update((s.index, s) for s in those)
                texts.append(
                    f"{names(those)} has {item} {value or 'absent'}, "
                    f"the other {values[usual]} {usual or 'absent'}"
                )
    if not odd:
        return None
    first = odd[min(odd)]
    if len(texts) > _SHOWN:
        texts[_SHOWN:] = [f"and {len(texts) - _SHOWN} more differences"]
    summary = (
        f"the processes run in different environments: {'; '.join(texts)}; install the same on "
        "every machine and set the same, or pass --allow-different-environments"
    )
    return failure("environment", summary, first, now)
