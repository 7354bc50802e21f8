"""``python -m pyreactant._supervised.command COMMAND ...``: become a command of the run.

It dies with its supervisor, as Python programs do; otherwise it knows nothing of it.
"""

import os
import signal
import sys
from typing import NoReturn

from .._system.process import die_with_parent


def main() -> None:
    """Replace this process by the command on the command line."""
    die_with_parent()
    become(sys.argv[1:])


def become(argv: list[str], executable: str | None = None) -> NoReturn:
    """Replace this process by a command.

    Args:
        argv: Its name and arguments.
        executable: The file to execute; None for that of the name.
    """
    # Slurm may send its warning to every process of a step; by default it would end the program.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(executable or argv[0], argv)  # noqa: S606 - an argument list, without a shell
    except OSError as error:
        sys.stderr.write(f"pyreactant: {argv[0]} cannot be started ({error.strerror})\n")
        raise SystemExit(127 if isinstance(error, FileNotFoundError) else 126) from None


if __name__ == "__main__":
    main()
