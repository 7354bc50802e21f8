"""The guard over the store of Reactant's processes, which ends with process 0; without Julia."""

import threading
import time
from typing import Any

import pytest

from pyreactant._core.backend import Store
from pyreactant._runtimes.guard.watch import Watch
from pyreactant._runtimes.reactant.meeting import Meeting
from pyreactant.process_group._coordinator import MEETING_SECRET
from tests.harness import free_port
from tests.unit.test_reactant_meeting import KEY, _together


class Late:
    """A store that asks late for the last verdict: between two polls it is asked by nobody."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, key: str, timeout: float) -> str | None:
        if key.endswith("digests/verdict"):
            time.sleep(0.5)
        return self._store.get(key, timeout)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.mark.parametrize("late", [1, 2])
def test_no_process_leaves_before_all_know_the_verdict(
    late: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process ends as soon as its own guard has; to those that wait it would look lost."""
    monkeypatch.setenv(MEETING_SECRET, KEY)

    def guarded(meeting: Meeting, index: int) -> list[str]:
        errors: list[str] = []
        over = threading.Event()

        def take_error(error: Exception) -> None:
            errors.append(str(error))
            over.set()

        store = Late(meeting.store) if index == late else meeting.store
        watch = Watch(store, index, 3, name="w", streams=lambda: [], take_error=take_error)
        watch.start(0.02)
        watch.end()
        while not watch.finished.wait(0.01) and not over.is_set():
            pass
        watch.close()
        return errors

    places = [(3, index) for index in range(3)]
    assert _together(f"127.0.0.1:{free_port()}", places, 20, guarded) == [[], [], []]
