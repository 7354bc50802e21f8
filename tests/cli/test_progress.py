"""What is being done is told on standard error, with the time, and nothing of it stays."""

import re
import subprocess
import sys

import pytest

from tests.cli import terminal
from tests.harness import environment

SLOW = """
import threading, time
from pyreactant.cli import console
from pyreactant.base import steps
console.SOON = console.EVERY = 0.1
with console.working("compiling [x]") as tell:
    time.sleep(0.7)
    tell("checking")
    time.sleep(0.7)
assert threading.active_count() == 1
print("the result")
"""


def test_on_a_terminal() -> None:
    code, text = terminal.run([], code=SLOW)
    assert code == 0, text
    assert re.search(r"compiling \[x\] \S*0:00:0\d", text)
    assert "checking" in text
    assert text.endswith("the result\n")
    last = text.rpartition("checking")[2]
    assert "\x1b[2K" in last, "the line goes at the end"


def piped(code: str) -> list[str]:
    """The lines that code writes to standard error, which is a pipe; its result is as always."""
    argv = [sys.executable, "-c", code]
    ran = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout) == (0, "the result\n"), ran.stderr
    return ran.stderr.splitlines()


def test_in_a_pipe() -> None:
    lines = piped(SLOW)
    assert len(lines) >= 4
    texts = [re.sub(r"[0-9]+s", "0s", line) for line in lines]
    assert set(texts) == {"pyreactant: compiling [x] (0s)", "pyreactant: checking (0s)"}
    assert texts == sorted(texts, reverse=True), "in their order"


def test_short_work_is_not_told() -> None:
    code = SLOW.replace("SOON = console.EVERY = 0.1", "SOON = console.EVERY = 600")
    assert piped(code) == []
    _, text = terminal.run([], code=code)
    assert text == "the result\n"


def test_with_quiet_nothing_is_told() -> None:
    code = SLOW.replace("with console", "steps.level = steps.Level.QUIET\nwith console")
    assert piped(code) == []
    _, text = terminal.run([], code=code)
    assert text == "the result\n"


@pytest.mark.parametrize("on_terminal", [True, False])
def test_with_verbose_each_step_is_a_line(on_terminal: bool) -> None:
    code = SLOW.replace("EVERY = 0.1", "EVERY = 600")
    code = code.replace("with console", "steps.level = steps.Level.VERBOSE\nwith console")
    code = code.replace(
        'tell("checking")', 'steps.step("checking", 2, 3); tell("checking, 2 of 3")'
    )
    lines = terminal.run([], code=code)[1].splitlines()[:-1] if on_terminal else piped(code)
    assert [re.sub("[0-9]+s", "0s", line) for line in lines] == [
        "pyreactant: compiling [x] (0s)",
        "pyreactant: checking, 2 of 3 (0s)",
    ]


def test_the_library_tells_its_steps_to_the_outermost() -> None:
    inner = (
        'with console.working("inner") as inner: inner("of the inner"); steps.step("step", 1, 2)'
    )
    code = SLOW.replace('    tell("checking")', f"    {inner}")
    assert {re.sub(" [(].*", "", line) for line in piped(code)} == {
        "pyreactant: compiling [x]",
        "pyreactant: step, 1 of 2",
    }
    assert (
        piped("from pyreactant.base.steps import step; step('x', 1, 2); print('the result')") == []
    )


@pytest.mark.parametrize("end", ["os.close(2)", "os.dup2(os.open('/dev/full', os.O_WRONLY), 2)"])
@pytest.mark.parametrize("level", ["USUAL", "VERBOSE"])
def test_a_terminal_that_is_gone_ends_nothing(end: str, level: str) -> None:
    code = SLOW.replace("with console", f"steps.level = steps.Level.{level}\nwith console")
    code = code.replace("    time.sleep(0.7)\n    tell", f"    import os; {end}\n    tell")
    done, text = terminal.run([], code=code)
    assert (done, text.endswith("the result\n")) == (0, True), text


def test_messages_stay_above_the_line() -> None:
    """As of `run --on tpu`, whose program prints, too."""
    code = SLOW.replace('console.working("compiling [x]")', 'tpu_options.telling("creating")')
    code = code.replace("import console\n", "import console, tpu_options\n")
    code = code.replace('tell("checking")', 'tell("checking"); print("of the program")')
    ended, text = terminal.run([], code=code)
    assert ended == 0, text
    assert "pyreactant: checking\n" in text
    assert "of the program\n" in text
    assert re.search(r"checking +\S*0:00:0\d", text)
    assert text.endswith("the result\n")
    piped = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=60
    )
    assert (piped.stdout, piped.stderr) == (
        "of the program\nthe result\n",
        "pyreactant: checking\n",
    )


def test_the_line_goes_after_an_error() -> None:
    code = SLOW.replace('tell("checking")', "raise KeyboardInterrupt")
    ended, text = terminal.run([], code=code)
    assert ended != 0
    assert "KeyboardInterrupt" in text.rpartition("compiling")[2]
