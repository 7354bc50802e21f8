"""Says, while it happens, that a process waits for others in a collective operation."""

from collections.abc import Sequence

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
