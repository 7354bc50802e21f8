"""Signals of a supervisor."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


@contextlib.contextmanager
def handled(handle: Callable[[int], None]) -> Iterator[None]:
    """Handle signals until the run is over; afterwards they are ignored.

    A launcher ends the other tasks as soon as one has ended (srun --kill-on-bad-exit). That must
    not replace the exit code of a supervisor that is about to report what happened.
    """
    loop = asyncio.get_running_loop()

    def take(number: int, _: FrameType | None) -> None:
        stop = signal.SIGTERM if number == signal.SIGHUP else number
        loop.call_soon_threadsafe(handle, int(stop))

    # Not loop.add_signal_handler, which restores the default action when the loop closes.
    for number in _SIGNALS:
        signal.signal(number, take)
    try:
        yield
    finally:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
