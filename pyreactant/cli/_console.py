"""Standard output for tables: as wide as the terminal, without spaces at the ends of lines."""

import io
import re
import sys
from typing import IO, TextIO, cast

from rich.console import Console

FILE_WIDTH = 120
"""Characters in a line of a file or a pipe, which have no width of their own."""


class _Trimmed(io.TextIOBase):
    """Passes text on to a stream without the spaces that rich puts behind a table."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override] # rich draws with ASCII if it must
        return self._stream.encoding

    def write(self, text: str) -> int:
        self._stream.write(re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()


def output(width: int = FILE_WIDTH, *, soft_wrap: bool = False) -> Console:
    """The console on standard output.

    Args:
        width: Characters in a line if standard output is no terminal.
        soft_wrap: Whether the terminal breaks long lines, so that they can be copied.
    """
    console = Console(
        file=cast(IO[str], _Trimmed(sys.stdout)), highlight=False, soft_wrap=soft_wrap
    )
    if not console.is_terminal:
        console.width = width
    return console
