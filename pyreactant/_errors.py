"""The kinds of error pyreactant raises: one kind per cause, each with its exit code.

Messages say what was required, what was got, and what to do. The exit codes are
those of the command line: 1 a user program failed, 2 usage, 3 something required is
missing here, 4 rendezvous failed, 5 a mismatch was found, 6 out of memory, 7 timeout.
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
    """An element type that the runtime cannot hold as it is."""


class FileError(InvalidArgumentError):
    """A file that cannot be read, is not what it should be, or must not be replaced."""


class StateError(PyReactantError, RuntimeError):
    """The call does not fit what already runs in this process."""

    exit_code = 2


class NotAddressableError(StateError):
    """The data lies partly on devices of other processes; `gather()` is needed."""


class RequirementError(PyReactantError, RuntimeError):
    """A package, platform or device that was asked for is absent here."""

    exit_code = 3


class RendezvousError(PyReactantError, RuntimeError):
    """The processes of a run did not find each other or disagree about the run."""

    exit_code = 4


class MismatchError(PyReactantError, ValueError):
    """A result is wrong, or data that must be equal everywhere is not."""

    exit_code = 5


class DeadlineError(PyReactantError, TimeoutError):
    """Something that every process takes part in did not finish in time."""

    exit_code = 7
