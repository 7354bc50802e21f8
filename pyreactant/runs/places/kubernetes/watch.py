"""The objects of a cluster as they are now, which one connection for each kind keeps up."""

import functools
import threading
import time

from ....base.errors import PyReactantError
from .client import Cluster, NoAnswerError
from .states import Object

_ONCE, _AGAIN = 0.3, 5.0
"""Seconds that a list counts, and within which a second question starts a watch."""
_UNASKED = 60.0
"""Seconds without a question, after which a watch ends."""
_AFTER, _SLOWEST = 1.0, 30.0
"""Seconds between tries, at first and at most; the API may end each watch at once."""


class Watch:
    """The objects of one kind that have some labels: a list, then what the cluster tells of them.

    Args:
        cluster: The cluster.
        kind: A plural, such as "pods".
        selector: The labels; of events the fields.
    """

    def __init__(self, cluster: Cluster, kind: str, selector: str) -> None:
        self._what = kind, selector
        self._cluster = cluster
        self._there: dict[str, Object] = {}
        self._version = ""
        self._listed = self._asked = self._failed = -_AGAIN
        self._error: PyReactantError | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def objects(self) -> list[Object]:
        """The objects; the first call reads them, and one that follows soon watches them.

        Raises:
            NoAnswerError: The cluster does not answer now.
            RequirementError: The cluster has none of the kind, or the user may not do this.
        """
        with self._lock:
            self._asked = time.monotonic()
            if self._thread is None or not self._thread.is_alive():
                last, begun = max(self._listed, self._failed), self._cluster.many_since
                if last < (self._asked - _AGAIN if begun is None else begun):
                    self._list()
                elif self._error is None and begun is None and self._asked - last >= _ONCE:
                    self._thread = threading.Thread(target=self._follow, daemon=True)
                    self._thread.start()
            if self._error is not None:
                raise self._error
            return [*self._there.values()]

    def _list(self) -> None:
        try:
            items, self._version = self._cluster.listed(*self._what)
        except PyReactantError as error:
            self._failed, self._error = time.monotonic(), error
            raise
        self._there = {item["metadata"]["uid"]: item for item in items}
        self._listed, self._error = time.monotonic(), None

    def _follow(self) -> None:
        """Note what changes, over broken connections, until nobody asks any more.

        Whenever the API ends a watch, a list says what it did not tell: a version may be too old
        for it, and an event may go missing.
        """
        pause, begun = _AFTER, True
        while time.monotonic() - self._asked < _UNASKED:
            try:
                if not begun:
                    self._list()
                begun = False
                for event in self._cluster.watch(*self._what, self._version):
                    pause = _AFTER
                    if event is not None:
                        self._take(event)
                time.sleep(_AFTER)
            except NoAnswerError:
                time.sleep(pause)
                pause = min(2 * pause, _SLOWEST)
            except PyReactantError as error:
                self._error = error
                return

    def _take(self, event: Object) -> None:
        one = event["object"]
        there = dict(self._there)  # another thread reads it
        if event["type"] == "DELETED":
            there.pop(one["metadata"]["uid"], None)
        elif event["type"] != "BOOKMARK":
            there[one["metadata"]["uid"]] = one
        self._there, self._version = there, one["metadata"]["resourceVersion"]


@functools.lru_cache(maxsize=64)
def watch_of(cluster: Cluster, kind: str, selector: str) -> Watch:
    """The one watch of these objects in this process."""
    return Watch(cluster, kind, selector)
