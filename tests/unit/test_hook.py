"""A process that raises ends immediately, without exit hooks that wait for other processes."""

import subprocess
import sys

import pytest

from tests.harness import environment

PROGRAM = """
import atexit, sys
from pyreactant import MismatchError
from pyreactant.base.process import end_at_once_on_error
atexit.register(print, "exit hooks ran")
end_at_once_on_error()
sys.stdout.write("buffered;")
sys.stderr = {stderr}
{code}
"""


@pytest.mark.parametrize(
    ("code", "status", "last"),
    [
        ("raise ValueError('wrong')", 1, "ValueError: wrong"),
        ("raise MismatchError('differs')", 5, "pyreactant.base.errors.MismatchError: differs"),
        ("raise KeyboardInterrupt", 130, "KeyboardInterrupt"),
        ("raise type('Odd', (BaseException,), {})('base')", 1, "Odd: base"),
        ("e = ValueError(); e.exit_code = 'many'; raise e", 1, "ValueError"),
    ],
)
def test_an_uncaught_exception_ends_at_once(code: str, status: int, last: str) -> None:
    ran = _run(code)
    assert (ran.returncode, ran.stdout) == (status, "buffered;")
    assert ran.stderr.splitlines()[0] == "Traceback (most recent call last):"
    assert ran.stderr.splitlines()[-1] == last


@pytest.mark.parametrize("stderr", ["None", "open('/dev/null')"])
def test_output_is_kept_where_stderr_is_unusable(stderr: str) -> None:
    ran = _run("sys.stderr.close() if sys.stderr else None; raise ValueError", stderr)
    assert (ran.returncode, ran.stdout) == (1, "buffered;")


@pytest.mark.parametrize(("code", "status"), [("", 0), ("raise SystemExit(3)", 3)])
def test_other_ends_are_left_alone(code: str, status: int) -> None:
    ran = _run(code)
    assert (ran.returncode, ran.stdout) == (status, "buffered;exit hooks ran\n")


def _run(code: str, stderr: str = "sys.stderr") -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", PROGRAM.format(code=code, stderr=stderr)]
    return subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=60)
