"""Delete a queued resource until the service shows that it is gone, however a launcher ends.

Signals become one exception, and further ones do not stop the clean-up.
"""

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Literal

from ._request import CloudError

if TYPE_CHECKING:
    from ._client import Client

Outcome = Literal["deleted", "gone", "replaced"]
"""How a deletion ended.

"deleted": the resource was there and is not there any more; "gone": it was never there; "replaced":
another run has its name now.
"""


def delete_and_wait(
    client: "Client",
    path: str,
    run: str,
    *,
    tell: Callable[[str], None],
    unseen: float = 0.0,
    timeout: float,
    pause: float,
) -> Outcome:
    """Delete the resource of one run, and wait until the API no longer lists it.

    Every error, such as expired credentials or an answer that no API gave, means "not yet". A
    resource with the same name but another run's label is left unchanged. Without a label, the
    resource may be this run's or another's: it is left unchanged until the label is there.

    Args:
        client: Client of the API.
        path: Full name of the resource.
        run: Label of the run that must own it.
        tell: Prints a message for the user.
        unseen: Seconds within which a resource that is not visible yet may still appear.
        timeout: Seconds for the whole deletion.
        pause: Seconds between two polls at first; grows to ten times that.

    Raises:
        CloudError: The resource may still exist after `timeout` seconds.
    """
    name, start, longest = path.rpartition("/")[2], time.monotonic(), 10 * pause
    seen, requested, trouble = False, False, ""
    say = _never_raising(tell)
    while (elapsed := time.monotonic() - start) < timeout:
        try:
            found = client.get(path, patience=timeout - elapsed)
            if found is None and (seen or elapsed >= unseen):
                if seen:
                    say(f"{name} is deleted")
                return "deleted" if seen else "gone"
            if found is not None and found.run is None:
                raise CloudError(f"{name} has no labels, so it may not be this run's")
            if found is not None and found.run != run:
                return "replaced"
            if found is not None and not (requested and found.state == "DELETING"):
                if not seen:
                    say(f"deleting {name}, which is {found.state}")
                seen = True
                client.delete(path, patience=timeout - elapsed)
                requested = True
        except Exception as error:  # whatever it was, the resource may still cost money
            if str(error) != trouble:
                trouble = str(error) or type(error).__name__
                say(f"deletion has not succeeded yet: {trouble}")
        time.sleep(pause)
        pause = min(pause * 1.2, longest)
    raise CloudError(_not_deleted(path, trouble))


def deletion_command(path: str) -> str:
    """The command of gcloud that deletes a resource."""
    _, project, _, zone, _, name = path.split("/")
    return (
        f"gcloud compute tpus queued-resources delete {name} --project={project} --zone={zone} "
        "--force --quiet"
    )


def _not_deleted(path: str, trouble: str) -> str:
    """The error for a resource that still exists, with the command that deletes it."""
    return (
        f"{path.rpartition('/')[2]} could NOT be deleted{f' ({trouble})' if trouble else ''} and "
        f"still costs money; run: {deletion_command(path)}   (or pyreactant tpu gc)"
    )


def _never_raising(tell: Callable[[str], None]) -> Callable[[str], None]:
    """Print as `tell` does; a terminal that is gone must not end the deletion."""

    def say(text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            tell(text)

    return say


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_AGAIN = 0.05
"""Seconds after which a signal is sent again whose exception was dropped."""


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

    A SIGHUP that is ignored, as after nohup, stays so. The first signal raises `Interrupted` in the
    main thread. Later signals, and signals during the clean-up, only print a message. Python drops
    an exception that is raised while it runs a finalizer or a callback of a weak reference; then
    the signal is sent again.

    Args:
        clean_up: Called once, at the end of the block.
        tell: Prints a message for the user.
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
            for number in _SIGNALS:
                # Started by nohup, the run goes on when the terminal closes.
                if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
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
