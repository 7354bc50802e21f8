"""End a process that cannot raise, because it waits in a collective for one that differs."""

import contextlib
import sys
import threading
from typing import NoReturn

from ... import _supervised
from ..._core import progress
from ..._errors import MismatchError, PyReactantError
from ..._system.process import end_at_once, flush_output
from .aborts import AbortsDelayed

_STEP = 0.05  # seconds
_STEPS = 10


class Failure:
    """Ends the process when it waits in one collective for half a second after a mismatch.

    It is the `fail` of a `Guard`, and goes on looking until `close`: a process that computes when
    the mismatch is found may wait later. Until then abort() is delayed too.
    """

    def __init__(self) -> None:
        self._closed = threading.Event()
        self._aborts = AbortsDelayed()

    def close(self) -> None:
        """Let the process go on, whatever it does."""
        self._closed.set()
        self._aborts.restore()

    def __call__(self, error: MismatchError) -> None:
        """Look until the process waits; then report the error and end with its exit code."""
        steps, collectives = 0, progress.collectives
        while steps < _STEPS:
            if self._closed.wait(_STEP):
                return
            same = progress.waiting > 0 and progress.collectives == collectives
            steps, collectives = steps + 1 if same else 0, progress.collectives
        end_with(error)


def end_with(error: PyReactantError) -> NoReturn:
    """Report an error that nothing can catch, and end with its exit code."""
    _supervised.tell_error(error)
    flush_output()
    with contextlib.suppress(Exception):
        sys.stderr.write(f"pyreactant: {type(error).__name__}: {error}\n")
    end_at_once(error.exit_code)
