"""`reached_preemption` without a supervisor, and the supervisor's response to signals."""

import signal

import pytest

import pyreactant as pr
from pyreactant.arrays.runtimes import loop
from pyreactant.process.events import Lost, Preempt, SendSignal, Step, StopAt
from pyreactant.runs.supervisor.state import ProcessState
from pyreactant.runs.supervisor.watch import Stop


def test_one_process_alone_is_not_preempted() -> None:
    assert pr.reached_preemption(3) is False


def test_several_processes_need_the_supervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "is_initialized", lambda: True)
    monkeypatch.setattr(loop, "num_processes", lambda: 2)
    with pytest.raises(pr.StateError, match=r"start the program with: pyreactant run -- SCRIPT"):
        pr.reached_preemption(3)


def cooperating(*steps: int | None) -> list[ProcessState]:
    states = [ProcessState(i, cooperates=True) for i in range(len(steps))]
    for state, step in zip(states, steps, strict=True):
        state.apply(Step(step), 1.0)
    return states


@pytest.mark.parametrize(
    ("steps", "agreed"), [((5, 9, 7), 10), ((None, 4), 5), ((None, None), 1), ((0, 0), 1)]
)
def test_the_agreed_step_is_one_that_nobody_has_begun(
    steps: tuple[int | None, ...], agreed: int
) -> None:
    stop = Stop(30)
    stop.request(signal.SIGTERM, None, 0.0)
    orders = list(stop.orders(cooperating(*steps)))
    assert orders == [Preempt(), StopAt(agreed)]
    assert not list(stop.orders(cooperating(*steps)))


def test_nothing_is_agreed_before_all_have_told() -> None:
    stop = Stop(30)
    stop.request(signal.SIGUSR1, 1, 0.0)
    states = [*cooperating(5), ProcessState(1, cooperates=True)]
    assert list(stop.orders(states)) == [Preempt()]
    assert not list(stop.orders(states))
    states[1].apply(Lost("gone"), 1.0)  # this process never reports its step
    assert list(stop.orders(states)) == [StopAt(6)]


def test_several_signals_at_once_are_one() -> None:
    stop = Stop(30)
    for process in (None, 0, 1):
        stop.request(signal.SIGTERM, process, 0.5)
    assert list(stop.orders([ProcessState(0)])) == [SendSignal(signal.SIGTERM)]
    assert not stop.overdue(1.0)
    assert stop.overdue(31.0)
    stop.request(signal.SIGTERM, None, 2.0)
    assert stop.overdue(2.0)


def test_a_warning_has_no_deadline_of_its_own_until_sigterm_comes() -> None:
    stop = Stop(30)
    stop.request(signal.SIGUSR1, None, 0.0)
    assert not stop.ends_all
    stop.request(signal.SIGTERM, None, 60.0)
    assert stop.ends_all
    assert not stop.overdue(80.0)
    assert stop.overdue(91.0)


def test_new_programs_hear_of_a_preemption_too() -> None:
    stop = Stop(30)
    stop.request(signal.SIGUSR1, None, 0.0)
    list(stop.orders(cooperating(5)))
    stop.restarted()
    assert not list(stop.orders([ProcessState(0)]))
    assert list(stop.orders([ProcessState(0, cooperates=True)])) == [Preempt()]
