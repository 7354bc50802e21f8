"""A child process that answers one JSON request and never outlives this process."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, ClassVar, NamedTuple

from .._errors import DeadlineError, PyReactantError

_LINES_OF_LOG = 15
_NOISE = re.compile(r"coredump_hook|process_state|Coroner|symbolize|Source Location|^\s+platforms/")


class ChildLostError(PyReactantError, RuntimeError):
    """The child process ended without an answer."""

    exit_code: ClassVar[int] = 6


class Activity(NamedTuple):
    """What a child process does, in words, for messages.

    Attributes:
        present: Participle, as in "compiling for v6e-4 took too long".
        verb: Verb, as in "the process that compiles was killed".
        library: The library that may abort the process.
    """

    present: str
    verb: str
    library: str


def ask_child(
    module: str,
    environment: Mapping[str, str],
    request: Mapping[str, Any],
    *,
    timeout: float,
    activity: Activity,
    cached_answer: Callable[[Any], dict[str, Any] | None] = lambda shown: None,
) -> dict[str, Any]:
    """The answer of a child process that runs a module; see `child_main`.

    Args:
        module: Name of the module, which calls `child_main.serve`.
        environment: The child's whole environment.
        request: The request, as plain data for JSON.
        timeout: Seconds to wait for the answer.
        activity: What the child does, for messages.
        cached_answer: Returns the answer, if it is known, for what the child shows of the lowered
            program, so that the child need not compile it.

    Raises:
        ChildLostError: The child was killed, or ended without an answer.
        DeadlineError: The child did not answer in time.
    """
    from .memory import out_of_memory_kills  # costs an import

    kills = out_of_memory_kills()
    with tempfile.TemporaryFile() as log, _child(module, environment, log) as child:
        late = threading.Event()

        def end() -> None:
            late.set()
            _kill(child)

        timer = threading.Timer(timeout, end)
        timer.daemon = True
        timer.start()
        try:
            answer = _exchange(child, request, cached_answer)
        finally:
            timer.cancel()
        if answer is not None:
            return answer
        child.wait()
        if late.is_set():
            raise DeadlineError(
                f"{activity.present} took longer than {timeout:g} s and was ended; "
                "allow more time with timeout= (--timeout)"
            )
        raise _lost(child.returncode, out_of_memory_kills() > kills, log, activity)


@contextlib.contextmanager
def _child(
    module: str, environment: Mapping[str, str], log: IO[bytes]
) -> Iterator[subprocess.Popen[str]]:
    """A child process that is killed at the end of the block.

    It has a session of its own, so that Ctrl-C does not reach it directly. It ends when its
    standard input closes, so that it never outlives this process.
    """
    child = subprocess.Popen(  # noqa: S603 - this Python, and a module of this package
        [sys.executable, "-P", "-m", module],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        encoding="utf-8",
        start_new_session=True,
    )
    try:
        yield child
    finally:
        _kill(child)
        child.wait()
        for pipe in (child.stdin, child.stdout):
            with contextlib.suppress(OSError):  # it may have ended without reading its input
                assert pipe is not None
                pipe.close()


def _kill(child: subprocess.Popen[str]) -> None:
    """Kill the child and its process group: Julia compiles packages in further processes."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def _exchange(
    child: subprocess.Popen[str],
    request: Mapping[str, Any],
    cached_answer: Callable[[Any], dict[str, Any] | None],
) -> dict[str, Any] | None:
    """The child's answer, or None if it ended without one."""
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        _send(child.stdin, request)
        line = child.stdout.readline()
        if line and "lowered" in (first := json.loads(line)):
            found = cached_answer(first["lowered"])
            if found is not None:
                return found
            _send(child.stdin, {"stop": False})
            line = child.stdout.readline()
    except (BrokenPipeError, json.JSONDecodeError):
        return None
    return dict(json.loads(line)) if line.endswith("\n") else None


def _send(stream: IO[str], message: Mapping[str, Any]) -> None:
    stream.write(json.dumps(message) + "\n")
    stream.flush()


def _lost(code: int, out_of_memory: bool, log: IO[bytes], activity: Activity) -> ChildLostError:
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    advice = ""
    if code == -signal.SIGABRT:
        advice = f"; {activity.library} aborts on programs that break its assumptions"
    elif code == -signal.SIGKILL and out_of_memory:
        advice = (
            "; this machine ran out of memory: compile fewer programs at once, or use a larger "
            "machine"
        )
    elif code == -signal.SIGKILL:
        advice = "; something on this machine killed it"
    log.seek(0)
    text = log.read().decode(errors="replace")
    if fatal := re.search(r"^F\d{4} [^\]]*\] (.*)", text, re.MULTILINE):
        advice += f": {fatal[1]}"  # the fatal message of Google's logging
    lines = [line for line in text.splitlines() if not _NOISE.search(line)][-_LINES_OF_LOG:]
    output = "\n".join(["", "its last output:", *(f"  {line}" for line in lines)]) if lines else ""
    return ChildLostError(f"the process that {activity.verb} {how}{advice}{output}")
