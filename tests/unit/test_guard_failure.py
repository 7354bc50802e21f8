"""What the guard does to a process when the processes differ."""

import subprocess
import sys
import threading
import time

import pytest

import pyreactant as pr
from pyreactant.arrays.runtimes.guard.guard import Guard, Terminator
from pyreactant.process import progress
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
    monkeypatch.setattr("pyreactant.arrays.runtimes.guard.guard.end_at_once", ended.append)
    terminator = Terminator()
    watcher = threading.Thread(target=terminator, args=(pr.MismatchError("they differ"),))
    watcher.start()
    time.sleep(0.8)
    assert watcher.is_alive()  # it waits in no collective
    monkeypatch.setattr(progress, "waiting", 1)
    watcher.join(20)
    terminator.close()
    assert ended == [5]
    assert capsys.readouterr().err == "pyreactant: MismatchError: they differ\n"


def test_failure_leaves_time_for_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """The main thread stands still, and waits for others, while a thread writes the blocks."""
    ended: list[int] = []
    monkeypatch.setattr("pyreactant.arrays.runtimes.guard.guard.end_at_once", ended.append)
    monkeypatch.setattr("pyreactant.arrays.runtimes.guard.guard._STANDS", 3)
    monkeypatch.setattr(progress, "waiting", 1)
    terminator = Terminator()
    watcher = threading.Thread(target=terminator, args=(pr.MismatchError("they differ"),))
    with progress.storing():
        watcher.start()
        watcher.join(2)
        assert ended == []
    watcher.join(20)
    terminator.close()
    assert ended == [5]


def test_failure_lets_a_closed_guard_go(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr("pyreactant.arrays.runtimes.guard.guard.end_at_once", ended.append)
    terminator = Terminator()
    watcher = threading.Thread(target=terminator, args=(pr.MismatchError("they differ"),))
    watcher.start()
    terminator.close()
    monkeypatch.setattr(progress, "waiting", 1)
    watcher.join(20)
    assert ended == []


def test_error_that_another_process_caused() -> None:
    """The collective of a process fails because another one found the difference and ended."""

    def body(guard: Guard, index: int) -> str:
        guard.ran(ran("f" if index else "g"))
        guard.settle()
        return "equal"

    assert "run of g" in one_error(together(2, body, tick=10))


@pytest.mark.parametrize("alone", [False, True])
def test_error_of_processes_that_do_not_differ(alone: bool) -> None:
    def body(guard: Guard, index: int) -> str:
        guard.ran(ran("f"))
        if not (alone and index):
            guard.settle(1.0)
        return "equal"

    assert together(2, body, tick=0.1) == ["equal"] * 2


ABORTS = """
import ctypes, signal, subprocess, sys, threading, time
from pyreactant.arrays.runtimes.guard import guard
guard._SLEPT = 1.2
terminator = guard.Terminator()
if sys.argv[1] == "closed":
    terminator.close()
if sys.argv[1] == "default":
    signal.signal(signal.SIGABRT, signal.SIG_DFL)
elif sys.argv[1] == "outside":
    subprocess.Popen(["kill", "-ABRT", str(guard.os.getpid())])
else:
    threading.Thread(target=ctypes.CDLL(None).abort, daemon=True).start()
time.sleep({"open": 0.7, "default": 2}.get(sys.argv[1], 30))
print("goes on", flush=True)
terminator.close()
sys.stdout.flush()
import os
os._exit(5)
"""


@pytest.mark.parametrize(
    ("state", "code", "text"),
    [
        ("open", 5, "goes on\n"),
        ("closed", -6, ""),
        ("outside", -6, ""),
        ("default", 5, "goes on\n"),
    ],
)
def test_abort_waits_for_the_guard(state: str, code: int, text: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", ABORTS, state], capture_output=True, text=True, timeout=60
    )
    assert (ran.returncode, ran.stdout) == (code, text), ran.stderr
