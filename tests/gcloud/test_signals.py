"""A signal ends a launcher wherever it arrives, and the slices are deleted."""

import os
import signal
import time

import pytest

from pyreactant.runs.queued.signals import Interrupted, cleaned_up


class Finalized:
    """Its finalizer takes a signal, whose exception Python then drops."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(1000):
            pass


@pytest.mark.parametrize("count", [1, 2, 3, 4, 9])
def test_a_signal_within_a_finalizer(count: int) -> None:
    """It once was lost, and every later one was told that the deletion had begun.

    Signals of which several were dropped once came again after the end, and killed the process.
    """
    done: list[str] = []

    def take() -> None:
        with cleaned_up(lambda: done.append("gone"), print):
            for _ in range(count):
                Finalized()
            time.sleep(20)
            done.append("went on")

    with pytest.raises(Interrupted, match="SIGTERM"):
        take()
    assert done == ["gone"]
    time.sleep(0.1)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_hangup_after_nohup() -> None:
    done: list[str] = []
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with cleaned_up(lambda: done.append("gone"), print):
            os.kill(os.getpid(), signal.SIGHUP)
            done.append("went on")
        assert done == ["went on", "gone"]
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
