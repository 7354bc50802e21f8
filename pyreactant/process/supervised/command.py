"""``python -m pyreactant.process.supervised.command COMMAND ...``: become a command of the run.

It dies with its supervisor, as Python programs do; otherwise it knows nothing of it.
"""

import os
import re
import signal
import sys
from collections.abc import Mapping
from typing import NoReturn

from ...base.errors import ExitCode
from ...base.process import die_with_parent


def main() -> None:
    """Replace this process by the command on the command line."""
    die_with_parent()
    become(sys.argv[1:])


def become(argv: list[str], executable: str | None = None) -> NoReturn:
    """Replace this process by a command."""
    # By default a warning ends a program, but a shell cannot trap what it ignored at its start.
    warned = warned_by_slurm(os.environ, _control_groups())
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN if warned else signal.SIG_DFL)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(executable or argv[0], argv)  # noqa: S606 - an argument list, without a shell
    except OSError as error:
        sys.stderr.write(f"pyreactant: {argv[0]} cannot be started ({error.strerror})\n")
        absent = isinstance(error, FileNotFoundError)
        raise SystemExit(ExitCode.NOT_FOUND if absent else ExitCode.NOT_EXECUTABLE) from None


def warned_by_slurm(environment: Mapping[str, str], groups: str) -> bool:
    """Whether Slurm sends its warnings to this process, and not only to its supervisor.

    With proctrack/cgroup a step has a control group of its own, and the warnings are sent to the
    processes that Slurm itself started there; otherwise they may be sent to all.

    Args:
        environment: The process's environment variables.
        groups: Its control groups, as ``/proc/self/cgroup`` lists them; "" if that is unknown.
    """
    return "SLURM_JOB_ID" in environment and not re.search(r"/job_\d+/step_", groups)


def _control_groups() -> str:
    try:
        with open("/proc/self/cgroup", errors="replace") as file:  # noqa: PTH123 - starts sooner
            return file.read()
    except OSError:
        return ""


if __name__ == "__main__":
    main()
