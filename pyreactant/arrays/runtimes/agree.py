"""What the processes of a run agree on for checkpoints and burn-ins, through the run's store.

Devices take no part, so a thread can agree while the program computes. Nothing is pickled.
"""

import contextlib
import itertools
import json
import platform
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...base.errors import PyReactantError, kind_of
from ...base.say import say
from ...process import progress, supervised
from ...process.events import WaitsFor
from ..backend import Store
from .runtime import Running, current

_SLICE = 5.0  # seconds
_TOLD = 60.0
"""Seconds of waiting after which one process says who waits for whom."""

_LONGEST = 2000
"""Characters of an error's message that reach the other processes."""


class Agreement:
    """Rounds in which every process tells process 0 something, and process 0 decides.

    The processes make the same agreements in the same order. One thread of each process uses an
    agreement at a time.
    """

    _numbers = itertools.count()

    def __init__(self, running: Running) -> None:
        self.process = running.group.process_index
        self.count = running.group.num_processes
        self._store: Store | None = running.backend.store() if self.count > 1 else None
        self._name = f"agreement/{next(self._numbers)}"
        self._round = 0

    def round(
        self,
        what: str,
        mine: Callable[[], Any],
        decide: Callable[[Sequence[Any]], Any] = lambda rows: None,
    ) -> Any:
        """Do something on every process, then let process 0 decide by what all of them returned.

        Args:
            what: What is done, for messages: "save 900".
            mine: What this process does; returns plain data.
            decide: Called in process 0 with what each process returned.

        Returns:
            What `decide` returned, on every process.

        Raises:
            PyReactantError: An error of `mine` or `decide`, of the same kind on every process; on
                the others it names the process.
        """
        if self._store is None:
            return decide([mine()])
        key = f"{self._name}/{self._round}"
        before, self._round = f"{self._name}/{self._round - 1}", self._round + 1
        report, raised = _attempt(mine)
        if self.process == 0:
            answer = self._decide(self._store, what, key, report, decide)
            self._store.delete(before)  # whoever is in this round has left that one
        else:
            self._store.put(f"{key}/{self.process}", json.dumps(report))
            answer = json.loads(self._wait(self._store, key, "answer", what, 0))
        if raised is not None:
            raise raised
        if "kind" in answer:
            raise _error(answer, what, self.process)
        return answer["value"]

    def publish(self, what: str, number: int, decide: Callable[[], Any]) -> Any:
        """Take a decision of process 0, which waits for nobody; equal numbers are one decision."""
        if self._store is None:
            return decide()
        key = f"{self._name}/due/{number}"
        if self.process == 0:
            value = decide()
            self._store.put(f"{key}/answer", json.dumps(value))
            return value
        return json.loads(self._wait(self._store, key, "answer", what, 0))

    def forget(self, first: int, last: int) -> None:
        """Delete the decisions of these numbers, which every process has taken."""
        if self._store is not None and self.process == 0:
            for number in range(first, last):
                self._store.delete(f"{self._name}/due/{number}")

    def _decide(
        self,
        store: Store,
        what: str,
        key: str,
        report: dict[str, Any],
        decide: Callable[[Sequence[Any]], Any],
    ) -> dict[str, Any]:
        others = range(1, self.count)
        reports = [report, *(json.loads(self._wait(store, key, str(n), what, n)) for n in others)]
        failed = [(n, one) for n, one in enumerate(reports) if "kind" in one]
        if failed:
            answer = {**failed[0][1], "process": failed[0][0]}
            raised = None
        else:
            answer, raised = _attempt(lambda: decide([one["value"] for one in reports]))
        store.put(f"{key}/answer", json.dumps(answer))
        if raised is not None:
            raise raised
        return answer

    def _wait(self, store: Store, key: str, name: str, what: str, other: int) -> str:
        began = told = time.monotonic()
        with _waiting():
            while (value := store.get(f"{key}/{name}", _SLICE)) is None:
                if self.process == 0:
                    store.put(f"{key}/awaited", str(other))
                now = time.monotonic()
                if now - told > _TOLD:
                    told = now
                    if self._speaks(store, key):
                        self._tell(what, other, now - began)
        return value

    def _tell(self, what: str, other: int, seconds: float) -> None:
        """Say for whom all wait; under a supervisor the head says it, and the report has it."""
        waits = WaitsFor(what, other, seconds)
        if supervised.connection is None:
            say(waits.text(f"process {self.process}", f"process {other}"))
        supervised.tell(waits)

    def _speaks(self, store: Store, key: str) -> bool:
        """Whether this process is the one that says who waits: there may be thousands.

        It is process 0, or if all wait for that, process 1.
        """
        return self.process == 0 or (self.process == 1 and store.get(f"{key}/awaited", 0) is None)


@contextlib.contextmanager
def _waiting() -> Iterator[None]:
    """Tell the supervisor that the program waits, if this is its main thread and none of ours."""
    main = threading.current_thread() is threading.main_thread()
    progress.waiting += main
    try:
        yield
    finally:
        progress.waiting -= main


def _attempt(action: Callable[[], Any]) -> tuple[dict[str, Any], Exception | None]:
    try:
        return {"value": action()}, None
    except Exception as error:
        message = f"{error}"[:_LONGEST]
        return {"kind": type(error).__name__, "message": message, "host": platform.node()}, error


def _error(answer: dict[str, Any], what: str, process: int) -> PyReactantError:
    other = answer.get("process")
    if other is None:  # a decision about all processes
        return kind_of(answer["kind"])(answer["message"])
    told = kind_of(answer["kind"])(
        f"{what} failed on process {other} ({answer['host']}): {answer['message']}"
    )
    told.failed_process = other
    return told


_shared: tuple[Running, Agreement] | None = None


def shared() -> Agreement:
    """The agreement of `save` and `restore`, which every process calls in the same order."""
    global _shared
    running = current()
    if _shared is None or _shared[0] is not running:
        _shared = running, Agreement(running)
    return _shared[1]
