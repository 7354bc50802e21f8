"""What the head says while a process waits for others."""

from pathlib import Path

import pytest

from pyreactant.process.events import Exited, Order, Phase, Pulse, Stacks
from pyreactant.runs.supervisor.state import ProcessState
from pyreactant.runs.supervisor.watch import FIRST, Stalls, Waits


def states(*counts: tuple[int, bool]) -> list[ProcessState]:
    """Processes with so many collective operations, which wait in the last one since 100 s."""
    found = [ProcessState(index, f"host{index}") for index in range(len(counts))]
    for state, (count, waiting) in zip(found, counts, strict=True):
        state.apply(Pulse(count, waiting), 100.0)
    return found


def test_a_long_wait_is_said_while_it_lasts() -> None:
    waits, run = Waits(), states((9, True), (8, False), (9, True))
    said = [(now, text) for now in range(100, 400) for text in waits.messages(run, float(now))]
    assert said == [
        (
            100 + seconds,
            f"process 0 on host0 has waited {seconds} s in operation 9, which process 1 on host1 "
            "has not begun",
        )
        for seconds in (60, 120, 240)
    ]


def test_nothing_is_said_of_a_slow_operation() -> None:
    """All have begun it, or nobody waits, or the wait is new."""
    for run in (states((9, True), (9, True)), states((9, False), (8, False))):
        assert not list(Waits().messages(run, 1000.0))
    assert not list(Waits().messages(states((9, True), (8, False)), 100.0 + FIRST - 1))


def test_several_have_not_begun() -> None:
    (text,) = Waits().messages(states((9, True), *[(3, False)] * 6), 170.0)
    assert text.endswith("process 4 on host4 and 2 more have not begun")


@pytest.mark.parametrize("end", [Phase("ending", code=0), Phase("leaving")])
def test_the_early_end_of_a_program_is_said_once(end: Phase) -> None:
    waits, run = Waits(), states((0, False), (0, False), (0, False))
    for state in run:
        state.apply(Phase("initialized"), 100.0)
    run[1].apply(end, 102.0)
    said = [(now, text) for now in range(100, 200) for text in waits.messages(run, float(now))]
    others = "process 0 on host0, process 2 on host2 still run"
    assert said == [
        (
            113,
            f"process 1 on host1 ended its program 11 s ago, and {others}; a collective operation "
            "that waits for it never ends",
        )
    ]


def test_nothing_is_said_of_programs_that_need_no_other() -> None:
    """They have no runtime, or all have ended, or the end is an error, which the report has."""
    alone, ended, failed = (states((0, False), (0, False)) for _ in range(3))
    alone[0].apply(Phase("ending", code=0), 100.0)
    for run in (ended, failed):
        for state in run:
            state.apply(Phase("initialized"), 100.0)
    for state in ended:
        state.apply(Phase("ending", code=0), 100.0)
    failed[0].apply(Phase("ending", code=3), 100.0)
    for run in (alone, ended, failed):
        assert not list(Waits().messages(run, 1000.0))


def test_a_process_that_has_ended_has_no_stacks(tmp_path: Path) -> None:
    """It ends after it has written them, and before the report of the stall."""
    run, sent = states((1, True), (1, False)), list[Order]()
    stalls = Stalls(tmp_path, 10, ends=False, broadcast=sent.append, say=lambda text: None)
    stalls.take(0, 10.0, 100.0)
    stalls.check(run, 200.0)
    assert len(sent) == 1
    for state in run:
        state.apply(Stacks(f"in f{state.index}\n"), 200.1)
    run[1].apply(Exited(0, ""), 200.2)
    stalls.check(run, 210.0)
    text = (tmp_path / "stalled-1.txt").read_text()
    assert "in f0" in text
    assert "in f1" not in text
    assert "exit code 0:\nno Python stacks\n" in text


def test_those_that_wait_in_a_save_for_one_that_writes_do_not_stall(tmp_path: Path) -> None:
    run, sent = states((1, False), (1, False)), list[Order]()
    for state in run:
        state.apply(Pulse(1, False, saving=True), 100.0)
    stalls = Stalls(tmp_path, 10, ends=True, broadcast=sent.append, say=lambda text: None)
    stalls.take(0, 10.0, 100.0)
    for now in (200.0, 300.0, 400.0):
        stalls.check(run, now)
    assert not sent
    stalls.take(1, 10.0, 400.0)  # now no process writes
    stalls.check(run, 401.0)
    stalls.check(run, 410.0)
    assert len(sent) == 1
    assert stalls.failure is not None


def test_one_that_does_not_save_stalls(tmp_path: Path) -> None:
    """It waits for a process that writes a checkpoint, or for something else."""
    run, sent = states((1, True), (1, False)), list[Order]()
    run[1].apply(Pulse(1, False, saving=True), 100.0)
    stalls = Stalls(tmp_path, 10, ends=True, broadcast=sent.append, say=lambda text: None)
    stalls.take(0, 10.0, 100.0)
    stalls.check(run, 200.0)
    assert len(sent) == 1
