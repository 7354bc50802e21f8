"""A sign of life on the nodes of a resource, for `gc` on machines that cannot see the launcher."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ._resource import HEARTBEAT_LABEL, KEPT_LABEL, Node

DEAD_AFTER = 600.0
"""Age of a sign of life, in seconds, from which its launcher counts as dead."""


class Heartbeat:
    """Calls `renew` now and again and again, in a thread, until `stop`.

    A renewal that fails ends nothing; the user is told once for each reason.

    Args:
        renew: Writes the sign of life.
        tell: Prints a message for the user.
        interval: Seconds between two renewals.
    """

    def __init__(
        self, renew: Callable[[], None], tell: Callable[[str], None], interval: float
    ) -> None:
        self._renew, self._tell, self._interval = renew, tell, interval
        self._stopped = threading.Event()
        self._trouble = ""

    def start(self) -> None:
        """Renew once, then go on in a thread."""
        self._try()  # before ssh begins: gcloud writes its keys to the same nodes
        threading.Thread(target=self._go_on, name="heartbeat", daemon=True).start()

    def stop(self) -> None:
        """End the renewals; one that is under way may still arrive."""
        self._stopped.set()

    def _go_on(self) -> None:
        while not self._stopped.wait(self._interval):
            self._try()

    def _try(self) -> None:
        try:
            self._renew()
        except Exception as error:  # the run matters more than its sign of life
            if str(error) != self._trouble and not self._stopped.is_set():
                self._trouble = str(error)
                self._tell(
                    "the label that shows that this launcher lives was not written; without it "
                    f"for {DEAD_AFTER / 60:.0f} minutes, `pyreactant tpu gc` on another machine "
                    f"may delete the nodes: {error}"
                )


@dataclass(frozen=True, slots=True)
class Signs:
    """What the nodes of a resource show.

    Attributes:
        age: Seconds since the first node was created; None if there is no node.
        silent: Seconds since the last sign of life; None if there was none.
        kept: Whether the user keeps the resource.
    """

    age: float | None
    silent: float | None
    kept: bool

    @property
    def alive(self) -> bool:
        """Whether a launcher must be alive."""
        return not self.kept and self.silent is not None and self.silent <= DEAD_AFTER

    @property
    def dead(self) -> bool:
        """Whether the launcher must be dead."""
        return not self.kept and self.silent is not None and self.silent > DEAD_AFTER


def signs(nodes: Sequence[Node]) -> Signs:
    """The signs on the nodes of one resource."""
    now = time.time()
    beats = [node.labels.get(HEARTBEAT_LABEL, "") for node in nodes]
    last = max((float(text) for text in beats if text.isdecimal()), default=None)
    born = min((node.created for node in nodes if node.created is not None), default=None)
    return Signs(
        age=None if born is None else now - born,
        silent=None if last is None else now - last,
        kept=any(KEPT_LABEL in node.labels for node in nodes),
    )
