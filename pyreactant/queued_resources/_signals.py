"""Signals that end a launcher, as one exception, after which cleaning up is not disturbed."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """SIGINT, SIGTERM or SIGHUP came; not an `Exception`, so that nobody holds it up."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextmanager
def cleaned_up(clean_up: Callable[[], None], tell: Callable[[str], None]) -> Iterator[None]:
    """Do something on every way out: done, error, Ctrl-C, SIGTERM, SIGHUP.

    The first signal raises `Interrupted` in the main thread. From then on, and from the moment
    that cleaning up begins, signals are only answered with a sentence.
    """
    over = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal over
        if over:
            tell("deleting what was made; this must not be interrupted")
            return
        over = True
        raise Interrupted(number)

    before = {}
    try:
        try:
            for number in _SIGNALS:
                before[number] = signal.signal(number, handle)
            yield
        finally:
            # Should a signal raise just here, then `over` is set, and the outer part is reached.
            over = True
    finally:
        try:
            clean_up()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
