"""Start a runtime's child process, wait for it, end it: it never outlives the doctor."""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from .._system.environment import LAUNCHERS, import_path, without
from ._machine import Machine

_KEPT = ("PYREACTANT_PLATFORM", "PYREACTANT_NUM_CPU_DEVICES", "PYREACTANT_DEBUG")
_GRACE = 3.0


@dataclass(frozen=True, slots=True)
class Answer:
    """How a child process ended.

    Attributes:
        code: Its exit code, None where it was ended at its deadline.
        seconds: How long it was given, or took.
        said: What it answered; empty where it did not.
        log: All that it printed.
    """

    code: int | None
    seconds: float
    said: Mapping[str, Any] = field(default_factory=dict)
    log: str = ""


def child_environment(machine: Machine) -> dict[str, str]:
    """The environment of one process alone, which leaves most of a GPU's memory to others."""
    kept = {name: machine.environ[name] for name in _KEPT if name in machine.environ}
    return {
        **without(*LAUNCHERS, environ=machine.environ),
        **kept,
        "PYTHONPATH": import_path(),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "XLA_REACTANT_GPU_PREALLOCATE": "false",
    }


class Child:
    """A child process with a deadline, in a session of its own.

    Use it as a context manager: at its end the process, and all that it started, is gone.

    Args:
        machine: Whose interpreter and environment.
        arguments: Of the interpreter.
        seconds: Until it is ended.
        settings: More variables.
        folder: Where it runs; None for this one.
    """

    def __init__(
        self,
        machine: Machine,
        arguments: Sequence[str],
        seconds: float,
        settings: Mapping[str, str],
        folder: Path | None = None,
    ) -> None:
        self._seconds = seconds
        self._out, self._log = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        self._begin = time.monotonic()
        self._process: subprocess.Popen[bytes] | None = None
        self._refused = ""
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own modules
                [machine.python, "-P", *arguments],
                env={**child_environment(machine), **settings},
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=self._out,
                stderr=self._log,
                start_new_session=True,
            )
        except OSError as error:
            self._refused = f"{machine.python} cannot be started ({error.strerror})"

    def __enter__(self) -> "Child":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()
        self._out.close()
        self._log.close()

    def answer(self) -> Answer:
        """Wait for its end, or bring it about at the deadline."""
        if self._process is None:
            return Answer(1, 0.0, {"error": self._refused})
        left = self._begin + self._seconds - time.monotonic()
        code: int | None
        try:
            code = self._process.wait(max(left, 0.01))
        except subprocess.TimeoutExpired:
            code = None
        took = time.monotonic() - self._begin
        self._end()
        out, log = (_text(file) for file in (self._out, self._log))
        said: dict[str, Any] = {}
        with contextlib.suppress(ValueError):
            found = json.loads(out.strip().rpartition("\n")[2])
            said = found if isinstance(found, dict) else {}
        return Answer(code, self._seconds if code is None else took, said, log)

    def _end(self) -> None:
        """End it and what it started: first as one asks, so that a supervisor ends its programs."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        if process.poll() is None:
            _signal(process, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE)
        _signal(process, signal.SIGKILL)
        process.wait()


def _signal(process: "subprocess.Popen[bytes]", number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _text(file: Any) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
