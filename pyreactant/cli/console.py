"""Standard output for tables, without spaces at the ends of lines; and what is being done."""

import contextlib
import io
import re
import sys
import threading
from collections.abc import Callable, Iterator
from typing import IO, TextIO, cast

from rich.console import Console

FILE_WIDTH = 120
"""Characters in a line of a file or a pipe, which have no width of their own."""


SOON = 2.0
"""Seconds after which a line in a pipe says what takes so long."""


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

    A terminal shows one line with the time, which goes at the end. A file or a pipe gets one line
    once, if it takes longer than `SOON`. The body gets a function that changes the text.
    """
    if sys.stderr.isatty():
        with _line(what) as tell:
            yield tell
        return
    texts = [what]

    def late() -> None:
        print(f"pyreactant: {texts[-1]} ...", file=sys.stderr, flush=True)

    timer = threading.Timer(SOON, late)
    timer.daemon = True
    timer.start()
    try:
        yield texts.append
    finally:
        timer.cancel()
        timer.join()


@contextlib.contextmanager
def _line(what: str) -> Iterator[Callable[[str], None]]:
    from rich.progress import Progress, TextColumn, TimeElapsedColumn
    from rich.table import Column

    cut = Column(no_wrap=True, overflow="ellipsis")
    columns = (
        TextColumn("{task.description}", markup=False, table_column=cut),
        TimeElapsedColumn(table_column=Column(no_wrap=True, min_width=len("0:00:00"))),
    )
    shown = Progress(
        *columns,
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),  # lines go above
        auto_refresh=False,  # rich's own thread may live longer than the body
    )
    ended = threading.Event()

    def refresh() -> None:
        while not ended.wait(0.2):
            shown.refresh()

    with shown:
        task = shown.add_task(what, total=None)
        clock = threading.Thread(target=refresh, daemon=True)
        clock.start()
        try:
            yield lambda text: shown.update(task, description=text)
        finally:
            ended.set()
            clock.join()
