"""Which process broke the run: a function of the states of all processes, kept up to date.

A run may have ten thousand processes, and a judgement after each of their events must not look at
all of them again.
"""

from collections.abc import Collection, Sequence

from ._cause import Failure, absent_from_rendezvous, crashed, failure, first_failure
from ._state import ProcessState, names

EARLY = 0.75
"""Seconds that others must wait for an ended process before its end counts as a failure."""


class Judge:
    """Finds the failure that broke the run.

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
        """The failure that broke the run, by what is known now; None if there is none.

        Args:
            now: Seconds of the head's monotonic clock.
        """
        self._take_changes()
        found = [*self._failures.values(), *self._ended_early(now)]
        if not found:
            return None
        earliest = min(found, key=lambda f: (f.consequence, f.order))
        if earliest.consequence:
            earliest = crashed(self._states, found) or earliest
        if earliest.cause == "rendezvous" and earliest.consequence:
            return absent_from_rendezvous(list(self._states.values()), earliest)
        return earliest

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
        return [found for found in early if found is not None]

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


def _how(state: ProcessState) -> str:
    return "ended with exit code 0" if state.code == 0 else "has ended its program"
