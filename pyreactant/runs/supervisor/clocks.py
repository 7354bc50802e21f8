"""The clock of a supervisor's host against that of process 0's, for times of several hosts."""

import time

from ...process.events import ClockAsked, ClockCompared
from .process import Emit

EXCHANGES = 16
"""Questions of a comparison; the one whose answer comes soonest counts."""


class Comparison:
    """Compares the clocks by asking process 0 for its time.

    Its answer was given at some time between question and receipt. So half of the time between
    these is the largest error, whichever way was the longer one (David L. Mills, RFC 5905, 8).

    Args:
        process: Index of the process.
        emit: Sends a question, and at the end the result.
    """

    def __init__(self, process: int, emit: Emit) -> None:
        self._process, self._emit = process, emit
        self._left = 0
        self._best: ClockCompared | None = None

    def begin(self) -> None:
        """Ask for the first time, unless a comparison is under way."""
        if not self._left:
            self._left, self._best = EXCHANGES, None
            self._ask()

    def take(self, sent_ns: int, head_ns: int) -> None:
        """Take an answer.

        Args:
            sent_ns: When it was asked, by the clock of this host.
            head_ns: The time of process 0's host.
        """
        now = time.time_ns()
        error = (now - sent_ns + 1) // 2
        # A clock that was set meanwhile gives no answer that counts.
        if error >= 0 and (self._best is None or error < self._best.error_ns):
            offset = head_ns - (sent_ns + now) // 2
            self._best = ClockCompared(offset, error, process=self._process)
        self._left -= 1
        if self._left:
            self._ask()
        elif self._best is not None:
            self._emit(self._best)

    def _ask(self) -> None:
        self._emit(ClockAsked(time.time_ns(), process=self._process))
