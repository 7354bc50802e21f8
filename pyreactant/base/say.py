"""What pyreactant tells the user while it works, on standard error."""

import contextlib
import os
import sys
import time
from collections.abc import Callable
from typing import TextIO

_SAID_AGAIN = 60.0
"""Seconds after which the user sees again why something takes so long."""


def say(text: str) -> None:
    """Print a message for the user."""
    sys.stderr.write(f"pyreactant: {text}\n")
    sys.stderr.flush()


def has_colours(stream: TextIO) -> bool:
    """Whether text to a stream may have colours: on a terminal, and without NO_COLOR."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return not plain and stream.isatty()


class Repeated:
    """Prints why something takes so long: when that changes, and each minute.

    Args:
        tell: Prints a message for the user.
    """

    def __init__(self, tell: Callable[[str], None] = say) -> None:
        self._tell, self._about, self._at = tell, "", 0.0

    def say(self, text: str, *, about: str = "") -> None:
        """Print a text, unless it is empty or the same was printed a moment ago.

        Args:
            text: The text.
            about: What of it is the same as a moment ago; "" for all of it.
        """
        now, about = time.monotonic(), about or text
        if text and (about != self._about or now - self._at > _SAID_AGAIN):
            self._about, self._at = about, now
            with contextlib.suppress(OSError, ValueError):  # a terminal that is gone
                self._tell(text)
