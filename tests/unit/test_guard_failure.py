"""What the guard does to a process when the processes differ."""

import threading
import time

import pytest

import pyreactant as pr
from pyreactant._core import progress
from pyreactant._runtimes.guard.failure import Failure
from pyreactant._runtimes.guard.guard import Guard
from tests.unit.guards import one_error, ran, together


def test_after_a_mismatch_every_operation_raises() -> None:
    def body(guard: Guard, index: int) -> int:
        guard.ran(ran(f"f{index}"))
        while guard.error is None:
            time.sleep(0.01)
        raised = 0
        for call in (guard.ran, guard.announce, lambda _: guard.end()):
            with pytest.raises(pr.MismatchError, match="operation 1: run of f0 at"):
                call(ran("g"))
            raised += 1
        other = threading.Thread(target=lambda: others.append(_raises(guard)), name="prefetch")
        other.start()
        other.join(20)
        return raised

    others: list[bool] = []
    assert together(2, body) == [3, 3]
    assert others == [True, True]


def _raises(guard: Guard) -> bool:
    with pytest.raises(pr.MismatchError):
        guard.ran(ran("h"))
    return True


def test_fail_is_called_once_in_every_process() -> None:
    called: list[str] = []

    def body(guard: Guard, index: int) -> None:
        guard.ran(ran(f"f{index}"))
        guard.end(20)

    found = together(3, body, fail=lambda error: called.append(str(error)))
    assert called == [one_error(found)] * 3


def test_failure_ends_a_process_that_waits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended: list[int] = []
    monkeypatch.setattr("pyreactant._runtimes.guard.failure.end_at_once", ended.append)
    failure = Failure()
    watcher = threading.Thread(target=failure, args=(pr.MismatchError("they differ"),))
    watcher.start()
    time.sleep(0.8)
    assert watcher.is_alive()  # it waits in no collective
    monkeypatch.setattr(progress, "waiting", 1)
    watcher.join(20)
    assert ended == [5]
    assert capsys.readouterr().err == "pyreactant: MismatchError: they differ\n"


def test_failure_lets_a_closed_guard_go(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr("pyreactant._runtimes.guard.failure.end_at_once", ended.append)
    failure = Failure()
    watcher = threading.Thread(target=failure, args=(pr.MismatchError("they differ"),))
    watcher.start()
    failure.close()
    monkeypatch.setattr(progress, "waiting", 1)
    watcher.join(20)
    assert ended == []
