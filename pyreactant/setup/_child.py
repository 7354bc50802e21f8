"""Commands that take minutes: their output goes to a log, and they end when we do."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_GUARD = Path(__file__).with_name("_guard.py")


def run(
    argv: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    line: Callable[[str], None] = lambda text: None,
) -> int:
    """Run a command, with its output added to a log; its exit code, as shells count it.

    Args:
        argv: The command.
        environment: All of its environment.
        log: Where its output goes.
        line: Called with each line that it prints.
    """
    guarded = [sys.executable, "-I", "-S", str(_GUARD), *argv]
    with log.open("ab") as file:
        child = subprocess.Popen(  # noqa: S603 - no shell, and the guard is ours
            guarded,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        try:
            assert child.stdout is not None
            for raw in child.stdout:
                file.write(raw)
                file.flush()
                text = raw.decode(errors="replace").rstrip().rpartition("\r")[2]
                if text:
                    line(text)
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        finally:
            _end(child)
    return child.returncode


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill it and all that it left behind; its number is its own until it is waited for."""
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    for pipe in (child.stdin, child.stdout):
        assert pipe is not None
        pipe.close()
