"""What the head says while a process waits for others."""

from pyreactant.process.events import Pulse
from pyreactant.runs.supervisor.state import ProcessState
from pyreactant.runs.supervisor.watch import FIRST, Waits


def states(*counts: tuple[int, bool]) -> list[ProcessState]:
    """Processes with so many collective operations, which wait in the last one since 100 s."""
    found = [ProcessState(index, f"host{index}") for index in range(len(counts))]
    for state, (count, waiting) in zip(found, counts, strict=True):
        state.apply(Pulse(count, waiting), 100.0)
    return found


def test_a_long_wait_is_said_while_it_lasts() -> None:
    waits, run = Waits(), states((9, True), (8, False), (9, True))
    said = [(now, text) for now in range(100, 400) if (text := waits.message(run, float(now)))]
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
        assert Waits().message(run, 1000.0) is None
    assert Waits().message(states((9, True), (8, False)), 100.0 + FIRST - 1) is None


def test_several_have_not_begun() -> None:
    text = Waits().message(states((9, True), *[(3, False)] * 6), 170.0)
    assert text is not None
    assert text.endswith("process 4 on host4 and 2 more have not begun")
