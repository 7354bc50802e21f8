"""Child processes end with their descendants, and their answers are read completely."""

import os
import time
from pathlib import Path

import pytest

from pyreactant.base.child import last_answer, started
from tests.harness import environment

# It prints its process id and that of a process that it starts.
STARTS_ANOTHER = "sleep 600 & echo $$ $!; wait"


@pytest.mark.parametrize(
    ("output", "answer"),
    [
        (b'{"a": 1}\n', {"a": 1}),
        (b'printed before\n{"a": 1}\n', {"a": 1}),
        (b'{"a": 1}', None),  # truncated: an answer ends with a line break
        (b'{"a": 1}\n{"b"', None),
        (b"[1]\n", None),
        (b"no JSON\n", None),
        (b"\xff\n", None),
        (b"", None),
    ],
)
def test_last_answer(output: bytes, answer: dict[str, int] | None) -> None:
    assert last_answer(output) == answer


def test_nothing_outlives_the_block() -> None:
    with started(["sh", "-c", STARTS_ANOTHER], environment()) as child:
        assert child.stdout is not None
        pids = child.stdout.readline().split()
    assert len(pids) == 2
    assert child.returncode == -9
    deadline = time.monotonic() + 60
    while any(_is_running(int(pid)) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_it_ends_after_an_exception_too() -> None:
    with (
        pytest.raises(ZeroDivisionError),
        started(["sh", "-c", STARTS_ANOTHER], environment()) as child,
    ):
        raise ZeroDivisionError
    assert child.returncode == -9


def test_grace(tmp_path: Path) -> None:
    """A grace period lets a supervisor end its own programs."""
    script = f"trap 'echo ended > {tmp_path}/file; exit 3' TERM; echo ready; sleep 600 & wait"
    with started(["sh", "-c", script], environment(), grace=60) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
    assert child.returncode == 3
    assert (tmp_path / "file").read_text() == "ended\n"


def test_its_input_closes_with_the_block() -> None:
    """A child that reads its input sees the end of file when this process ends."""
    with started(["cat"], environment()) as child:
        assert child.stdin is not None
        child.stdin.write(b"hello\n")
        child.stdin.flush()
        assert child.stdout is not None
        assert child.stdout.readline() == b"hello\n"
        child.stdin.close()
        assert child.wait(60) == 0


def test_a_command_that_does_not_exist() -> None:
    with pytest.raises(FileNotFoundError), started(["/nowhere/at/all"], environment()):
        pytest.fail("it cannot be started")


def test_its_own_session() -> None:
    """Ctrl-C on the terminal does not reach the child."""
    with started(["cat"], environment()) as child:
        assert os.getsid(child.pid) == child.pid


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
