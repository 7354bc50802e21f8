"""The doctor's child processes: each has a deadline, and how it ends is data for a row.

Unlike the child of `_system.child.ask_child`, several run beside each other, one is a supervisor
that must end its own programs, and a child that dies is a result, not an error.
"""

import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from .._system.child import LAUNCHERS, import_path, last_answer, send, started, without
from ._machine import Machine

_KEPT = ("PYREACTANT_PLATFORM", "PYREACTANT_NUM_CPU_DEVICES", "PYREACTANT_DEBUG")
_GRACE = 3.0
"""Seconds that a supervisor has to end its programs."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How a child process ended.

    Attributes:
        code: The exit code; None if the child was ended at its deadline.
        seconds: How long the child took; if it was ended, how long it was given.
        content: The child's answer; empty if there is none.
        log: What the child printed to standard error.
    """

    code: int | None
    seconds: float
    content: Mapping[str, Any] = field(default_factory=dict)
    log: str = ""


def child_environment(machine: Machine) -> dict[str, str]:
    """The environment of a single process that leaves most of a GPU's memory to others."""
    kept = {name: machine.environ[name] for name in _KEPT if name in machine.environ}
    return {
        **without(*LAUNCHERS, environ=machine.environ),
        **kept,
        "PYTHONPATH": import_path(),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "XLA_REACTANT_GPU_PREALLOCATE": "false",
    }


class Child:
    """A running child process; at the end of the `with` block it and what it started are gone.

    Args:
        machine: The machine whose interpreter and environment it gets.
        arguments: Arguments of the interpreter.
        seconds: Its deadline, in seconds from now.
        settings: Environment variables to add.
        request: A request for its standard input.
        folder: Its current folder; None for this process's.
    """

    def __init__(
        self,
        machine: Machine,
        arguments: Sequence[str],
        seconds: float,
        *,
        settings: Mapping[str, str] | None = None,
        request: Mapping[str, Any] | None = None,
        folder: Path | None = None,
    ) -> None:
        self._seconds = seconds
        self._out, self._log = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        self._begin = time.monotonic()
        self._running = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        self._start_error = ""
        child = started(
            [machine.python, "-P", *arguments],
            {**child_environment(machine), **(settings or {})},
            stdout=self._out,
            stderr=self._log,
            folder=folder,
            grace=_GRACE,
        )
        try:
            self._process = self._running.enter_context(child)
        except OSError as error:
            self._start_error = f"{machine.python} cannot be started ({error.strerror})"
            return
        if request is not None:
            with suppress(BrokenPipeError):  # it has ended already
                send(self._process, request)

    def __enter__(self) -> "Child":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._running.close()
        self._out.close()
        self._log.close()

    def answer(self) -> Answer:
        """Wait until the child ends, or end it at its deadline."""
        if self._process is None:
            return Answer(1, 0.0, {"error": self._start_error})
        left = self._begin + self._seconds - time.monotonic()
        code: int | None
        try:
            code = self._process.wait(max(left, 0.01))
        except subprocess.TimeoutExpired:
            code = None
        took = time.monotonic() - self._begin
        self._running.close()
        content = last_answer(_read(self._out)) or {}
        log = _read(self._log).decode(errors="replace")
        return Answer(code, self._seconds if code is None else took, content, log)


def _read(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()
