"""Signals to stop: passed to the programs once, agreed between them, then enforced."""

import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ._cause import Failure, failure
from ._state import ProcessState

_KNOWN = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)

_SAME = 1.0
"""Seconds within which signals to several processes are one event, as Slurm sends them."""


class Stop:
    """What was asked for by signals, and what follows from it.

    SIGINT is passed on. SIGTERM and SIGUSR1 are a preemption: programs that call
    `reached_preemption` agree on a step; to others the signal is passed on. After SIGINT and
    SIGTERM all must end within the grace; a second one ends them at once. SIGUSR1 is a warning
    only, as Slurm's ``--signal=USR1@60``.
    """

    def __init__(self, grace: float) -> None:
        self.asked_at: float | None = None
        self.number = 0
        self.ends_all = False
        self._grace = grace
        self._source: int | None = None
        self._enforce = False
        self._pending: list[int] = []
        self._announced = self._preempting = self._agreed = False

    @property
    def cause(self) -> str:
        """The cause class."""
        return "interrupted" if self.number == signal.SIGINT else "preempted"

    @property
    def summary(self) -> str:
        """A sentence."""
        where = "the supervisor" if self._source is None else f"process {self._source}"
        return f"{where} got {signal.Signals(self.number).name}"

    def ask(self, number: int, process: int | None, now: float) -> None:
        """A signal has come to a supervisor or a program.

        Raises:
            ValueError: It is none that asks to stop.
        """
        if number not in _KNOWN:
            raise ValueError(f"signal {number}")
        again = self.ends_all and number != signal.SIGUSR1
        if again and self.asked_at is not None and now - self.asked_at > _SAME:
            self._enforce = True
        if self.asked_at is None or (number != signal.SIGUSR1 and not self.ends_all):
            self.asked_at, self.number, self._source = now, number, process
            self._pending.append(number)
        self.ends_all = self.ends_all or number != signal.SIGUSR1

    def orders(self, states: Sequence[ProcessState]) -> Iterator[Mapping[str, Any]]:
        """What to tell every machine now."""
        cooperate = any(s.cooperates for s in states)
        for number in self._pending:
            self._announced = self._announced or number != signal.SIGINT
            if number == signal.SIGINT or not cooperate:
                yield {"type": "signal", "number": number}
        self._pending = []
        if self._announced and cooperate and not self._preempting:
            self._preempting = True
            yield {"type": "preempt"}
        alive = [s for s in states if not s.finished]
        if self._preempting and not self._agreed and all(s.told_step for s in alive):
            self._agreed = True
            # The first step that no process has begun, so that each still comes to it.
            steps = [s.step for s in alive if s.step is not None]
            yield {"type": "stop_at", "step": max(steps, default=0) + 1}

    def overdue(self, now: float) -> bool:
        """Whether the grace is over."""
        return self._enforce or (self.asked_at is not None and now - self.asked_at > self._grace)

    def outcome(self, states: Sequence[ProcessState], now: float) -> Failure | None:
        """What the signals made of a run in which every process has ended."""
        if self.asked_at is None or not (self.ends_all or any(s.stopped for s in states)):
            return None
        if self._agreed and all(s.code == 0 and not s.stopped for s in states):
            return None  # they came to their end before the step
        return failure(self.cause, self.summary, None, now)

    def restarted(self) -> None:
        """The programs are new, and have heard of nothing."""
        self._preempting = self._agreed = False
