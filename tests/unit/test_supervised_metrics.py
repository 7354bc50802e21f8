"""When the values of arrays are read, and how they are sent."""

import json
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.process import supervised
from pyreactant.process.events import Event, Metrics, Raised, read, write
from pyreactant.process.supervised import metrics


class Connection:
    """A stand-in for the line to the supervisor."""

    def __init__(self) -> None:
        self.messages: list[list[Any]] = []

    def tell(self, event: Event) -> None:
        told = read(Event, json.loads(json.dumps(write(event))))
        assert isinstance(told, Metrics)
        self.messages.append(list(told.records))

    @property
    def values(self) -> list[tuple[int, str, Any]]:
        return [(step, name, value) for m in self.messages for step, _, name, value, _ in m]


class Jax:
    """An array like JAX's: it may not be ready, and reading it then waits."""

    shape, dtype = (), np.dtype("float32")

    def __init__(self, value: float) -> None:
        self.value, self.ready, self.waited = value, False, False

    def is_ready(self) -> bool:
        return self.ready

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        self.waited = self.waited or not self.ready
        return np.asarray(self.value, self.dtype)


class Held:
    """A ShardedArray: of JAX if its value is one, otherwise only the main thread may read it."""

    shape, dtype = (), np.dtype("int32")

    def __init__(self, value: Any) -> None:
        self.value, self.read = value, 0

    def to_jax(self) -> Any:
        raise AssertionError("not needed")

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        self.read += 1
        return np.asarray(7, self.dtype)


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    connection = Connection()
    monkeypatch.setattr(supervised, "connection", connection)
    monkeypatch.setattr(metrics, "_started", os.getpid())  # no thread: the test sends
    monkeypatch.setattr(metrics, "_index", 0)
    yield connection
    metrics._queue.clear()


def test_what_is_not_computed_waits_and_keeps_its_place(connection: Connection) -> None:
    array = Jax(1.5)
    pr.log(1, a=0.5, b=array)
    pr.log(2, a=0.25)
    metrics.flush(wait=False)
    assert connection.values == [(1, "a", 0.5)]
    assert not array.waited
    array.ready = True
    metrics.flush(wait=False)
    assert connection.values[1:] == [(1, "b", 1.5), (2, "a", 0.25)]
    pr.log(3, c=Held(late := Jax(4.0)))
    metrics.flush(wait=False)
    assert len(connection.values) == 3
    metrics.flush(wait=True)
    assert late.waited
    assert connection.values[3:] == [(3, "c", 4.0)]


def test_an_array_of_another_runtime_is_read_by_the_next_call(connection: Connection) -> None:
    held = Held(object())
    pr.log(1, x=held)
    metrics._send(wait=False, main=False)  # as the thread does
    assert (held.read, connection.values) == (0, [])
    pr.log(2, y=1)
    assert held.read == 1
    metrics._send(wait=False, main=False)
    assert connection.values == [(1, "x", 7), (2, "y", 1)]
    assert metrics.last() == (2, {"y": 1})


def test_a_long_text_of_an_exception_does_not_hide_where_it_was_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[Any] = []
    link = type("Link", (), {"tell": lambda self, event: told.append(event)})
    monkeypatch.setattr(supervised, "connection", link())
    try:
        raise ValueError("x" * 50_000 + "end")
    except ValueError as error:
        supervised.tell_error(error)
    (text,) = [event.traceback for event in told if isinstance(event, Raised)]
    assert "test_supervised_metrics.py" in text
    assert "characters are left out" in text
    assert text.endswith("xend\n")
    assert len(text) < 12_100


def test_messages_stay_below_the_limit_of_a_line(connection: Connection) -> None:
    for step in range(300):
        pr.log(step, **{"\x00" * 199 + str(i): float("-inf") for i in range(3)})
    metrics.flush(wait=True)
    assert len(connection.values) == 900
    assert all(value == "-inf" for _, _, value in connection.values)
    assert max(len(json.dumps(message)) for message in connection.messages) < 1 << 16


def test_only_what_is_reduced_is_sent_by_the_others(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "_index", 3)
    pr.log(1, x=1, y=2, reduce={"y": "max"})
    metrics.flush(wait=True)
    assert connection.values == [(1, "y", 2)]
