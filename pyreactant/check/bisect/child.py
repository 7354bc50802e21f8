"""A process that answers one request after the other, each within a deadline.

A process that crashed or was ended at a deadline is started again for the next request.
"""

import contextlib
import signal
import tempfile
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from ...base.child import killed_after, last_answer, send, started
from ...base.words import fatal


class Outcome(StrEnum):
    """What became of a request."""

    RAN = "ran"
    INVALID = "invalid"
    """The process refused it with an exception: a module that does not compile, for instance."""
    CRASH = "crash"
    HANG = "hang"


class Child:
    """A process for many requests; it starts at the first one.

    Args:
        argv: Its command.
        environment: All of its environment.
    """

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        self._argv, self._environment = argv, environment
        self._running = contextlib.ExitStack()
        self._child: Any = None
        self._log: Any = None

    def ask(self, request: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """The answer, which has an "outcome"; of one that is not "ran" also a "message".

        Args:
            timeout: Seconds until the process is ended.
        """
        if self._child is None:
            self._log = self._running.enter_context(
                tempfile.TemporaryFile()  # noqa: SIM115 - the stack closes it
            )
            try:
                self._child = self._running.enter_context(
                    started(self._argv, self._environment, stderr=self._log)
                )
            except OSError as error:
                message = f"{self._argv[0]} cannot be started: {error.strerror}"
                return {"outcome": Outcome.INVALID, "message": message}
        child, answer = self._child, None
        with killed_after(timeout, child) as late, contextlib.suppress(BrokenPipeError):
            send(child, request)
            answer = last_answer(child.stdout.readline())
        if answer is not None and not late.is_set():
            return answer
        code = child.wait()
        if late.is_set():
            self.close()
            message = f"no answer within {timeout:g} s"
            return {"outcome": Outcome.HANG, "message": message, "within": timeout}
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        self._log.seek(0)
        text = self._log.read().decode(errors="replace")
        why = fatal(text) or next((line for line in reversed(text.splitlines()) if line), "")
        self.close()
        return {"outcome": Outcome.CRASH, "message": f"{how}: {why}" if why else how}

    def close(self) -> None:
        """End the process."""
        self._running.close()
        self._child = None
