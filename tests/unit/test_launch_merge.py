"""Equal lines of several processes are shown once, and each process keeps its order."""

import math
from collections.abc import Callable

import hypothesis
import hypothesis.strategies as st
import pytest

from pyreactant.runs.supervisor.output import WINDOW, Merged, Part, Terminal, ranges


class Screen(Terminal):
    """A terminal that records what it would write, and a stand-in for a clock that calls later."""

    def __init__(self) -> None:
        super().__init__(None)
        self.finish()
        self.got = ""
        self.due: list[Callable[[], None]] = []

    def _send(self, data: bytes) -> None:
        self.got += data.decode()

    def later(self, seconds: float, call: Callable[[], None]) -> object:
        assert seconds == WINDOW
        self.due.append(call)
        return call


def merged(count: int) -> tuple[Screen, Merged]:
    screen = Screen()
    return screen, Merged(screen, count, screen.later)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([0], "0"), ([0, 1], "0-1"), ([3, 1, 2, 7], "1-3,7"), ([0, 2, 4], "0,2,4"), ([], "")],
)
def test_ranges(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text


def test_a_line_of_all_processes_is_shown_at_once() -> None:
    screen, lines = merged(3)
    for process in (2, 0):
        lines.add(process, "step 1\n", 0.0)
    assert screen.got == ""
    lines.add(1, "step 1\n", 0.1)
    assert screen.got == "[0-2] step 1\n"


def test_a_line_of_some_waits_a_moment() -> None:
    screen, lines = merged(3)
    lines.add(0, "a\n", 0.0)
    lines.add(2, "a\n", 0.1)
    lines.add(1, "b\n", 0.1)
    assert len(screen.due) == 1
    lines.show(WINDOW)
    assert screen.got == "[0,2] a\n"
    lines.add(0, "b\n", WINDOW)
    lines.add(2, "b\n", WINDOW)
    assert screen.got == "[0,2] a\n[0-2] b\n"


def test_each_process_keeps_its_order() -> None:
    screen, lines = merged(2)
    for process, text in ((0, "a"), (0, "b"), (1, "b"), (1, "a")):
        lines.add(process, f"{text}\n", 0.0)
    lines.show(math.inf)
    assert screen.got == "[0] a\n[0-1] b\n[1] a\n"


def test_programs_that_end_and_lines_without_an_end() -> None:
    screen, lines = merged(2)
    one, two = (Part(screen, lines, i) for i in range(2))
    for part in (one, two):
        part.write(b"10%\r20%\r\nsame\nno e")
        part.write("nd €".encode()[:-1])
    one.end()
    assert screen.got == "[0-1] 10%\r[0-1] 20%\r\n[0-1] same\n"
    two.end()
    assert screen.got.endswith("[0-1] no end \ufffd\n")


def test_a_process_that_repeats_itself() -> None:
    screen, lines = merged(2)
    for _ in range(20_000):  # 20 ms if each costs the same; minutes if each looks at all before
        lines.add(0, "\n", 0.0)
    assert screen.got.count("[0] \n") == 20_000 - 4096
    lines.add(1, "\n", 0.0)
    lines.show(math.inf)
    assert screen.got.count("[0-1] \n") == 1
    assert screen.got.count("\n") == 20_000


@hypothesis.given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from("abc")), max_size=30))
def test_nothing_is_lost_whatever_is_printed(printed: list[tuple[int, str]]) -> None:
    screen, lines = merged(3)
    for at, (process, text) in enumerate(printed):
        lines.add(process, f"{text}\n", at * WINDOW / 4)
    lines.show(math.inf)
    seen: dict[int, list[str]] = {0: [], 1: [], 2: []}
    for row in screen.got.splitlines():
        who, _, text = row[1:].partition("] ")
        for part in who.split(","):
            first, _, last = part.partition("-")
            for process in range(int(first), int(last or first) + 1):
                seen[process].append(text)
    for process, texts in seen.items():
        assert texts == [text for p, text in printed if p == process]
