"""The command line: commands call library functions and hold no logic."""

import os
import sys


def main() -> None:
    """Run the command line; Ctrl-C ends it without a traceback, also while modules load."""
    try:
        from ._main import main as run

        run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        os._exit(130)  # as `INTERRUPTED`, which may not have loaded
