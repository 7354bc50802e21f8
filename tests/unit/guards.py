"""A store in this process, and guards of many processes that are threads here."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import pyreactant as pr
from pyreactant.arrays.runtimes.guard import explain
from pyreactant.arrays.runtimes.guard.guard import Guard
from pyreactant.arrays.runtimes.guard.operation import VALUES, Operation

TICK = 0.02


class MemoryStore:
    """A `Store` of threads that counts what passes through it."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.most = 0
        self.largest = 0
        self.broken = False
        self._lock = threading.Lock()
        self._waits: dict[str, list[threading.Event]] = {}

    def put(self, key: str, value: str) -> None:
        self._check()
        with self._lock:
            self.values[key] = value
            self.most = max(self.most, len(self.values))
            self.largest = max(self.largest, len(value.encode()))
            for event in self._waits.pop(key, ()):
                event.set()

    def get(self, key: str, timeout: float) -> str | None:
        self._check()
        with self._lock:
            if key in self.values:
                return self.values[key]
            event = threading.Event()
            self._waits.setdefault(key, []).append(event)
        event.wait(timeout)
        self._check()
        with self._lock:
            return self.values.get(key)

    def delete(self, prefix: str) -> None:
        self._check()
        with self._lock:
            for key in [k for k in self.values if k == prefix or k.startswith(f"{prefix}/")]:
                del self.values[key]

    def lose(self) -> None:
        """From now on every call raises, also those that wait."""
        self.broken = True
        for events in self._waits.values():
            for event in events:
                event.set()

    def _check(self) -> None:
        if self.broken:
            raise pr.DeadlineError("the store was lost")


class Counted:
    """A process's view of a store: which messages it sent and received, by their keys."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.messages: Counter[str] = Counter()

    def put(self, key: str, value: str) -> None:
        self.messages[key] += 1
        self.store.put(key, value)

    def get(self, key: str, timeout: float) -> str | None:
        value = self.store.get(key, timeout)
        self.messages[key] += value is not None
        return value

    def delete(self, prefix: str) -> None:
        self.store.delete(prefix)


def placed(number: int, shape: object = (8, 8), values: str = "0") -> Operation:
    """A placement in line `number` of a program."""
    fields = (("shape", str(shape)), ("dtype", "float32"), (VALUES, values))
    return Operation("device_put", "", fields, f"train.py:{number}")


def ran(name: str) -> Operation:
    """A call of a compiled program."""
    return Operation("run", name, (("program", name),), "train.py:99")


Body = Callable[[Guard, int], Any]


def together(
    count: int,
    body: Body,
    *,
    store: Any = None,
    tick: float = TICK,
    fail: Callable[[pr.MismatchError], None] = lambda error: None,
) -> list[Any]:
    """Run `body(guard, index)` in one thread per process; their results, or the errors."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(explain, "HEAD_START", 0.0)  # process 0 ends nobody here
        return _together(count, body, store or MemoryStore(), tick, fail)


def _together(
    count: int, body: Body, store: Any, tick: float, fail: Callable[[pr.MismatchError], None]
) -> list[Any]:
    found: list[Any] = [None] * count

    def run(index: int) -> None:
        given = store(index) if callable(store) else store
        guard = Guard(given, index, count, fail=fail, tick=tick)
        try:
            found[index] = body(guard, index)
        except pr.PyReactantError as error:
            found[index] = error
        ended.release()
        closing.wait(60)  # until then its watch answers the others, as that of a process does
        guard.close()

    ended, closing = threading.Semaphore(0), threading.Event()
    # Python's name of the main thread of a process, by which the threads match.
    threads = [threading.Thread(target=run, args=(i,), name="MainThread") for i in range(count)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 60
    for _ in range(count):
        ended.acquire(timeout=max(0.0, deadline - time.monotonic()))
    closing.set()
    for thread in threads:
        thread.join(60)
    return found


def one_error(found: Sequence[Any]) -> str:
    """The text of the error that every process raised."""
    assert all(isinstance(error, pr.MismatchError) for error in found), found
    texts = {str(error) for error in found}
    assert len(texts) == 1, texts
    return texts.pop()
