"""The errors that pyreactant raises: one kind per cause, each with its exit code.

Messages say what was required, what was got, and what to do. Exit codes of the command line:
0 done, 1 a user program failed, 2 usage, 3 something required is missing, 4 rendezvous failed,
5 a mismatch was found, 6 a process was lost (killed, preempted, out of memory), 7 timeout,
8 the cloud refused.
"""

from typing import ClassVar


class PyReactantError(Exception):
    """Base of every error that pyreactant raises on purpose."""

    exit_code: ClassVar[int] = 1


class InvalidArgumentError(PyReactantError, ValueError):
    """An argument has the wrong form or does not fit the others."""

    exit_code = 2


class ShardingError(InvalidArgumentError):
    """A mesh, a partition spec and a shape do not fit together."""


class DTypeError(InvalidArgumentError, TypeError):
    """An element type that the runtime cannot hold unchanged."""


class FileError(InvalidArgumentError):
    """A file that cannot be read or written, has the wrong content, or must not be replaced."""


class StateError(PyReactantError, RuntimeError):
    """The call conflicts with what already runs in this process."""

    exit_code = 2


class NotAddressableError(StateError):
    """The data lies partly on devices of other processes; `gather()` is needed."""


class RequirementError(PyReactantError, RuntimeError):
    """A package, platform or device that was requested is absent."""

    exit_code = 3


class RendezvousError(PyReactantError, RuntimeError):
    """The processes of a run did not find each other or disagree about the run."""

    exit_code = 4


class MismatchError(PyReactantError, ValueError):
    """A result is wrong, or data that must be equal on every process differs."""

    exit_code = 5


class DeadlineError(PyReactantError, TimeoutError):
    """A collective operation did not finish in time."""

    exit_code = 7
