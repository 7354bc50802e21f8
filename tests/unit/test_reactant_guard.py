"""The guard over the store of Reactant's processes, which ends with process 0; without Julia."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from pyreactant.arrays.backend import Store
from pyreactant.arrays.runtimes.guard.operation import Operation, Stream
from pyreactant.arrays.runtimes.guard.watch import Watch
from pyreactant.arrays.runtimes.reactant.meeting import Meeting
from pyreactant.process.group.coordinator import MEETING_SECRET
from tests.harness import free_port
from tests.unit.test_reactant_meeting import KEY, _together


class Late:
    """A store that asks late for one key: between two polls it is asked by nobody."""

    def __init__(self, store: Store, ending: str) -> None:
        self._store = store
        self._ending = ending

    def get(self, key: str, timeout: float) -> str | None:
        if key.endswith(self._ending):
            time.sleep(0.5)
        return self._store.get(key, timeout)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def _errors(late: int, ending: str, streams: Callable[[int], list[Stream]]) -> list[list[str]]:
    """What three guards found, when process `late` asks late for the key with this ending.

    Each process ends as soon as its own guard has; to those that wait it would look lost.
    """

    def guarded(meeting: Meeting, index: int) -> list[str]:
        errors: list[str] = []
        over = threading.Event()

        def take_error(error: Exception) -> None:
            errors.append(str(error))
            over.set()

        store = Late(meeting, ending) if index == late else meeting
        mine = streams(index)
        watch = Watch(store, index, 3, name="w", streams=lambda: mine, take_error=take_error)
        watch.start(0.02)
        watch.end()
        while not watch.finished.wait(0.01) and not over.is_set():
            pass
        watch.close()
        return errors

    places = [(3, index) for index in range(3)]
    return _together(f"127.0.0.1:{free_port()}", places, 20, guarded)


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MEETING_SECRET, KEY)


@pytest.mark.parametrize("late", [1, 2])
def test_no_process_leaves_before_all_know_the_verdict(late: int) -> None:
    assert _errors(late, "digests/verdict", lambda index: []) == [[], [], []]


@pytest.mark.parametrize("late", [1, 2])
@pytest.mark.parametrize("ending", ["sentence/pieces", "sentence/0"])
def test_a_process_that_ends_takes_the_sentence_from_nobody(late: int, ending: str) -> None:
    def streams(index: int) -> list[Stream]:
        stream = Stream("MainThread")
        stream.enter(Operation("run" if index == 1 else "gather", "", (), ""))
        return [stream]

    found = _errors(late, ending, streams)
    assert found[0] == found[1] == found[2], found
    assert found[0][0].startswith("process 1 differs from the 2 others at operation 1"), found
