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
    """The process that compiles ended without an answer."""

    exit_code: ClassVar[int] = 6


class Doing(NamedTuple):
    """What a child does, in words, for messages.

    Attributes:
        present: As in "compiling for v6e-4 took too long".
        verb: As in "the process that compiles was killed".
        library: What may end it.
    """

    present: str
    verb: str
    library: str


def ask_child(
    module: str,
    environment: Mapping[str, str],
    request: Mapping[str, Any],
    timeout: float,
    doing: Doing,
    known: Callable[[Any], dict[str, Any] | None] = lambda shown: None,
) -> dict[str, Any]:
    """The answer of a child process that runs a module ; see `child_main`.

    Raises:
        ChildLostError: It was killed, or ended itself.
        DeadlineError: It did not answer in time.
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
            answer = _converse(child, request, known)
        finally:
            timer.cancel()
        if answer is not None:
            return answer
        child.wait()
        if late.is_set():
            raise DeadlineError(
                f"{doing.present} took longer than {timeout:g} s and was ended; "
                "allow it more with timeout= (--timeout)"
            )
        raise _lost(child.returncode, out_of_memory_kills() > kills, log, doing)


@contextlib.contextmanager
def _child(
    module: str, environment: Mapping[str, str], log: IO[bytes]
) -> Iterator[subprocess.Popen[str]]:
    """The child, which is dead afterwards, whatever happened.

    It has a session of its own, so that Ctrl-C reaches it only through us; and it ends when its
    standard input closes, so that it does not outlive us however we end.
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
            with contextlib.suppress(OSError):  # what it never read goes nowhere
                assert pipe is not None
                pipe.close()


def _kill(child: subprocess.Popen[str]) -> None:
    """With all that it started: Julia compiles packages in processes of their own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def _converse(
    child: subprocess.Popen[str],
    request: Mapping[str, Any],
    known: Callable[[Any], dict[str, Any] | None],
) -> dict[str, Any] | None:
    """The child's answer, None where it ended without one."""
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        _say(child.stdin, request)
        line = child.stdout.readline()
        if line and "lowered" in (first := json.loads(line)):
            found = known(first["lowered"])
            if found is not None:
                return found
            _say(child.stdin, {"stop": False})
            line = child.stdout.readline()
    except (BrokenPipeError, json.JSONDecodeError):
        return None
    return dict(json.loads(line)) if line.endswith("\n") else None


def _say(stream: IO[str], message: Mapping[str, Any]) -> None:
    stream.write(json.dumps(message) + "\n")
    stream.flush()


def _lost(code: int, out_of_memory: bool, log: IO[bytes], doing: Doing) -> ChildLostError:
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    advice = ""
    if code == -signal.SIGABRT:
        advice = f"; {doing.library} ends the process where a program is not as it expects"
    elif code == -signal.SIGKILL and out_of_memory:
        advice = "; this machine ran out of memory: compile fewer at once, or on a larger machine"
    elif code == -signal.SIGKILL:
        advice = "; something on this machine killed it"
    log.seek(0)
    text = log.read().decode(errors="replace")
    if fatal := re.search(r"^F\d{4} [^\]]*\] (.*)", text, re.MULTILINE):
        advice += f": {fatal[1]}"  # what Google's logging says last
    lines = [line for line in text.splitlines() if not _NOISE.search(line)][-_LINES_OF_LOG:]
    said = "\n".join(["", "it had printed:", *(f"  {line}" for line in lines)]) if lines else ""
    return ChildLostError(f"the process that {doing.verb} {how}{advice}{said}")
