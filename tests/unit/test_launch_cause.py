"""Which process broke the run: a table of cases, and laws over random runs."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

import pyreactant as pr
from pyreactant.base.errors import PortTakenError
from pyreactant.process import events
from pyreactant.process.events import (
    End,
    Ended,
    Exited,
    Go,
    Join,
    Kind,
    Raised,
    read,
    write,
)
from pyreactant.runs.supervisor import RunOptions
from pyreactant.runs.supervisor.cause import EARLY, EXIT_CODES, Failure, Judge, find_failure
from pyreactant.runs.supervisor.head import Head
from pyreactant.runs.supervisor.state import PHASES, ProcessState
from pyreactant.runs.supervisor.watch import Clock

Event = dict[str, Any]
"""An event as on the line, with "at", the time of what it tells."""

KINDS_OF = {
    "PortTakenError": Kind.PORT_TAKEN,
    "RendezvousError": Kind.RENDEZVOUS,
    "DeadlineError": Kind.DEADLINE,
    "PeerLostError": Kind.PEER_LOST,
    "RequirementError": Kind.REQUIREMENT,
    "KeyboardInterrupt": Kind.INTERRUPT,
}


def error(
    at: float,
    exception: str,
    message: str = "",
    *causes: str,
    code: int | None = None,
    kind: Kind | None = None,
    relayed: bool = False,
) -> Event:
    return {
        "at": at,
        "type": "Raised",
        "exception": exception,
        "message": message,
        "traceback": "",
        "causes": list(causes),
        "code": code,
        "kind": kind or KINDS_OF.get(exception, Kind.OTHER),
        "peer_lost": exception == "PeerLostError",
        "own": exception in KINDS_OF and exception != "KeyboardInterrupt",
        "relayed": relayed,
    }


def exited(at: float, code: int, out_of_memory: bool = False) -> Event:
    return {
        "at": at,
        "type": "Exited",
        "code": code,
        "out_of_memory": out_of_memory,
        "log_tail": "",
    }


def phase(at: float, name: str, collectives: int = 0, code: int | None = None) -> Event:
    return {"at": at, "type": "Phase", "phase": name, "collectives": collectives, "code": code}


def pulse(at: float, collectives: int, waiting: bool) -> Event:
    return {"at": at, "type": "Pulse", "collectives": collectives, "waiting": waiting}


def lost(at: float) -> Event:
    return {"at": at, "type": "Lost", "why": "its connection closed"}


def stalled(at: float) -> Event:
    return {"at": at, "type": "Stalled", "state": "stopped by a signal"}


def process(index: int, *events: Event, arrival: float = 1000.0) -> ProcessState:
    """A process with these events, received in this order at the same time."""
    state = ProcessState(index, f"host{index}")
    state.enter("joined", 0.0)
    for event in events:
        apply(state, event, arrival - event["at"], arrival)
    return state


def apply(state: ProcessState, event: Event, age: float, now: float) -> None:
    """Apply an event that came over the line."""
    told = read(events.Event, json.loads(json.dumps({**event, "process": state.index, "age": age})))
    assert told is not None, event
    state.apply(told, now)


def verdict(*states: ProcessState, now: float = 1000.0) -> Failure:
    found = find_failure(states, now)
    assert found is not None
    return found


def test_an_error_that_another_process_had_is_no_cause() -> None:
    """The process that tells of it may end first, or another one may have been killed."""
    told = process(0, error(1, "FileError", "save 9 failed on process 1", code=2, relayed=True))
    for own, cause, code in (
        (error(2, "FileError", "disk full", code=2), "user", 2),
        (exited(2, -9), "lost", 6),
    ):
        found = verdict(told, process(1, own))
        assert (found.process, found.cause, found.exit_code) == (1, cause, code)
    found = verdict(told, process(1))
    assert (found.process, found.cause, found.exit_code, found.consequence) == (0, "user", 2, True)


def test_a_relayed_error_says_so() -> None:
    told, own = pr.FileError("save 9 failed on process 1"), pr.FileError("disk full")
    told.failed_process = 1
    outer = ValueError("no checkpoint")
    outer.__cause__ = told
    assert [Raised.of(one).relayed for one in (told, outer, own)] == [True, True, False]


@pytest.mark.parametrize(
    ("events", "cause", "code", "words"),
    [
        ([error(1, "ValueError", "no\nmore")], "user", 1, "raised ValueError: no"),
        ([error(1, "MismatchError", code=5)], "user", 5, "raised MismatchError"),
        ([error(1, "InvalidArgumentError", code=2)], "user", 2, "raised Inv"),
        ([error(1, "RequirementError", code=3)], "environment", 3, "raised RequirementError"),
        ([error(1, "RendezvousError", "no", code=4)], "rendezvous", 4, "raised RendezvousError"),
        ([error(1, "DeadlineError", code=7)], "timeout", 7, "raised DeadlineError"),
        ([error(1, "KeyboardInterrupt")], "interrupted", 130, "raised KeyboardInterrupt"),
        ([error(1, "MemoryError", "2 GB")], "out of memory", 6, "raised MemoryError: 2 GB"),
        (
            [error(1, "XlaRuntimeError", "RESOURCE_EXHAUSTED: 9 bytes")],
            "out of memory",
            6,
            "9 bytes",
        ),
        (
            [error(1, "ValueError", "the table of 429s says out of memory")],
            "user",
            1,
            "raised ValueError: the table",
        ),
        (
            [
                error(
                    1,
                    "FileError",
                    "run1/0 cannot be written",
                    "ValueError: RESOURCE_EXHAUSTED: Error writing x: [OS error 28: ENOSPC No "
                    "space left on device]",
                    code=2,
                )
            ],
            "user",
            2,
            "cannot be written",
        ),
        ([error(1, "OutOfMemoryError", "CUDA")], "out of memory", 6, "raised OutOfMemoryError"),
        (
            [error(1, "ValueError", "RESOURCE_EXHAUSTED: Failed to allocate 9 bytes")],
            "out of memory",
            6,
            "9 bytes",
        ),
        (
            [error(1, "PyReactantError", "x", "XlaRuntimeError: Out of memory", code=1)],
            "out of memory",
            6,
            "raised PyReactantError: x",
        ),
        (
            [error(1, "XlaRuntimeError", "INTERNAL: Gloo: Connection closed by peer")],
            "lost",
            6,
            "Gloo",
        ),
        (
            [error(1, "OurError", "x", "JaxRuntimeError: UNAVAILABLE: heartbeat")],
            "lost",
            6,
            "OurError",
        ),
        ([error(1, "FileNotFoundError", "Connection refused.txt")], "user", 1, "refused.txt"),
        ([exited(1, -9, True)], "out of memory", 6, "its machine or cgroup is out of memory"),
        ([exited(1, -9)], "lost", 6, "was killed by SIGKILL"),
        ([exited(1, -11)], "lost", 6, "was killed by SIGSEGV"),
        ([exited(1, -6)], "lost", 6, "was killed by SIGABRT"),
        ([exited(1, -15)], "lost", 6, "was killed by SIGTERM"),
        ([exited(1, -63)], "lost", 6, "was killed by signal 63"),
        ([exited(1, 3)], "user", 1, "ended with exit code 3"),
        ([exited(1, 2)], "user", 1, "ended with exit code 2"),
        ([exited(1, 130)], "user", 1, "ended with exit code 130"),
        ([phase(1, "ending", code=5)], "user", 1, "ends with exit code 5"),
        ([phase(1, "ending", code=3)], "user", 1, "ends with exit code 3"),
        ([lost(1)], "lost", 6, "was lost: its connection closed"),
        (
            [phase(1, "initialized"), stalled(2)],
            "timeout",
            7,
            "stopped answering while stopped by a signal (in phase initialized)",
        ),
    ],
)
def test_one_process(events: list[Event], cause: str, code: int, words: str) -> None:
    came = phase(0.5, "initializing")
    found = verdict(process(0, came, phase(0.6, "initialized")), process(1, came, *events))
    assert (found.cause, found.exit_code, found.process) == (cause, code, 1)
    assert "process 1 on host1" in found.summary
    assert words in found.summary
    assert EXIT_CODES[cause] == code or cause == "user"


@pytest.mark.parametrize("name", KINDS_OF)
def test_the_name_of_a_class_decides_nothing(name: str) -> None:
    """A user's class may have the name of one of ours, or of Python's."""
    found = verdict(process(0, error(1, name, "no", kind=Kind.OTHER)))
    assert (found.cause, found.exit_code, found.consequence) == ("user", 1, False)


def test_an_exception_without_text() -> None:
    found = verdict(process(0, phase(0.5, "initializing"), error(1, "ValueError", "")))
    assert found.summary == "process 0 on host0 raised ValueError"


CONSEQUENCES = (
    lambda at: error(at, "XlaRuntimeError", "UNAVAILABLE: Connection reset by peer"),
    lambda at: error(at, "ValueError", "INTERNAL: Gloo all-reduce failed: timeout"),
    lambda at: error(at, "RendezvousError", "process 0 found nothing", code=4),
    lambda at: error(at, "DeadlineError", "barrier", code=7),
    lambda at: exited(at, -6),
    lambda at: exited(at, -15),
)
PRIMARIES = (
    lambda at: error(at, "ValueError", "broken"),
    lambda at: error(at, "MismatchError", "wrong", code=5),
    lambda at: error(at, "MemoryError"),
    lambda at: exited(at, -9),
    lambda at: exited(at, 3),
    lambda at: phase(at, "ending", code=3),
    lambda at: stalled(at),
    lambda at: lost(at),
)
RUNNING = (lambda at: phase(at, "initialized"), lambda at: pulse(at, 3, True))


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[ProcessState], list[tuple[float, int]], list[int]]:
    """Draw processes with one event each at different times, and which one broke when and how."""
    count = draw(st.integers(1, 6))
    times = draw(st.lists(st.integers(1, 900), min_size=count, max_size=count, unique=True))
    states, primaries, consequences = [], [], []
    for index, at in enumerate(times):
        kinds = draw(st.sampled_from([RUNNING, PRIMARIES, CONSEQUENCES]))
        event = draw(st.sampled_from(kinds))(float(at))
        states.append(process(index, phase(0.5, "initializing"), event))
        if kinds is PRIMARIES:
            primaries.append((float(at), index))
        elif kinds is CONSEQUENCES:
            consequences.append(index)
    return states, primaries, consequences


@hypothesis.given(runs(), st.randoms())
def test_the_earliest_primary_failure_wins(run: Any, random: Any) -> None:
    states, primaries, consequences = run
    found = find_failure(states, 1000.0)
    if primaries:
        assert found is not None
        assert (found.at, found.process) == min(primaries)
        assert not found.consequence
    elif consequences:
        assert found is not None
        assert found.process in consequences
        assert found.consequence
    else:
        assert found is None
    random.shuffle(states)
    assert find_failure(states, 1000.0) == found


GLOO = "INTERNAL: Gloo all-reduce failed: Connection closed by peer"


RESET = "UNAVAILABLE: Connection reset by peer"


def test_only_the_words_of_others_count() -> None:
    """Errors of pyreactant have a kind, whatever they quote."""
    quoted = f"the report says {RESET}, and out of memory"
    for name, cause in (("RequirementError", "environment"), ("PortTakenError", "rendezvous")):
        assert verdict(process(0, error(10.0, name, quoted))).cause == cause
    ours = {**error(10.0, "MismatchError", quoted), "own": True}
    assert verdict(process(0, ours)).cause == "user"
    crashed = process(1, exited(10.4, -6))
    assert verdict(process(0, error(10.0, "RendezvousError", quoted)), crashed).process == 0
    assert verdict(process(0, error(10.0, "DeadlineError", "late", RESET)), crashed).process == 1


@pytest.mark.parametrize("number", [6, 15])
def test_a_crash_explains_the_broken_connections(number: int) -> None:
    """The crashed process closes its connections before its supervisor sees its end."""
    broken = [process(i, error(10.0 + i / 10, "XlaRuntimeError", GLOO)) for i in (0, 2)]
    crashed, late = process(1, exited(10.4, -number)), process(1, exited(10.6, -number))
    assert verdict(*broken, crashed).process == 1
    assert verdict(*broken, late).process == 0
    # Of two aborts the earlier one is the cause, and an abort is none if a process broke by itself.
    assert verdict(*broken, crashed, process(3, exited(10.3, -6))).process == 3
    assert verdict(*broken, crashed, process(3, error(11, "ValueError", "x"))).process == 3
    # The guard's store breaks with an error of its own.
    for broke in (
        error(10.0, "DeadlineError", "the store was lost", f"XlaRuntimeError: {RESET}"),
        error(10.0, "PeerLostError", "process 1 ended"),
    ):
        assert verdict(process(0, broke), crashed).process == 1
    late_barrier = error(10.0, "DeadlineError", "not every process came to barrier 'b' within 9 s")
    assert verdict(process(0, late_barrier), crashed).process == 0
    # An error of the crashed process itself is its own.
    raised = process(1, error(10.3, "XlaRuntimeError", GLOO), exited(10.4, -number))
    assert verdict(*broken, raised).process == 0


JAX_ABORTS = "F1 client.h:80] Terminating process because the JAX distributed service detected"
NO_KEY = "UNKNOWN: Gloo context initialization failed: DEADLINE_EXCEEDED: GetKeyValue() timed out"


@pytest.mark.parametrize("early", [0, 1])
@pytest.mark.parametrize(
    "broke",
    [
        [error(40.0, "JaxRuntimeError", NO_KEY), exited(40.3, 1)],
        [{**exited(40.0, -6), "log_tail": f"step 1\n{JAX_ABORTS} fatal errors. heartbeat"}],
        [error(40.0, "ValueError", "x", f"XlaRuntimeError: {GLOO}")],
    ],
)
@pytest.mark.parametrize("left", [phase(2.2, "ending", 0, 0), phase(2.2, "leaving")])
def test_a_program_that_ended_early_is_why_others_waited_in_vain(
    broke: list[Event], early: int, left: Event
) -> None:
    """JAX's own collectives are not counted, and it gives up after minutes."""
    came = phase(1.0, "initialized")
    ended = process(early, came, left, exited(40.2, -6))
    others = [process(i, came, *broke) for i in range(3) if i != early]
    found = verdict(ended, *others)
    assert (found.cause, found.process, found.exit_code) == ("user", early, 1)
    assert found.at == pytest.approx(2.2)
    still = ", ".join(f"process {i} on host{i}" for i in range(3) if i != early)
    start = f"process {early} on host{early} had ended its program while {still} still ran; 38 s "
    assert found.summary.startswith(start)


@pytest.mark.parametrize(
    ("words", "cause", "culprit"),
    [(f"{JAX_ABORTS} fatal errors. heartbeat", "user", 1), ("assertion failed", "lost", 0)],
)
def test_an_abort_of_jax_and_one_of_the_program_after_an_early_end(
    words: str, cause: str, culprit: int
) -> None:
    """JAX aborts one process, and another loses its connection to that."""
    came = phase(1.0, "initialized")
    found = verdict(
        process(0, came, {**exited(303.53, -6), "log_tail": words}),
        process(1, came, phase(2.9, "ending", 0, 0), exited(303.56, -6)),
        process(2, came, error(303.5, "ValueError", GLOO), exited(303.58, 1)),
    )
    assert (found.cause, found.process) == (cause, culprit)


@pytest.mark.parametrize(
    ("before", "broke", "cause"),
    [
        ([phase(2.2, "ending", 0, 0)], [exited(40, -6)], "lost"),  # its own abort says nothing
        ([phase(2.2, "ending", 0, 0)], [exited(40, -15)], "lost"),  # a signal from outside
        ([phase(2.2, "ending", 0, 0)], [error(40, "KeyError", "x"), exited(40, 1)], "user"),
        ([phase(39.9, "ending", 0, 0)], [error(40, "JaxRuntimeError", NO_KEY)], "lost"),
        ([], [error(40, "JaxRuntimeError", NO_KEY)], "lost"),
    ],
)
def test_the_end_of_another_program_explains_nothing_else(
    before: list[Event], broke: list[Event], cause: str
) -> None:
    came = phase(1.0, "initialized")
    found = verdict(process(0, came, *broke), process(1, came, *before))
    assert (found.cause, found.process) == (cause, 0)
    assert "had ended its program" not in found.summary


@pytest.mark.parametrize(
    "words",
    [
        "EOFError: read end of file",
        "IOError: read: connection reset by peer (ECONNRESET)",
        "IOError: write: broken pipe (EPIPE)",
        "IOError: connect: connection refused (ECONNREFUSED)",
    ],
)
def test_lost_connections_in_the_words_of_julia(words: str) -> None:
    """`sys.exit(0)` or a crash of one process must not blame the one that lost its connection."""
    lost_it = [phase(0.5, "initialized"), error(10.1, "JuliaError", words)]
    left = [phase(0.5, "initialized"), phase(10.0, "ending", 3, 0)]
    found = verdict(process(0, *lost_it), process(1, exited(10.2, -6)))
    assert (found.cause, found.process) == ("lost", 1)
    waits = process(0, pulse(9.0, 4, True), *lost_it)
    assert verdict(waits, process(1, *left), now=10.9).process == 1


def test_a_follower_that_gave_up_says_why() -> None:
    """What its supervisor then does to its program is no failure of its own."""
    why = "no heartbeat from process 0 for 2 s"
    gave_up = {"at": 10.0, "type": "GaveUp", "why": why}
    states = [process(i, phase(1, "initialized"), gave_up, exited(9.9, 1)) for i in (1, 2)]
    broken = process(0, error(9.8, "XlaRuntimeError", GLOO))
    found = verdict(broken, *states)
    assert (found.cause, found.process, found.exit_code) == ("lost", 0, 6)
    assert found.summary == f"the supervisor of process 1 on host1 ended its program: {why}"
    failed = process(1, error(9.0, "ValueError", "x"), gave_up)
    assert verdict(broken, failed, states[1]).summary.endswith("ValueError: x")


STEPS = (
    lambda at: phase(at, "initializing"),
    lambda at: phase(at, "initialized"),
    lambda at: pulse(at, round(at) // 100, True),
    lambda at: phase(at, "shutdown", 3),
    lambda at: phase(at, "ending", 3, 0),
    lambda at: exited(at, 0),
)


def test_two_failures_at_the_same_time() -> None:
    """The order in which they become known decides nothing."""
    for order in ((0, 1), (1, 0)):
        states = [process(i) for i in range(2)]
        judge = Judge(states)
        for index in order:
            apply(states[index], error(1.0, "ValueError", "broken"), 9.0, 10.0)
            judge.note(index)
        found = judge.find(10.0)
        assert found is not None
        assert found.process == 0


@hypothesis.given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.integers(1, 900),
            st.sampled_from([*STEPS, *STEPS, *PRIMARIES, *CONSEQUENCES]),
        ),
        max_size=14,
    )
)
def test_a_judge_that_is_kept_up_to_date_says_the_same(events: Any) -> None:
    states = [process(i) for i in range(4)]
    judge = Judge(states)
    for index, at, event in events:
        apply(states[index], event(float(at)), 1000.0 - at, 1000.0)
        judge.note(index)
        assert judge.find(1000.0) == find_failure(states, 1000.0)
        assert judge.unfinished == {s.index for s in states if not s.finished}


def test_a_thread_of_one_process_that_waits_in_vain_and_goes_on() -> None:
    """Then both programs have ended when JAX aborts one."""
    came = phase(1.0, "initialized")
    abort = {**exited(64.0, -6), "log_tail": f"{JAX_ABORTS} fatal errors. heartbeat"}
    aborted = process(1, came, phase(2.0, "leaving"), abort)
    found = verdict(process(0, came, phase(36.0, "leaving")), aborted, now=64.5)
    said = "process 1 on host1 had ended its program while process 0 on host0 still ran; 62 s later"
    assert found.summary.startswith(said)


STORY = [
    phase(1, "started"),
    phase(2, "initializing"),
    phase(3, "initialized"),
    pulse(4, 2, False),
    pulse(5, 3, True),
    phase(6, "shutdown", 3),
    phase(7, "ending", 3, 0),
    exited(8, 0),
]


@hypothesis.given(st.permutations(STORY), st.integers(0, len(STORY)))
def test_the_order_of_arrival_does_not_matter(events: Sequence[Event], known: int) -> None:
    """No event revokes an earlier one, so the final state does not depend on the order."""
    seen = process(0)
    before = 0
    for event in events[:known]:
        apply(seen, event, 1000.0 - event["at"], 1000.0)
        assert PHASES.index(seen.phase) >= before
        before = PHASES.index(seen.phase)
    whole, replayed = process(0, *events), process(0, *STORY)
    for state in (whole, replayed):
        assert (state.phase, state.code, state.collectives) == ("exited", 0, 3)
    assert whole.times == replayed.times
    waits = process(1, phase(3, "initialized"), pulse(9, 4, True))
    assert verdict(whole, waits) == verdict(replayed, waits)


def test_late_events_are_harmless() -> None:
    state = process(0, *STORY)
    for event in (phase(2, "initializing"), lost(9), pulse(3, 1, True), phase(2.5, "nonsense")):
        apply(state, event, 0.0, 1000.0)
    assert (state.phase, state.code, state.lost, state.collectives) == ("exited", 0, None, 3)
    assert find_failure([state], 2000.0) is None
    assert state.ending() == "exit code 0"


def leaves(at: float, collectives: int = 3) -> list[Event]:
    """A process with a runtime that ends with exit code 0."""
    return [phase(0.5, "initialized"), phase(at, "ending", collectives, 0), exited(at + 0.1, 0)]


def test_ending_while_another_waits_in_a_later_collective() -> None:
    waits = [phase(0.5, "initialized"), pulse(20.0, 4, True)]
    states = [process(0, *leaves(10.0)), process(1, *waits)]
    assert find_failure(states, 20.0 + EARLY - 0.01) is None
    found = verdict(*states, now=20.0 + EARLY + 0.01)
    assert (found.cause, found.process, found.exit_code) == ("user", 0, 1)
    assert found.summary == (
        "process 0 on host0 ended with exit code 0 after 3 collective operations, while process 1 "
        "on host1 waits in number 4"
    )
    assert verdict(*reversed(states), now=30.0).summary == found.summary


@pytest.mark.parametrize(
    "events",
    [
        [phase(0.5, "initialized"), pulse(20.0, 4, False)],
        [phase(0.5, "initialized"), pulse(20.0, 3, True)],
        [phase(0.5, "initialized"), pulse(20.0, 4, True), pulse(21.0, 4, False)],
        [phase(0.5, "initialized"), pulse(20.0, 4, True), phase(21.0, "ending", 4, 0)],
        leaves(900.0, 4),
        [phase(0.5, "started")],
    ],
)
def test_ending_earlier_than_another_is_no_failure(events: list[Event]) -> None:
    assert find_failure([process(0, *leaves(10.0)), process(1, *events)], 1000.0) is None


def test_ending_before_initialize() -> None:
    ended = [phase(1.0, "started"), phase(10.0, "ending", 0, 0), exited(10.1, 0)]
    states = [process(0, phase(9.0, "initializing")), process(1, *ended)]
    found = verdict(*states, now=10.2)
    assert (found.cause, found.process) == ("user", 1)
    assert "ended with exit code 0 before initialize, while process 0 on host0 w" in found.summary
    computes = process(0, phase(9.0, "started"))
    assert find_failure([computes, process(1, *ended)], 1000.0) is None


def test_leaving_without_shutdown() -> None:
    """After os._exit(0): immediately if another process failed because of it, otherwise later."""
    left = process(0, phase(0.5, "initialized"), exited(10.0, 0))
    runs = process(1, phase(0.5, "initialized"))
    assert find_failure([left, runs], 10.0 + EARLY - 0.01) is None
    assert "without shutdown, while process 1" in verdict(left, runs, now=11.0).summary
    failed = process(1, error(10.1, "XlaRuntimeError", "UNAVAILABLE: Socket closed"))
    assert verdict(left, failed, now=10.2).process == 0
    assert find_failure([left, process(1, *leaves(900.0))], 1000.0) is None


def test_a_taken_port_is_the_failure_of_process_0() -> None:
    taken = process(0, phase(1, "initializing"), error(2, "PortTakenError", "port 7", code=4))
    others = process(1, phase(1, "initializing"), error(1.5, "RendezvousError", "no", code=4))
    found = verdict(taken, others, process(2, phase(1, "started")))
    assert (found.cause, found.exit_code, found.process) == ("rendezvous", 4, 0)


async def run_with_ports(
    ports: Sequence[int], free: int, folder: Path, max_restarts: int = 0
) -> tuple[Any, list[Go]]:
    """A head whose process 0 can listen on one port only, and the orders to start."""
    left, orders, taken = list(ports), list[Go](), PortTakenError("no")

    def broadcast(order: Any) -> None:
        if isinstance(order, End):
            head.apply(Ended(process=0))
        if isinstance(order, Go):
            orders.append(order)
            ends = order.coordinator == f"h:{free}"
            head.apply(Exited(0, "", process=0) if ends else Raised.of(taken, 0))

    head = Head(
        RunOptions(["-m", "this"], quiet=True, max_restarts=max_restarts),
        [ProcessState(0)],
        broadcast,
        coordinator=lambda: f"h:{left.pop(0)}",
        run="run",
        folder=folder,
        restart=0,
    )
    head.admit(Join(0, 1, "h", 1, {}))
    return await head.run(), orders


def test_the_runtime_gets_another_port(tmp_path: Path) -> None:
    """Nobody chose the port, so it is no restart, and needs no --max-restarts."""
    report, orders = asyncio.run(run_with_ports([1, 2, 3], 3, tmp_path))
    assert (report.cause, report.restarts) == ("done", [])
    assert [o.coordinator for o in orders] == ["h:1", "h:2", "h:3"]
    assert {o.restarts for o in orders} == {0}
    report, orders = asyncio.run(run_with_ports(range(9), 8, tmp_path))
    assert (report.cause, len(orders)) == ("rendezvous", 4)
    assert report.summary == (
        "other programs took each of the 4 ports that the supervisor chose on process 0's machine "
        "for the runtime, the last of them h:3; start the run again"
    )
    # Then it is a failure, after which --max-restarts counts.
    report, orders = asyncio.run(run_with_ports(range(9), 5, tmp_path, max_restarts=2))
    assert (report.cause, len(report.restarts)) == ("done", 2)
    assert [o.restarts for o in orders] == [0, 0, 0, 0, 1, 2]
    assert report.restarts[0]["cause"] == "rendezvous"
    report, orders = asyncio.run(run_with_ports(range(9), 8, tmp_path, max_restarts=1))
    assert (report.cause, len(report.restarts), len(orders)) == ("rendezvous", 1, 5)


def test_a_rendezvous_names_the_absent() -> None:
    waited = [phase(1, "initializing"), error(5, "RendezvousError", "found nothing", code=4)]
    absent = process(1, phase(1, "started"))
    found = verdict(process(0, *waited), absent, process(2, *waited))
    assert (found.cause, found.exit_code, found.process) == ("rendezvous", 4, 1)
    assert found.summary == (
        "process 1 on host1 never reached initialize (process 1 on host1 is in phase 'started'); "
        "process 0 on host0 raised RendezvousError: found nothing"
    )
    assert verdict(process(0, *waited), process(1, *waited)).process == 0


NOTHING = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9)
ANYTHING = st.recursive(
    NOTHING | st.sampled_from([*PHASES, 10**400]), lambda inner: st.lists(inner, max_size=3)
)
FIELDS = (
    "age",
    "pid",
    "phase",
    "code",
    "collectives",
    "waiting",
    "exception",
    "message",
    "causes",
    "traceback",
    "state",
    "log_tail",
    "why",
    "step",
    "stacks",
    "path",
    "error",
    "number",
    "out_of_memory",
    "killed",
    "kind",
    "peer_lost",
    "own",
    "seconds",
    "records",
)
KINDS = (
    "Spawned",
    "Phase",
    "Pulse",
    "Raised",
    "Stalled",
    "Exited",
    "Lost",
    "Step",
    "Cooperates",
    "Stopped",
    "Stacks",
    "LogFailed",
    "GaveUp",
    "Killed",
    "GotSignal",
    "Idle",
    "Metrics",
    "Ended",
    "nonsense",
)
STRANGE = st.fixed_dictionaries(
    {"type": st.sampled_from(KINDS)},
    optional={"process": st.sampled_from([0, 1]) | ANYTHING, **dict.fromkeys(FIELDS, ANYTHING)},
)


@hypothesis.settings(max_examples=50)
@hypothesis.given(st.lists(STRANGE, max_size=5))
@hypothesis.example([{"type": "Exited", "process": 0, "code": 1}])  # its other fields are absent
def test_malformed_events_break_nothing(messages: list[Event]) -> None:
    orders: list[Any] = []
    head = Head(
        RunOptions(["-m", "this"]),
        [ProcessState(0), ProcessState(1)],
        orders.append,
        coordinator=lambda: None,
        run="run",
        folder=Path("/"),
        restart=0,
    )
    for each in messages:
        if (told := read(events.Event, each)) is not None:
            head.apply(told)
        report = head._report(find_failure(head.states, 1000.0))
        json.loads(json.dumps(report.to_dict()))
        assert report.to_text().startswith(report.cause)
        for order in head._stop.orders(head.states):
            json.dumps(write(order))
        assert head._stop.requested_at is None or head._stop.summary
    if messages:
        assert "</html>" in report.to_html()


@pytest.mark.parametrize(
    ("wall", "at", "consequence", "words"),
    [
        (
            1000 + 10 + 3600,
            18.0,
            True,
            "; 8 s before, the clock of process 0's machine was set forw",
        ),
        (1000 + 10 - 3600, 10.0, True, "set back by 3600 s, and JAX's heartbeats go by it"),
        (1000 + 10 + 4, 18.0, True, ""),
        (1000 + 10 + 3600, 18.0, False, ""),
        (1000 + 10 + 3600, 71.0, True, ""),
        (1000 + 10 + 3600, 9.0, True, ""),
    ],
)
def test_a_clock_that_is_set(wall: float, at: float, consequence: bool, words: str) -> None:
    clock = Clock(1000.0, 0.0)
    clock.look(1000 + 9, 9.0)
    clock.look(wall, 10.0)
    clock.look(wall + 1, 11.0)
    broken = Failure("lost", "it aborted", 1, at, 6, consequence)
    explained = clock.explain(broken)
    assert explained.summary.startswith("it aborted")
    assert words in explained.summary
    assert bool(words) == (explained != broken)
