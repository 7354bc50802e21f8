"""Standard output for tables, without spaces at the ends of lines; and what is being done."""

import contextlib
import io
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import IO, TextIO, cast

from rich.console import Console

from ..base import steps
from ..base.duration import duration_text
from ..base.steps import Level, told_to

FILE_WIDTH = 120
"""Characters in a line of a file or a pipe, which have no width of their own."""


SOON = 1.0
"""Seconds after which a terminal shows what takes so long."""
EVERY = 30.0
"""Seconds between two lines about it in a file or a pipe."""


_END = re.compile(r"(?:[ \t]|\x1b\[[\d;]*m)+$", re.MULTILINE)
"""Spaces at the end of a line, among the codes of colours."""


class _Trimmed(io.TextIOBase):
    """Passes text on to a stream without the spaces that rich puts behind a table."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override] # rich draws with ASCII if it must
        return self._stream.encoding

    def write(self, text: str) -> int:
        self._stream.write(_END.sub(lambda end: re.sub("[ \t]+", "", end[0]), text))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()


class _Output(Console):
    """A console that leaves a closed pipe to the command line."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def output(width: int = FILE_WIDTH, *, soft_wrap: bool = False) -> Console:
    """The console on standard output.

    Args:
        width: Characters in a line if standard output is no terminal.
        soft_wrap: Whether the terminal breaks long lines, so that they can be copied.
    """
    console = _Output(
        file=cast(IO[str], _Trimmed(sys.stdout)), highlight=False, soft_wrap=soft_wrap
    )
    if not console.is_terminal:
        console.width = width
    return console


@contextlib.contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """Tell on standard error what is being done, until the body ends; nothing on standard output.

    A terminal shows one line with the time, from `SOON` on, which goes at the end. A file or a pipe
    gets a line each `EVERY`; with --verbose each change is a line. With --quiet, and within another
    such block, nothing is told.

    Yields:
        A function that changes the text; `base.steps.step` does, too.
    """
    progress = _Progress(what)
    with told_to(progress.tell) as outermost:
        if not outermost or steps.level is Level.QUIET:
            yield lambda text: None
            return
        with progress:
            yield progress.tell


class _Progress:
    """Shows a text and the time since its beginning, from a thread."""

    def __init__(self, what: str) -> None:
        self._text, self._began = what, time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True)

    def __enter__(self) -> None:
        if steps.level is Level.VERBOSE:
            self._print()
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def tell(self, text: str) -> None:
        """Change the text."""
        changed, self._text = text != self._text, text
        if changed and steps.level is Level.VERBOSE:
            self._print()

    def _show(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # are the main thread's
        with contextlib.suppress(OSError, ValueError):  # a terminal that is gone
            if sys.stderr.isatty() and steps.level is not Level.VERBOSE:
                if not self._ended.wait(SOON):
                    self._draw()
                return
        while not self._ended.wait(EVERY):
            self._print()

    def _print(self) -> None:
        passed = duration_text(int(time.monotonic() - self._began))
        with contextlib.suppress(OSError, ValueError):
            print(f"pyreactant: {self._text} ({passed})", file=sys.stderr, flush=True)

    def _draw(self) -> None:
        """Draw a line on a terminal until the end, and take it away."""
        from rich.progress import Progress, TextColumn, TimeElapsedColumn
        from rich.table import Column

        cut = Column(no_wrap=True, overflow="ellipsis")
        columns = (
            TextColumn("{task.description}", markup=False, table_column=cut),
            TimeElapsedColumn(table_column=Column(no_wrap=True, min_width=len("0:00:00"))),
        )
        shown = Progress(
            *columns,
            console=_Output(stderr=True),
            transient=True,
            redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),  # lines go above
            auto_refresh=False,  # rich's own thread may live longer than the body
        )
        with shown:
            task = shown.add_task(self._text, total=None)
            shown.tasks[0].start_time = self._began
            while not self._ended.wait(0.2):
                shown.update(task, description=self._text, refresh=True)
