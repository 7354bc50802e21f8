"""The width of a terminal, and text whose lines break between words there."""

import os
import sys
import textwrap
from typing import TextIO

_ROOM = 24
"""Characters that a line must have beside its beginning; else the text goes below that."""

_BELOW = 4


def width_of(stream: TextIO) -> int | None:
    """Characters in a line of a terminal; None for a file or a pipe, whose lines have no end."""
    try:
        if not stream.isatty():
            return None
        given = os.environ.get("COLUMNS", "")
        columns = int(given) if given.isascii() and given.isdigit() else 0
        return columns or os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):
        return None


def hanging(start: str, text: str, width: int | None) -> str:
    """Text after a beginning, broken between words, with its later lines below its first.

    Where little room is beside the beginning, the text goes below that, 4 spaces in. Words that are
    longer than a line stay whole, such as paths.

    Args:
        start: The beginning of the first line.
        text: The text, without line breaks.
        width: Characters in a line; None for one line.
    """
    if width is None or len(start) + len(text) <= width:
        return f"{start}{text}".rstrip()
    beside = len(start) if width - len(start) >= _ROOM else 0
    indent = " " * (beside or min(_BELOW, len(start)))
    lines = _wrapped(text, width, indent)
    if beside:
        return "\n".join([start + lines[0][beside:], *lines[1:]])
    return "\n".join([*_wrapped(start, width), *lines])


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        max(width, len(indent) + 1),
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def broken(text: str, stream: TextIO | None = None) -> str:
    """The lines of a text, those that are too long for a terminal broken between words.

    Args:
        text: The text.
        stream: Where it is printed; None for standard error.
    """
    width = width_of(stream or sys.stderr)
    return "\n".join(
        hanging(line[: len(line) - len(line.lstrip())], line.lstrip(), width)
        for line in text.split("\n")
    )
