"""Ctrl-C while the command line loads, before its `main` can catch it.

This imports nothing else, since what it imports would load without it.
"""

import os
import sys

_COMMAND = "pyreactant"


def is_command() -> bool:
    """Whether this process is the command line: the script, or ``python -m pyreactant``."""
    first = sys.argv[0] if sys.argv else ""
    if first != "-m":
        return first.endswith(f"/{_COMMAND}")
    # Python has not found the module yet: in front of the arguments stands its name.
    return sys.orig_argv[-len(sys.argv)].removeprefix("-m") == _COMMAND


def hide_interrupts() -> None:
    """From now on KeyboardInterrupt that nothing catches is one line, and its exit code."""
    before = sys.excepthook

    def hook(kind, error, trace) -> None:  # type: ignore[no-untyped-def]
        if not issubclass(kind, KeyboardInterrupt):
            before(kind, error, trace)
            return
        from .errors import ExitCode

        print("interrupted", file=sys.stderr)  # noqa: T201
        os._exit(ExitCode.INTERRUPTED)

    sys.excepthook = hook
