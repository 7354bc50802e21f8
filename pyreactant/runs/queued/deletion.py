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

from .request import CloudError, Resource

if TYPE_CHECKING:
    from .client import Client
    from .journal import Journal

_SAID_AGAIN = 60.0
"""Seconds after which the user sees again why a deletion has not succeeded so far."""
_UNLABELLED = 60.0
"""Seconds after which a resource that stays without labels is not deleted."""

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
    journal: "Journal",
    tell: Callable[[str], None],
    unseen: float = 0.0,
    timeout: float,
    pause: float,
    is_ours: Callable[[Resource], bool] = lambda _: False,
) -> Outcome:
    """Delete the resource of one run, and wait until the API no longer lists it.

    Every error, such as expired credentials or an answer that no API gave, means "not yet". The
    user sees it at once, and the run's entry has it. A resource with the same name but another
    run's label is left unchanged. Without a label the resource may be another's: it is left
    unchanged, and if the label does not appear within a minute, that is an error.

    Args:
        client: Client of the API.
        path: Full name of the resource.
        run: Label of the run that must own it.
        journal: Journal that may have the run's entry.
        tell: Prints a message for the user.
        unseen: Seconds within which a resource that is not visible yet may still appear.
        timeout: Seconds for the whole deletion.
        pause: Seconds between two polls at first; grows to ten times that.
        is_ours: Whether a resource without a label is the run's all the same.

    Raises:
        CloudError: The resource may still exist after `timeout` seconds.
    """
    name, start, longest = path.rpartition("/")[2], time.monotonic(), 10 * pause
    requested, trouble, state, said = False, "", "", -_SAID_AGAIN
    unlabelled: float | None = None  # since when
    say = _never_raising(tell)
    while (elapsed := time.monotonic() - start) < timeout:
        error = ""
        try:
            found = client.get(path, once=timeout - elapsed)
            if found is None and (state or elapsed >= unseen):
                if state:
                    say(f"{name} is deleted")
                return "deleted" if state else "gone"
            if found is not None and found.run not in (None, run):
                return "replaced"
            if found is not None and found.run is None and not is_ours(found):
                unlabelled = elapsed if unlabelled is None else unlabelled
                error = f"{name} has no labels, so it may not be this run's"
            elif found is not None:
                unlabelled = None
                if not state:
                    say(f"deleting {name}, which is {found.state}")
                    said = elapsed
                state = found.state
                if not (requested and state == "DELETING"):
                    client.delete(path, once=timeout - elapsed)
                    requested = True
        except Exception as caught:  # whatever it was, the resource may still cost money
            error = str(caught) or type(caught).__name__
        journal.note_trouble(run, error)
        if (error and error != trouble) or elapsed - said >= _SAID_AGAIN:
            said = elapsed
            say(
                f"deletion has not succeeded yet: {error or _stands(name, state)}; trying for "
                f"another {timeout - elapsed:.0f} s"
            )
        trouble = error
        if unlabelled is not None and elapsed - unlabelled > _UNLABELLED:
            break
        time.sleep(pause)
        pause = min(pause * 1.2, longest)
    trouble = trouble or _stands(name, state)
    journal.note_trouble(run, trouble)
    raise CloudError(_not_deleted(path, trouble))


def _stands(name: str, state: str) -> str:
    return f"{name} is {state or 'not visible yet'}"


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
        f"{path.rpartition('/')[2]} could NOT be deleted ({trouble}) and "
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
