"""A thread per process that compares the order of operations in the background.

In each round all processes report how many operations each thread has entered, and then the digest
at the smallest of these counts. So a slow process is no mismatch, and a process that waits in a
collective of the runtime is found too. The rounds need neither a supervisor nor devices.
"""

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....base.errors import MismatchError, PyReactantError
from ...backend import Store
from .explain import describe, explain
from .operation import Stream, stream_id
from .tree import Tree, equal

_STREAMS = 24  # threads in one message; others wait for another round


class Watch:
    """Compares the streams of this process with those of the others.

    When they differ, or the store is lost, it calls `take_error`, and its thread ends.

    Attributes:
        ending: Whether this process has entered its last operation.
        closed: Whether the thread is to end, or has ended.
        finished: Set when all processes have, and all operations are equal.
        compared: Number of complete rounds.
    """

    def __init__(
        self,
        store: Store,
        index: int,
        count: int,
        *,
        name: str,
        streams: Callable[[], Sequence[Stream]],
        take_error: Callable[[PyReactantError], None],
    ) -> None:
        self._tree = Tree(store, index, count, self._check)
        self._name = name
        self._streams = streams
        self._take_error = take_error
        self._round = 0
        self._wake = threading.Event()
        self.closed = False
        self.ending = False
        self.finished = threading.Event()
        self.compared = 0
        self._thread: threading.Thread | None = None

    def start(self, tick: float) -> None:
        """Compare every `tick` seconds, in a thread."""
        self._thread = threading.Thread(target=self._run, args=(tick,), name=_THREAD, daemon=True)
        self._thread.start()

    def hurry(self) -> int:
        """Begin the next round now; the number of complete ones."""
        self._wake.set()
        return self.compared

    def end(self) -> None:
        """Note that this process has entered its last operation."""
        self.ending = True
        self.hurry()

    def close(self) -> None:
        """End the thread."""
        self.closed = True
        self._wake.set()
        # A thread that is still in the runtime's C++ code when Python ends aborts the process.
        if self._thread not in (None, threading.current_thread()):
            self._thread.join(_CLOSING)

    def _run(self, tick: float) -> None:
        try:
            while not self.closed and self.compare():
                self.compared += 1
                self._wake.wait(tick)
                self._wake.clear()
        except _ClosedError:
            pass
        except PyReactantError as error:
            self._take_error(error)
        except Exception as error:  # or others would wait for this process without end
            self._take_error(PyReactantError(f"internal error of the guard: {error!r}"))

    def _check(self) -> None:
        if self.closed:
            raise _ClosedError

    def compare(self) -> bool:
        """One round; whether another is to follow. Collective."""
        name, self._round = f"{self._name}/{self._round}", self._round + 1
        streams = {stream.id: stream for stream in self._streams()}
        counts = _counts(streams, self.ending)
        plan = self._tree.exchange(f"{name}/counts", counts, _merge_counts, self._plan)
        if self._tree.index == 0:
            # All came to this round, so all have read the verdict of the one before.
            self._tree.store.delete(f"{self._name}/{self._round - 2}")
        if not plan["counts"] and not plan["final"]:
            return True
        digests = _digests(streams, plan)
        verdict = self._tree.exchange(f"{name}/digests", digests, _merge_digests, _first_difference)
        if verdict is None:
            for thread, count in plan["counts"].items():
                streams[thread].trim(count)
            if plan["final"]:
                self._leave(f"{name}/left")
                self.finished.set()
            return not plan["final"]
        thread, number = verdict
        if number is None:
            number = self._locate(f"{name}/locate", streams[thread], plan["counts"][thread])
        mine = describe(streams.get(thread), thread, number, closed=_is_closed(thread, plan))
        self._take_error(MismatchError(explain(self._tree, f"{name}/explain", mine)))
        return False

    def _leave(self, name: str) -> None:
        """Stay until all processes know the verdict; to them, one that ends looks lost.

        Who still waits here when another ends knows the verdict too, so that is no error.
        """
        with contextlib.suppress(PyReactantError):
            self._tree.exchange(name, "", equal)

    def _plan(self, report: Mapping[str, Any]) -> dict[str, Any]:
        """What to compare: the smallest counts of the threads that go on in all processes."""
        counts = {
            thread: least
            for thread, (least, processes) in report["active"].items()
            if processes == self._tree.count
        }
        final = report["ended"] == self._tree.count
        active = sorted(report["active"]) if final else []
        return {"counts": counts, "final": final, "active": active}

    def _locate(self, name: str, stream: Stream, differs: int) -> int:
        """Number of the first operation that differs, among so many that do. Collective."""
        agrees = stream.base
        while differs - agrees > 1:
            middle = (agrees + differs) // 2
            mine = f"{stream.digest_at(middle):x}"
            if self._tree.exchange(f"{name}/{middle}", mine, equal) is None:
                differs = middle
            else:
                agrees = middle
        return agrees


_CLOSING = 3.0  # seconds that the thread may take to end
_THREAD = "pyreactant guard"


class _ClosedError(Exception):
    """The watch is closed."""


def _counts(streams: Mapping[str, Stream], ending: bool) -> dict[str, Any]:
    """The threads with operations that are not yet compared: their counts."""
    active = {
        thread: [count, 1]
        for thread, stream in sorted(streams.items())
        if (count := stream.count) > stream.base
    }
    return _merge_counts([{"ended": int(ending), "active": active}])


def _merge_counts(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """By thread, the smallest count and the number of processes; and how many have ended."""
    ended, active = 0, dict[str, list[int]]()
    for report in reports:
        ended += report["ended"]
        for thread, (least, processes) in report["active"].items():
            before = active.setdefault(thread, [least, 0])
            active[thread] = [min(before[0], least), before[1] + processes]
    # Threads that most processes report come first, so that none waits without end.
    first = sorted(active, key=lambda thread: (-active[thread][1], thread))[:_STREAMS]
    return {"ended": ended, "active": {thread: active[thread] for thread in first}}


def _digests(streams: Mapping[str, Stream], plan: Mapping[str, Any]) -> dict[str, Any]:
    """The digests at the planned counts; at the end also the counts, and of which threads ended."""
    digests = {
        thread: f"{streams[thread].digest_at(count):x}" for thread, count in plan["counts"].items()
    }
    last = {}
    for thread in plan["active"]:
        count = streams[thread].count if thread in streams else 0
        last[thread] = [count if _is_closed(thread, plan) else None, count]
    return {"digests": digests, "last": last}


def _is_closed(thread: str, plan: Mapping[str, Any]) -> bool:
    """Whether a thread does nothing more in this process; known at the end only."""
    alive = {stream_id(t.name) for t in threading.enumerate() if t is not threading.main_thread()}
    return bool(plan["final"]) and thread not in alive


def _merge_digests(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """By thread, the digest or "" where they differ; the smallest last count, and the largest."""
    digests, last = dict[str, str](), dict[str, list[int | None]]()
    for report in reports:
        for thread, digest in report["digests"].items():
            digests[thread] = digest if digests.setdefault(thread, digest) == digest else ""
        for thread, (closed, greatest) in report["last"].items():
            before = last.setdefault(thread, [closed, greatest])
            ends = [count for count in (before[0], closed) if count is not None]
            last[thread] = [min(ends, default=None), max(before[1] or 0, greatest)]
    return {"digests": digests, "last": last}


def _first_difference(report: Mapping[str, Any]) -> list[Any] | None:
    """A thread that differs, and the number of the operation if it is known."""
    for thread, digest in report["digests"].items():
        if not digest:
            return [thread, None]
    for thread, (closed, greatest) in report["last"].items():
        if closed is not None and closed < greatest:
            return [thread, closed]
    return None
