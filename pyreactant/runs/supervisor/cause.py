"""What broke a process, which of several failures broke the run, and the exit code.

When one process ends, the others fail a moment later because it is gone. So failures that can be
consequences (a closed connection, a deadline, XLA's abort) count only if there is no other
failure; of the others, the earliest is the cause. If all can be consequences, a process that a
signal ended at the time of the first broken connection is the cause: its end broke it.
"""

import signal
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...base.counted import counted
from ...base.errors import ExitCode, no_room
from ...base.words import cause_of, is_connection, no_thread
from ...process.events import Kind, Raised
from .output import own_lines
from .state import PHASES, ProcessState, exit_text, names

EXIT_CODES = {
    "done": ExitCode.DONE,
    "user": ExitCode.FAILED,
    "environment": ExitCode.MISSING,
    "rendezvous": ExitCode.RENDEZVOUS,
    "lost": ExitCode.LOST,
    "out of memory": ExitCode.LOST,
    "preempted": ExitCode.LOST,
    "timeout": ExitCode.TIMEOUT,
    "interrupted": ExitCode.INTERRUPTED,
}
"""The cause classes, with the exit code of each."""

_SENTENCE = 600
"""Characters of an exception's first line in a summary."""

_CRASH = 0.5
"""Seconds between a crash and the first broken connection that it can explain."""


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


def crash_behind(
    states: Mapping[int, ProcessState], failures: Collection[Failure]
) -> Failure | None:
    """The end by a signal that explains the first broken connection, if there is one.

    A process that aborts closes its connections before its supervisor sees its end.
    """
    of_process = {f.process: f for f in failures if f.process is not None}
    broken = [f.at for index, f in of_process.items() if _lost_connection(states[index])]
    if not broken:
        return None
    crashes = [
        f
        for index, f in of_process.items()
        if states[index].error is None
        and (states[index].code or 0) < 0
        and abs(f.at - min(broken)) <= _CRASH
        and not _ended_before(states[index], f.at)
    ]
    return min(crashes, key=lambda f: f.order, default=None)


def _lost_connection(state: ProcessState) -> bool:
    """Whether it ended because a connection broke, by whichever kind of error."""
    error = state.error
    return error is not None and (
        error.peer_lost or any(map(is_connection, _words_of_others(error)))
    )


def _lost_peer(state: ProcessState) -> bool:
    """Whether it ended because it waited in vain for another: by an error, or by JAX's abort."""
    aborted = state.error is None and state.code == -signal.SIGABRT
    return _lost_connection(state) or (aborted and is_connection(own_lines(state.log_tail)[0]))


def _words_of_others(error: Raised) -> list[str]:
    """An exception and those that led to it, as texts; pyreactant's own have a kind instead."""
    return [*([] if error.own else [f"{error.exception}: {error.message}"]), *error.causes]


def failure(
    cause: str,
    summary: str,
    state: ProcessState | None,
    at: float,
    *,
    consequence: bool = False,
    exit_code: int | None = None,
) -> Failure:
    """A failure, with the exit code of its cause unless it has its own."""
    index = None if state is None else state.index
    code = EXIT_CODES[cause] if exit_code is None else exit_code
    return Failure(cause, summary, index, at, code, consequence)


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


def _from_error(state: ProcessState, error: Raised) -> Failure:
    first, *_ = error.message.splitlines() or [""]
    summary = f"{state.name()} raised {error.exception}"
    if first:
        summary += f": {first[:_SENTENCE]}{' ...' if len(first) > _SENTENCE else ''}"
    words = {cause_of(text) for text in _words_of_others(error)}
    consequence, code = False, None
    match error.kind:
        case _ if "out of memory" in words:
            cause = "out of memory"
        case _ if "unresolved" in words:
            cause, host = "environment", state.host
            summary = (
                f"{state.name()} cannot connect to the others, since its host has no address "
                f"of its own under the name {host}; give it there the one by which the others "
                f"reach it: echo 'ADDRESS {host}' | sudo tee -a /etc/hosts; {summary}"
            )
        case _ if "no thread" in words:
            cause, summary = "environment", f"{state.name()}: {no_room(first)}; {summary}"
        case Kind.PORT_TAKEN:
            cause = "rendezvous"
        case Kind.RENDEZVOUS:
            cause, consequence = "rendezvous", True
        case Kind.DEADLINE | Kind.PEER_LOST:
            cause, consequence = "timeout", True
        case _ if "lost" in words:
            cause, consequence = "lost", True
        case Kind.REQUIREMENT:
            cause = "environment"
        case Kind.INTERRUPT:
            cause = "interrupted"
        case _:
            cause = "user"
            code = error.code if error.code and 0 < error.code < 256 else None
    consequence |= error.relayed
    return failure(
        cause, summary, state, state.times["error"], consequence=consequence, exit_code=code
    )


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
        texts[_MAX_DIFFERENCES:] = [
            f"and {counted(len(texts) - _MAX_DIFFERENCES, 'more difference')}"
        ]
    summary = (
        f"the processes run in different environments: {'; '.join(texts)}; install the same "
        "versions and set the same variables on every machine, or pass "
        "--allow-different-environments"
    )
    return failure("environment", summary, first, now)


_MAX_HOSTS = 8
"""Hosts for each of which there is a line of advice."""


def loopback_names(states: Sequence[ProcessState]) -> list[str]:
    """What to do on each host of a larger run that takes its own name for a loopback address.

    Debian's installer gives a machine's name the address 127.0.1.1. Gloo, which does JAX's
    collectives on CPUs, tells the other hosts the address of that name.
    """
    hosts = {s.host: s for s in reversed(states)}
    wrong = [s for s in hosts.values() if s.own_name.startswith("127.") or s.own_name == "::1"]
    if len(hosts) == 1 or not wrong:
        return []
    wrong.sort(key=lambda s: s.index)
    which = ", ".join(f"{s.host} ({s.own_name})" for s in wrong[:_MAX_HOSTS])
    more = f" and {len(wrong) - _MAX_HOSTS} more" if len(wrong) > _MAX_HOSTS else ""
    return [
        f"these hosts take their own names for loopback addresses: {which}{more}; JAX's processes "
        "on CPUs tell each other the address of their host's name, and cannot connect by these. "
        "Give each name its address in the network that the run should use:",
        *(f"on {s.host}: {_name_own_address(s)}" for s in wrong[:_MAX_HOSTS]),
    ]


def _name_own_address(state: ProcessState) -> str:
    address = state.address or "ADDRESS"
    if state.own_name == "127.0.1.1":
        return f"sudo sed -i 's/^127[.]0[.]1[.]1\\s/{address} /' /etc/hosts"
    return f"replace {state.own_name} before {state.host} in /etc/hosts by {address}"


def without_own_names(broken: Failure, lines: Sequence[str]) -> Failure:
    """The failure, with the hosts' own names as its cause if a connection broke that needs them."""
    if not lines or broken.cause != "lost" or not broken.consequence:
        return broken
    summary = f"{broken.summary}; {' '.join(lines)}"
    return replace(
        broken, cause="environment", exit_code=EXIT_CODES["environment"], summary=summary
    )


def without_threads(broken: Failure, states: Sequence[ProcessState]) -> Failure:
    """The failure, with the limit of threads as its cause if a process has met it.

    What follows from it has many forms: an abort, a refused rendezvous, a package that does not
    load, a KeyboardInterrupt of OpenBLAS. Another error of the program is its own.
    """
    if broken.process is None or broken.cause in ("user", "preempted", "out of memory"):
        return broken
    for state in sorted(states, key=lambda s: s.index != broken.process):
        if said := no_thread(state.log_tail):
            summary = f"{state.name()}: {no_room(said)}; {broken.summary}"
            return failure("environment", summary, state, broken.at)
    return broken


EARLY = 0.75
"""Seconds that others must wait for an ended process before its end counts as a failure."""


class Judge:
    """Finds the failure that broke the run: a function of the states, kept up to date.

    A run may have ten thousand processes, and a judgement after each of their events must not look
    at all of them again.

    Args:
        states: The processes' states. After a change, call `note` with the index.
    """

    def __init__(self, states: Sequence[ProcessState]) -> None:
        self._changed: set[int] = {s.index for s in states}
        self._unfinished: set[int] = set()
        self._states = {s.index: s for s in sorted(states, key=lambda s: s.index)}
        self._failures: dict[int, Failure] = {}
        # Processes that have not ended cleanly, so that they may need the others.
        self._needy: set[int] = set()
        self._waiting: set[int] = set()  # of these, in a collective operation
        self._initializing: set[int] = set()  # of these, in initialize
        # Processes that have ended, or are ending, cleanly: without a runtime, with one, and
        # with one but without its shutdown.
        self._outside: set[int] = set()
        self._left: dict[int, int] = {}  # with the number of their collective operations
        self._abrupt: set[int] = set()

    def note(self, index: int) -> None:
        """Note that a process has changed; several changes are taken in at once."""
        self._changed.add(index)

    @property
    def unfinished(self) -> set[int]:
        """The processes that have neither exited nor been lost."""
        self._take_changes()
        return self._unfinished

    def _take_changes(self) -> None:
        while self._changed:
            self._take(self._changed.pop())

    def _take(self, index: int) -> None:
        state = self._states[index]
        failed = first_failure(state)
        if failed is not None:
            self._failures[index] = failed
        else:
            self._failures.pop(index, None)
        runs = not state.finished
        needy = state.code != 0 and not state.clean
        ended = state.code == 0 or (state.clean and runs)
        abrupt = state.code == 0 and state.initialized and not state.clean
        for group, belongs in (
            (self._unfinished, runs),
            (self._needy, needy),
            (self._waiting, needy and runs and state.waiting_at is not None),
            (self._initializing, needy and runs and state.phase == "initializing"),
            (self._outside, ended and not state.initialized),
            (self._abrupt, abrupt),
        ):
            (group.add if belongs else group.discard)(index)
        if ended and state.initialized and not abrupt:
            self._left[index] = state.collectives
        else:
            self._left.pop(index, None)

    def find(self, now: float) -> Failure | None:
        """The failure that broke the run, by what is known now; None if there is none."""
        self._take_changes()
        failures = [*self._failures.values(), *self._ended_early(now)]
        if not failures:
            return None
        earliest = min(failures, key=lambda f: (f.consequence, f.order))
        if earliest.consequence:
            crash = crash_behind(self._states, failures)
            if crash is None or _lost_peer(self._states[crash.process or 0]):  # JAX's own abort
                crash = self._end_behind(earliest) or crash
            earliest = crash or earliest
        if earliest.cause == "rendezvous" and earliest.consequence:
            return absent_from_rendezvous(list(self._states.values()), earliest)
        return earliest

    def _end_behind(self, broken: Failure) -> Failure | None:
        """The early end of a program that explains why another lost its connection, if one does.

        JAX's own collectives are not counted: a process that waits in one for a program that has
        ended gives up after minutes, as it does if a machine is gone.
        """
        if broken.process is None or not _lost_peer(self._states[broken.process]):
            return None
        states = self._states.values()
        ended = [s for s in states if s.initialized and _ended_before(s, broken.at)]
        if not ended:
            return None
        first = min(ended, key=lambda s: (s.ended_at or 0.0, s.index))
        at = first.ended_at or 0.0
        still = [s for s in states if s.ended_at is None or s.ended_at > at + EARLY]
        if not still:
            return None
        summary = (
            f"{first.name()} had ended its program while {names(still)} still ran; "
            f"{broken.at - at:.0f} s later {broken.summary}"
        )
        return failure("user", summary, first, at)

    def _ended_early(self, now: float) -> list[Failure]:
        """The failures of processes that ended without an error while others still need them."""
        if not self._needy:
            return []
        early = []
        if self._abrupt:
            early.append(self._without_shutdown(self._first(self._abrupt, now), now))
        if self._outside and self._initializing:
            early.append(self._before_initialize(self._first(self._outside, now), now))
        if self._left and self._waiting:
            early.append(self._before_collective(now))
        return [each for each in early if each is not None]

    def _first(self, indices: Collection[int], now: float) -> ProcessState:
        """The process among these that ended first."""
        return min(
            map(self._states.__getitem__, indices), key=lambda s: (_ended_at(s, now), s.index)
        )

    def _without_shutdown(self, state: ProcessState, now: float) -> Failure | None:
        """It left without the runtime's shutdown, as os._exit does: the others cannot succeed."""
        at = _ended_at(state, now)
        if not self._failures and now - at <= EARLY:
            return None
        others = [self._states[index] for index in sorted(self._needy)]
        summary = (
            f"{state.name()} {_how(state)} without shutdown, while {names(others)} still needed it"
        )
        return failure("user", summary, state, at)

    def _before_initialize(self, state: ProcessState, now: float) -> Failure:
        other = self._states[min(self._initializing)]
        summary = (
            f"{state.name()} {_how(state)} before initialize, while {other.name()} waits for it "
            "there"
        )
        return failure("user", summary, state, _ended_at(state, now))

    def _before_collective(self, now: float) -> Failure | None:
        """The first process that ended before a collective operation in which another waits."""
        first: dict[int, tuple[float, int]] = {}  # who waits longest, by number of the operation
        for index in self._waiting:
            waits = self._states[index]
            this = waits.waiting_at if waits.waiting_at is not None else now, index
            first[waits.collectives] = min(this, first.get(waits.collectives, this))
        most = max(first)
        behind = [self._states[index] for index, count in self._left.items() if count < most]
        for state in sorted(behind, key=lambda s: (_ended_at(s, now), s.index)):
            at = _ended_at(state, now)
            for number, (since, index) in first.items():
                if number > state.collectives and now - max(at, since) > EARLY:
                    summary = (
                        f"{state.name()} {_how(state)} after {state.collectives} collective "
                        f"operations, while {self._states[index].name()} waits in number {number}"
                    )
                    return failure("user", summary, state, at)
        return None


def find_failure(states: Sequence[ProcessState], now: float) -> Failure | None:
    """The failure that broke the run, by what is known now; None if there is none."""
    return Judge(states).find(now)


def _ended_at(state: ProcessState, now: float) -> float:
    return state.times.get("ending", state.times.get("exited", now))


def _ended_before(state: ProcessState, at: float) -> bool:
    """Whether its program ended without an error, and not just before that time."""
    return state.ended_at is not None and state.ended_at < at - EARLY


def _how(state: ProcessState) -> str:
    return "ended with exit code 0" if state.code == 0 else "has ended its program"
