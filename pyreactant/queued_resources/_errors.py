"""Kinds of error that only the cloud makes."""

from typing import ClassVar

from .._errors import PyReactantError


class CloudError(PyReactantError, RuntimeError):
    """Cloud TPU said no, could not be reached, or took the resource away.

    Attributes:
        later: Whether the same may work at another time.
    """

    exit_code: ClassVar[int] = 8

    def __init__(self, message: str, *, later: bool = False) -> None:
        super().__init__(message)
        self.later = later


class NotOursError(CloudError):
    """The name belongs to a resource that this run did not make; it is never deleted."""


class PreemptedError(CloudError):
    """The service took the nodes away; the same request may be made again."""

    exit_code: ClassVar[int] = 6
