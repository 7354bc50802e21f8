"""The command line: commands call library functions and hold no logic."""

import gc
import os
import sys
from collections.abc import Callable


def main() -> None:
    """Run the command line; Ctrl-C ends it without a traceback, also while modules load."""
    try:
        # Nearly all objects made at start stay alive, so collecting garbage would only cost time.
        gc.set_threshold(100_000)
        _open_closed_streams()
        _load()()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        from ..base.errors import ExitCode

        os._exit(ExitCode.INTERRUPTED)


def _load() -> Callable[[], None]:
    """The command line, whose modules need packages such as typer."""
    try:
        from .app import main as run
    except Exception as error:
        from ..base.packages import broken_package

        if (broken := broken_package(error)) is None:
            raise
        print(f"pyreactant: error: {broken}", file=sys.stderr)
        raise SystemExit(broken.exit_code) from None
    return run


def _open_closed_streams() -> None:
    """Open /dev/null for a standard stream that is closed, as after `>&-`.

    Otherwise the next file or socket would get its number, and what is printed would go there.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8"))
