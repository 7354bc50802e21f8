"""``python -m pyreactant.process.supervised.command COMMAND ...``: become a command of the run.

It dies with its supervisor, as Python programs do; otherwise it knows nothing of it. If the system
does not start it, the supervisor hears why: its exit code could be one of the command's own.
"""

import errno
import os
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Mapping
from typing import NoReturn

from ...base.errors import RequirementError
from ...base.process import die_with_parent
from ...base.settings import DESCRIPTORS


def main() -> None:
    """Replace this process by the command on the command line."""
    line, stacks = (int(part) for part in os.environ.pop(DESCRIPTORS).split(","))
    die_with_parent()
    for descriptor in (line, stacks):
        os.set_inheritable(descriptor, False)
    try:
        become(sys.argv[1:])
    except RequirementError as error:
        from ..events import Raised  # a command that starts does without
        from .link import Link

        Link(line).tell(Raised.of(error))
        sys.stderr.write(f"pyreactant: {error}\n")
        raise SystemExit(error.exit_code) from None


def become(argv: list[str], executable: str | None = None) -> NoReturn:
    """Replace this process by a command.

    Raises:
        RequirementError: The system does not start it; the message says why.
    """
    # By default a warning ends a program, but a shell cannot trap what it ignored at its start.
    warned = warned_by_slurm(os.environ, _control_groups())
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN if warned else signal.SIG_DFL)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(executable or argv[0], argv)  # noqa: S606 - an argument list, without a shell
    except OSError as error:
        why = _why_not(executable or argv[0], error)
        raise RequirementError(f"the system does not start {argv[0]!r}: {why}") from None


_ELF = b"\x7fELF"


def _why_not(name: str, error: OSError) -> str:
    """Why the system does not start a command, and what to do."""
    file = shutil.which(name) or name
    try:
        with open(file, "rb") as opened:  # noqa: PTH123 - starts sooner
            first = opened.read(256).partition(b"\n")[0]
    except OSError:
        first = b""
    interpreter = os.fsdecode((first[2:].split(None, 1) or [b""])[0]) if first[:2] == b"#!" else ""
    quoted = shlex.quote(file)
    match error.errno:
        case errno.ENOENT if interpreter and first.endswith(b"\r"):
            return (
                "its lines end with a carriage return, as on Windows, so the interpreter in its "
                f"first line does not exist; run: sed -i 's/\\r$//' {quoted}"
            )
        case errno.ENOENT if interpreter:
            return f"the interpreter in its first line, {interpreter}, does not exist; correct it"
        case errno.EACCES if interpreter and os.access(file, os.X_OK):
            return f"the interpreter in its first line, {interpreter}, cannot be run; correct it"
        case errno.ENOENT if first.startswith(_ELF):
            return "the loader that it was built for does not exist here; build it for this system"
        case errno.ENOEXEC if first.startswith(_ELF):
            return "it was built for another kind of machine; build it for this one"
        case errno.ENOEXEC:
            return (
                "it is neither a program of this system nor a script whose first line names its "
                "interpreter, such as #!/bin/sh; add that line, or put the interpreter before it"
            )
        case errno.EACCES:
            return (
                f"{error.strerror}; run: chmod +x {quoted}, and see that its file system is not "
                "mounted with noexec"
            )
        case errno.E2BIG:
            return f"{error.strerror}; shorten its arguments or the environment"
    return f"{error.strerror}"


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
