"""Turn signals into one exception, and protect the clean-up from further signals."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """SIGINT, SIGTERM or SIGHUP arrived.

    It is not an `Exception`, so that ``except Exception`` does not catch it.

    Args:
        number: The signal's number.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextmanager
def cleaned_up(clean_up: Callable[[], None], tell: Callable[[str], None]) -> Iterator[None]:
    """Run `clean_up` however the block ends: success, error, SIGINT, SIGTERM or SIGHUP.

    The first signal raises `Interrupted` in the main thread. Later signals, and signals during
    the clean-up, only print a message.

    Args:
        clean_up: Called once, at the end of the block.
        tell: Prints a message for the user.
    """
    ending = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal ending
        if ending:
            tell("deleting the queued resource; this cannot be interrupted")
            return
        ending = True
        raise Interrupted(number)

    before = {}
    try:
        try:
            for number in _SIGNALS:
                before[number] = signal.signal(number, handle)
            yield
        finally:
            # A signal that arrives just here sets `ending` too, and the outer `finally` runs.
            ending = True
    finally:
        try:
            clean_up()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
