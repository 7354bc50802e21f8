"""Signals: how a supervisor takes them, and what follows when they ask a run to stop."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

from ._cause import Failure, failure
from ._state import ProcessState

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


@contextlib.contextmanager
def handled(handle: Callable[[int], None]) -> Iterator[None]:
    """Handle signals until the run is over; afterwards they are ignored.

    A launcher ends the other tasks as soon as one has ended (srun --kill-on-bad-exit). That must
    not replace the exit code of a supervisor that is about to report what happened.
    """
    loop = asyncio.get_running_loop()

    def take(number: int, _: FrameType | None) -> None:
        loop.call_soon_threadsafe(handle, int(number))

    # Not loop.add_signal_handler, which restores the default action when the loop closes.
    for number in _SIGNALS:
        signal.signal(number, take)
    try:
        yield
    finally:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)


_SAME_EVENT = 1.0
"""Seconds within which signals to several processes count as one, as Slurm sends them."""


class Stop:
    """The signals that asked the run to stop, and the orders that follow from them.

    SIGINT is passed on to the programs. SIGTERM and SIGUSR1 announce a preemption: programs that
    call `reached_preemption` agree on a step; other programs get the signal. After SIGINT or
    SIGTERM all must end within the grace period; a second one ends them at once. SIGUSR1 is only
    a warning, as with Slurm's ``--signal=USR1@60``. SIGHUP, which a closed terminal sends, counts
    as SIGTERM.
    """

    def __init__(self, grace: float) -> None:
        self.requested_at: float | None = None
        self.number = 0
        self.ends_all = False
        self._grace = grace
        self._source: int | None = None
        self._enforce = False
        self._pending: list[int] = []
        self._announced = self._preempting = self._agreed = False

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
        """Note a signal that a supervisor or a program received.

        Raises:
            ValueError: The signal is not one that asks to stop.
        """
        if number not in _SIGNALS:
            raise ValueError(f"signal {number}")
        again = self.ends_all and number != signal.SIGUSR1
        if again and self.requested_at is not None and now - self.requested_at > _SAME_EVENT:
            self._enforce = True
        if self.requested_at is None or (number != signal.SIGUSR1 and not self.ends_all):
            self.requested_at, self.number, self._source = now, number, process
            self._pending.append(signal.SIGTERM if number == signal.SIGHUP else number)
        self.ends_all = self.ends_all or number != signal.SIGUSR1

    def orders(self, states: Sequence[ProcessState]) -> Iterator[Mapping[str, Any]]:
        """The orders to send to every machine now."""
        if not self._pending and not self._announced:
            return
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
        if self._preempting and not self._agreed and all(s.step_reported for s in alive):
            self._agreed = True
            # The first step that no process has begun, so that each process still reaches it.
            steps = [s.step for s in alive if s.step is not None]
            yield {"type": "stop_at", "step": max(steps, default=0) + 1}

    def overdue(self, now: float) -> bool:
        """Whether the grace period is over."""
        if self._enforce:
            return True
        return self.requested_at is not None and now - self.requested_at > self._grace

    def outcome(self, states: Sequence[ProcessState], now: float) -> Failure | None:
        """The failure that the signals caused in a run whose processes have all ended, if any."""
        if self.requested_at is None or not (self.ends_all or any(s.stopped for s in states)):
            return None
        if self._agreed and all(s.code == 0 and not s.stopped for s in states):
            return None  # they finished before the agreed step
        return failure(self.cause, self.summary, None, now)

    def restarted(self) -> None:
        """Announce the preemption again: the programs were restarted."""
        self._preempting = self._agreed = False
