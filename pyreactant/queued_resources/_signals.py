"""Turn signals into one exception, and protect the clean-up from further signals."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_AGAIN = 0.05
"""Seconds after which a signal is sent again whose exception ended nothing."""


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
    the clean-up, only print a message. Python drops an exception that is raised while it runs a
    finalizer or a callback of a weak reference; then the signal is sent again.

    Args:
        clean_up: Called once, at the end of the block.
        tell: Prints a message for the user.
    """
    over = raised = False
    again: threading.Timer | None = None

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal raised
        if over or raised:
            tell("deleting the queued resource; this cannot be interrupted")
            return
        raised = True
        raise Interrupted(number)

    def dropped(what: "sys.UnraisableHookArgs") -> None:
        nonlocal raised, again
        if over or not isinstance(what.exc_value, Interrupted):
            hook(what)
            return
        raised = False
        main = threading.main_thread().ident
        again = threading.Timer(_AGAIN, signal.pthread_kill, (main, what.exc_value.number))
        again.daemon = True
        again.start()

    hook, before = sys.unraisablehook, {}
    try:
        try:
            sys.unraisablehook = dropped
            for number in _SIGNALS:
                before[number] = signal.signal(number, handle)
            yield
        finally:
            # A signal that arrives just here raises, and the outer `finally` runs.
            over = True
    finally:
        try:
            clean_up()
        finally:
            if again is not None:
                again.cancel()
            sys.unraisablehook = hook
            for number, handler in before.items():
                signal.signal(number, handler)
