"""The progress of a setup: a line that moves on a terminal, and else one line for each event."""

import time
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from ..setup._report import STAGES, State

if TYPE_CHECKING:
    from rich.status import Status

_WIDTH = max(map(len, STAGES.values()))


class Show:
    """Shows on a stream what a setup reports, while it is entered."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._status: Status | None = None
        self._since = time.monotonic()

    def __enter__(self) -> "Show":
        if self._stream.isatty():
            from rich.console import Console

            self._status = Console(file=self._stream).status("")
            self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def __call__(self, stage: str, state: State, text: str) -> None:
        """Show one event."""
        if state == "waits":
            self._print(f"waiting for {text}")
        elif state == "starts":
            self._since = time.monotonic()
            self._now(stage, f"{text} ...")
        elif state == "done":
            took = time.monotonic() - self._since
            self._print(f"{STAGES[stage]:<{_WIDTH}}  {text} ({took:.1f} s)")
        elif self._status is not None:
            self._now(stage, text)

    def _now(self, stage: str, text: str) -> None:
        if self._status is None:
            self._print(f"{STAGES[stage]:<{_WIDTH}}  {text}")
            return
        from rich.text import Text

        seconds = time.monotonic() - self._since
        line = Text(f"{STAGES[stage]}  {seconds:.0f} s  {text}", overflow="ellipsis", no_wrap=True)
        self._status.update(line)

    def _print(self, line: str) -> None:
        if self._status is None:
            print(line, file=self._stream, flush=True)
        else:
            self._status.console.print(line, markup=False, highlight=False, soft_wrap=True)
