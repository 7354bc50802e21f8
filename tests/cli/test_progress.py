"""What is being done is told on standard error, with the time, and nothing of it stays."""

import re
import subprocess
import sys

from tests.cli import terminal
from tests.harness import environment

SLOW = """
import threading, time
from pyreactant.cli import console
console.SOON = 0.1
with console.working("compiling [x]") as tell:
    time.sleep(0.5)
    tell("checking")
    time.sleep(0.5)
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


def test_in_a_pipe() -> None:
    argv = [sys.executable, "-c", SLOW]
    ran = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout) == (0, "the result\n"), ran.stderr
    assert ran.stderr == "pyreactant: compiling [x] ...\n"


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


def test_short_work_is_not_told() -> None:
    code = SLOW.replace("SOON = 0.1", "SOON = 600")
    argv = [sys.executable, "-c", code]
    ran = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_the_line_goes_after_an_error() -> None:
    code = SLOW.replace('tell("checking")', "raise KeyboardInterrupt")
    ended, text = terminal.run([], code=code)
    assert ended != 0
    assert "KeyboardInterrupt" in text.rpartition("compiling")[2]
