"""The guard numbers the operations of each thread by itself."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import pyreactant as pr
from pyreactant.arrays.runtimes.guard.guard import Guard
from tests.unit.guards import one_error, placed, ran, together


def test_threads_are_compared_by_their_names() -> None:
    def body(guard: Guard, index: int) -> None:
        def prefetch(name: str) -> None:
            for number in range(20):
                time.sleep(0.001 * ((index + number) % 3))
                guard.announce(placed(number, values=name))

        others = [
            threading.Thread(target=prefetch, args=(name,), name=name) for name in ("a/b", "c", "é")
        ]
        for other in others if index else others[::-1]:
            other.start()
        for number in range(200):
            guard.ran(ran(f"f{number}"))
            time.sleep(0.0005 * (index + 1))
        for other in others:
            other.join(20)
        guard.end(20)

    assert together(3, body) == [None] * 3


@pytest.mark.parametrize("missing", [19, 3, 0])
def test_missing_operation_of_a_thread_is_named_at_the_end(missing: int) -> None:
    operations = [placed(1), *(placed(1, values=str(n)) for n in range(1, 20))]

    def body(guard: Guard, index: int) -> None:
        def prefetch() -> None:
            kept = [o for n, o in enumerate(operations) if index == 0 or n != missing]
            for operation in kept if missing else kept[:0] if index else kept:
                guard.ran(operation)

        other = threading.Thread(target=prefetch, name=f"prefetch of {missing}")
        other.start()
        guard.ran(ran("f"))
        other.join(20)
        guard.end(20)

    text = one_error(together(2, body))
    assert f"at operation {missing + 1} of thread 'prefetch of {missing}'" in text
    if missing != 3:
        assert "nothing on 1. " in text


def test_thread_that_goes_on_at_the_end_is_no_mismatch() -> None:
    """A daemon thread that fetches ahead is at another batch in each process."""
    ended = threading.Event()

    def body(guard: Guard, index: int) -> None:
        def prefetch() -> None:
            for number in range(5 + index):
                guard.announce(placed(1, values=str(number)))
            ended.wait(20)

        threading.Thread(target=prefetch, name="ahead", daemon=True).start()
        time.sleep(0.1)
        guard.end(20)

    try:
        assert together(3, body) == [None] * 3
    finally:
        ended.set()


def test_two_threads_of_one_name_are_an_error() -> None:
    def body(guard: Guard, index: int) -> Any:
        if index == 1:
            time.sleep(0.3)
            guard.announce(placed(1))
            return None
        others = []

        def announce() -> None:
            try:
                guard.announce(placed(1))
            except pr.StateError as error:
                others.append(str(error))

        twins = [threading.Thread(target=announce, name="MainThread") for _ in range(2)]
        for twin in twins:
            twin.start()
        for twin in twins:
            twin.join(20)
        return others

    (text,), _ = together(2, body)
    assert "two threads named 'MainThread' do operations at the same time" in text


def test_threads_that_python_named_are_not_compared() -> None:
    """Their numbers depend on the threads that were started before them."""

    def body(guard: Guard, index: int) -> None:
        def place() -> None:
            guard.announce(placed(index))
            guard.ran(ran(f"f{index}"))

        for name in (f"Thread-{index} (load)", f"Thread-{index}", "asyncio_0"):
            thread = threading.Thread(target=place, name=name)
            thread.start()
            thread.join(20)
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda _: place(), range(4)))
        guard.announce(placed(7))
        guard.end(60)

    assert together(3, body) == [None] * 3
