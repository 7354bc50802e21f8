"""Signals as one exception: whatever ends a launcher, its clean-up runs, and only once."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from ...base.process import LIKE_SIGTERM

_AGAIN = 0.05
"""Seconds after which a signal is sent again whose exception was dropped."""


class Interrupted(BaseException):
    """SIGINT, SIGTERM, SIGHUP or SIGQUIT arrived.

    It is not an `Exception`, so that ``except Exception`` does not catch it.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Raise `Interrupted` at the first SIGTERM, SIGHUP or SIGQUIT in the block; ignore later ones.

    A SIGHUP or SIGQUIT that is ignored, as after nohup, stays so. Ctrl-C stays a KeyboardInterrupt.
    """
    before: dict[signal.Signals, Any] = {}

    def handle(number: int, frame: FrameType | None) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted(number)

    for number in (signal.SIGTERM, *LIKE_SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            before[number] = signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def cleaned_up(clean_up: Callable[[], None], tell: Callable[[str], None]) -> Iterator[None]:
    """Run `clean_up` however the block ends: success, error or one of the signals.

    A SIGHUP or SIGQUIT that is ignored, as after nohup, stays so. The first signal raises
    `Interrupted` in the main thread. Later signals, and signals during the clean-up, only print a
    message. Python drops an exception that is raised while it runs a finalizer or a callback of a
    weak reference; then the signal is sent again.

    Args:
        clean_up: Called once, at the end of the block.
    """
    over = raised = False
    ended, again = threading.Event(), threading.Thread()

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal raised
        if over or raised:
            tell("deleting the queued resource; this cannot be interrupted")
            return
        raised = True
        raise Interrupted(number)

    def send_again(number: int) -> None:
        while not ended.wait(_AGAIN):
            if not (over or raised):
                signal.pthread_kill(main, number)

    def dropped(what: "sys.UnraisableHookArgs") -> None:
        nonlocal raised, again
        if over or not isinstance(what.exc_value, Interrupted):
            hook(what)
            return
        if not again.is_alive():
            again = threading.Thread(target=send_again, args=(what.exc_value.number,), daemon=True)
            again.start()
        raised = False  # at last: an exception that is raised in a hook is dropped too

    main = threading.get_ident()
    hook, before = sys.unraisablehook, {}
    try:
        try:
            sys.unraisablehook = dropped
            for number in (signal.SIGINT, signal.SIGTERM, *LIKE_SIGTERM):
                # Started by nohup, the run goes on when the terminal closes.
                if number not in LIKE_SIGTERM or signal.getsignal(number) != signal.SIG_IGN:
                    before[number] = signal.signal(number, handle)
            yield
        finally:
            # A signal that arrives just here raises, and the outer `finally` runs.
            over = True
    finally:
        try:
            clean_up()
        finally:
            ended.set()
            if again.is_alive():
                again.join()  # its last signal must not meet the handlers of before
            sys.unraisablehook = hook
            for number, handler in before.items():
                signal.signal(number, handler)
