"""Parallel jobs: as many as memory allows, and the response to an interrupt."""

import subprocess
import sys
import threading
import time

import pytest

from pyreactant.base.facts import available_memory
from pyreactant.fit.plan import evaluate as parallel
from pyreactant.fit.plan.evaluate import Pool, peak_of_children


def job(running: list[int], most: list[int], lock: threading.Lock, number: int) -> int:
    with lock:
        running.append(number)
        most.append(len(running))
    time.sleep(0.05)
    with lock:
        running.remove(number)
    return number


def run(pool: Pool[int], jobs: int) -> tuple[list[int], int]:
    running: list[int] = []
    most: list[int] = []
    lock = threading.Lock()
    work = [lambda i=i: job(running, most, lock, i) for i in range(jobs)]
    results = dict(pool.run(work))
    assert results == {i: i for i in range(jobs)}
    assert most[0] == 1  # the first job runs alone
    return most, pool.at_once


@pytest.mark.parametrize(
    ("workers", "memory", "expected"),
    [(4, 10_000, 4), (4, 260, 2), (4, 120, 1), (4, 1, 1), (1, 10_000, 1)],
)
def test_as_many_as_memory_allows(
    monkeypatch: pytest.MonkeyPatch, workers: int, memory: int, expected: int
) -> None:
    """The first job took 100; a quarter of the memory stays free."""
    monkeypatch.setattr(parallel, "peak_of_children", lambda: 100)
    most, at_once = run(Pool(workers, memory), 12)
    assert max(most) == at_once == expected


def test_nothing_is_known_until_one_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "peak_of_children", lambda: 0)
    assert run(Pool(4, 10_000), 4)[1] == 1


def test_peak_is_that_of_the_largest_child() -> None:
    code = "x = bytearray(300_000_000); x[::4096] = b'1' * len(x[::4096])"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert 300_000_000 < peak_of_children() < 2_000_000_000


def test_memory_of_this_machine() -> None:
    found = available_memory()
    assert found is not None
    assert 2**20 < found < 2**50


def test_an_exception_comes_out() -> None:
    def fails() -> int:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        list(Pool(2, 1000).run([fails, fails]))
