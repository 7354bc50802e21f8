"""Whether the main thread still makes progress: its stack changes, or the process computes."""

import sys
import threading
import time
from types import FrameType

_SHARE = 0.02
"""Share of one core below which a process uses no CPU; the pulse and JAX's heartbeats use less."""


class Progress:
    """Watches this process from another thread than the main one.

    Args:
        limit: Seconds without progress until it is reported.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._period = min(5.0, limit / 10)
        self._main = threading.main_thread().ident
        self._due = 0.0
        self._stack: int | None = None
        self._since = self._cpu = 0.0
        self._reported = False

    def look(self, now: float) -> float | None:
        """Seconds without progress, if they just exceeded the limit; 0 if it continues; or None.

        Args:
            now: Seconds of the monotonic clock.
        """
        if now < self._due:
            return None
        self._due = now + self._period
        stack, cpu = self._stack_now(), time.process_time()
        if stack != self._stack or cpu - self._cpu > _SHARE * max(now - self._since, self._period):
            self._stack, self._since, self._cpu = stack, now, cpu
            was, self._reported = self._reported, False
            return 0.0 if was else None
        if self._reported or now - self._since < self._limit:
            return None
        self._reported = True
        return now - self._since

    def _stack_now(self) -> int:
        """A number that differs between two stacks of the main thread."""
        frame: FrameType | None = sys._current_frames().get(self._main or 0)
        found = []
        while frame is not None:
            found.append((id(frame), frame.f_lasti))
            frame = frame.f_back
        return hash(tuple(found))
