"""The errors that pyreactant raises: one kind per cause, each with its exit code.

Messages say what was required, what was got, and what to do. They name an argument by `argument`:
the keyword for callers in Python, the option at a command line, which says how its options are
called with `named`. So no message is changed after it is written.

No other code has numbers of exit codes; texts for users name them.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any


class ExitCode(IntEnum):
    """The exit codes of the command line, of runs and of jobs."""

    DONE = 0
    FAILED = 1
    """A user's program failed."""
    USAGE = 2
    MISSING = 3
    """Something that is required is missing here."""
    RENDEZVOUS = 4
    MISMATCH = 5
    """A result is wrong, or a program does not fit."""
    LOST = 6
    """A process was killed or preempted, or was out of memory."""
    TIMEOUT = 7
    CLOUD = 8
    """Cloud TPU refused, or something may still cost money."""
    INTERRUPTED = 130
    """As shells have it; so is the one that follows."""
    UNREAD = 141
    """The reader of standard output has gone, as with `| head`."""

    __repr__ = int.__repr__


def code_of(error: BaseException) -> int:
    """The exit code of a process that an exception ends."""
    if isinstance(error, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    return error.exit_code if isinstance(error, PyReactantError) else ExitCode.FAILED


def code_of_signal(number: int) -> int:
    """The exit code of a process that a signal ended, as shells have it."""
    return 128 + number


class PyReactantError(Exception):
    """Base of every error that pyreactant raises on purpose.

    Examples:
        >>> try:
        ...     pr.device_put(np.ones((9, 8)), sharding)
        ... except pr.PyReactantError as error:
        ...     print(type(error).__name__)
        ShardingError
    """

    exit_code: int = ExitCode.FAILED
    failed_process: int | None = None
    """The process that failed, if this error only says so on another one."""


class InvalidArgumentError(PyReactantError, ValueError):
    """An argument has the wrong form or does not fit the others."""

    exit_code = ExitCode.USAGE


class ShardingError(InvalidArgumentError):
    """A mesh, a partition spec and a shape do not fit together."""


class DTypeError(InvalidArgumentError, TypeError):
    """An element type that the runtime cannot hold unchanged."""


class FileError(InvalidArgumentError):
    """A file that cannot be read or written, has the wrong content, or must not be replaced."""


class StateError(PyReactantError, RuntimeError):
    """The call conflicts with what already runs in this process."""

    exit_code = ExitCode.USAGE


class NotAddressableError(StateError):
    """The data lies partly on devices of other processes; `gather()` is needed."""


class RequirementError(PyReactantError, RuntimeError):
    """A package, platform or device that was requested is absent.

    Attributes:
        problem: What is absent.
        command: The command that provides it; "" if there is none.
    """

    exit_code = ExitCode.MISSING

    def __init__(self, problem: str, command: str = "", *, advice: str = "run") -> None:
        super().__init__(f"{problem}; {advice}: {command}" if command else problem)
        self.problem, self.command, self._advice = problem, command, advice

    @property
    def words(self) -> tuple[str, str, str]:
        """The problem, the command and what is said before it, as the constructor takes them."""
        return self.problem, self.command, self._advice


def as_data(error: PyReactantError) -> dict[str, Any]:
    """An error as plain data, for the process that asked; a requirement keeps its command.

    The kind is the nearest one of this module.
    """
    words = error.words if isinstance(error, RequirementError) else (str(error),)
    kind = next(kind for kind in type(error).__mro__ if kind.__module__ == __name__)
    return {"kind": kind.__name__, "words": list(words)}


def from_data(data: Mapping[str, Any]) -> PyReactantError:
    """The error that `as_data` has written."""
    words = data["words"]
    if len(words) == 3:
        problem, command, advice = words
        return RequirementError(problem, command, advice=advice)
    return kind_of(data["kind"])(*words)


def kind_of(name: str) -> type["PyReactantError"]:
    """The kind of error of this name, which another process told.

    It is the base for a name of another module or version, and for one with more than a message.
    """
    kind = globals().get(name)
    if isinstance(kind, type) and issubclass(kind, PyReactantError) and kind is not RemoteError:
        return kind
    return PyReactantError


def no_room(why: object) -> RequirementError:
    """The error for a system that does not start a process or a thread.

    Args:
        why: What the system or a library says.
    """
    import resource

    def limit(kind: int) -> str:
        value = resource.getrlimit(kind)[0]
        return "unlimited" if value == resource.RLIM_INFINITY else str(value)

    return RequirementError(
        f"the system does not start a process or a thread ({why}); see the limits of all processes "
        f"and threads of this user (ulimit -u, here {limit(resource.RLIMIT_NPROC)}) and of memory "
        f"(ulimit -v, here {limit(resource.RLIMIT_AS)}), or start fewer processes"
    )


class RendezvousError(PyReactantError, RuntimeError):
    """The processes of a run did not find each other or disagree about the run."""

    exit_code = ExitCode.RENDEZVOUS


class PortTakenError(RendezvousError):
    """Another program listens on the port where the processes of a run are to meet."""


class MismatchError(PyReactantError, ValueError):
    """A result is wrong, or data that must be equal on every process differs."""

    exit_code = ExitCode.MISMATCH


class DeadlineError(PyReactantError, TimeoutError):
    """A collective operation did not finish in time."""

    exit_code = ExitCode.TIMEOUT


class PeerLostError(DeadlineError):
    """Another process of the run ended or was cut off, so that what needs it cannot finish."""


class RemoteError(PyReactantError, RuntimeError):
    """A job failed: its function raised on some process, or the run broke.

    If nobody catches it, Python prints the remote traceback below it, as a note.

    Attributes:
        kind: Name of the exception's type, such as "ValueError", or the cause of the run's end:
            "lost", "out of memory", "preempted", "timeout", "rendezvous", "environment",
            "cancelled" or "cloud".
        process: Index of the process that failed first; None if no process did.
        host: Its host; None if unknown.
        traceback: The remote traceback as text, or the last lines of the process's log.
        others: The other processes that raised, by time, each with the keys process, host, kind,
            message, traceback and time.
        exit_code: Exit code of the run.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str,
        exit_code: int = ExitCode.FAILED,
        process: int | None = None,
        host: str | None = None,
        traceback: str = "",
        others: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(message)
        self.kind, self.process, self.host = kind, process, host
        self.traceback, self.others, self.exit_code = traceback, others, exit_code
        if traceback:
            who = "The job" if process is None else f"Process {process} of the job"
            self.add_note(f"\n{who} printed:\n\n{traceback.rstrip()}")


_options: Mapping[str, str] = {}
_ABSENT = object()


def check_count(name: str, value: Any) -> None:
    """Check that an argument is a whole number from 1; InvalidArgumentError has its name."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidArgumentError(f"{argument(name)} must be a whole number from 1, got {value!r}")


def argument(name: str, value: Any = _ABSENT) -> str:
    """How the caller writes an argument.

    Args:
        name: The keyword in Python.
        value: What it is set to, if the text has that, too.

    Returns:
        Such as "size" or "size=8" in Python, and "--size" or "--size 8" at a command line.
    """
    option = _options.get(name)
    if value is _ABSENT:
        return option or name
    return f"{name}={value!r}" if option is None else f"{option} {value}"


@contextlib.contextmanager
def named(options: Mapping[str, str]) -> Iterator[None]:
    """Name arguments by the options of a command until the body ends.

    Args:
        options: The option of each keyword, besides those that are named already.
    """
    global _options
    before = _options
    _options = {**before, **options}
    try:
        yield
    finally:
        _options = before
