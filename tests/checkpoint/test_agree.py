"""What the processes of a run agree on, here threads with a store."""

import re
import threading
import time
from collections.abc import Callable
from typing import Any, cast

import pytest

from pyreactant.arrays.runtimes import agree
from pyreactant.arrays.runtimes.agree import Agreement
from pyreactant.arrays.runtimes.runtime import Running

LIMIT = 60  # seconds


class Store:
    """As the run's store, in this process."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.changed = threading.Condition()

    def put(self, key: str, value: str) -> None:
        with self.changed:
            self.values[key] = value
            self.changed.notify_all()

    def get(self, key: str, timeout: float) -> str | None:
        with self.changed:
            self.changed.wait_for(lambda: key in self.values, timeout)
            return self.values.get(key)

    def delete(self, prefix: str) -> None:
        with self.changed:
            for key in [k for k in self.values if f"{k}/".startswith(f"{prefix}/")]:
                del self.values[key]


class Group:
    num_processes = 3

    def __init__(self, process: int, store: Store) -> None:
        self.process_index = process
        self.group = self.backend = self
        self.store = lambda: store


class Processes:
    """Three processes in one round; `slow` waits in its part for what a test waits for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = Store()
        self.said: list[str] = []
        monkeypatch.setattr(agree, "_SLICE", 0.01)
        monkeypatch.setattr(agree, "_TOLD", 0.05)
        monkeypatch.setattr(agree, "say", self.said.append)
        self.values: dict[int, Any] = {}
        self.agreements = []
        for process in range(3):
            agreement = Agreement(cast(Running, Group(process, self.store)))
            agreement._name = "agreement/0"  # each process counts its own
            self.agreements.append(agreement)

    def run(self, slow: int, until: Callable[[], bool], before: str = "") -> None:
        """A round that the others begin when the store has the key `before`."""

        def mine(process: int) -> int:
            while process == slow and not until():
                time.sleep(0.01)
            return process

        def take(process: int) -> None:
            if process == 1 and before:
                assert self.store.get(before, LIMIT) is not None
            agreement = self.agreements[process]
            self.values[process] = agreement.round("save 900", lambda: mine(process), sum)

        threads = [threading.Thread(target=take, args=(n,), daemon=True) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT)
        assert self.values == {0: 3, 1: 3, 2: 3}


def test_process_0_says_for_whom_all_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = Processes(monkeypatch)

    def told() -> bool:
        return any(line.endswith(" in save 900 for process 2") for line in processes.said)

    processes.run(2, told, before="agreement/0/0/awaited")
    assert all(line.startswith("process 0 has waited ") for line in processes.said)


def test_process_1_says_that_all_wait_for_process_0(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = Processes(monkeypatch)
    processes.run(0, lambda: bool(processes.said))
    for line in processes.said:
        assert re.fullmatch(r"process 1 has waited \d+ s in save 900 for process 0", line)
