"""What is read from environment variables, and the variables that are our own."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from .._errors import InvalidArgumentError
from ._group import ProcessGroup

COUNT = "PYREACTANT_NUM_PROCESSES"
INDEX = "PYREACTANT_PROCESS_INDEX"
COORDINATOR = "PYREACTANT_COORDINATOR_ADDRESS"
LOCAL_DEVICES = "PYREACTANT_LOCAL_DEVICE_IDS"


def env_int(name: str, environ: Mapping[str, str] = os.environ) -> int | None:
    """A whole number from the environment; None where the variable is unset or empty.

    Raises:
        InvalidArgumentError: It holds something else.
    """
    text = environ.get(name)
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise InvalidArgumentError(f"{name} must be a whole number, got {text!r}") from None


def required(name: str, environ: Mapping[str, str]) -> str:
    """What the launcher always sets.

    Raises:
        InvalidArgumentError: The variable is unset or empty.
    """
    text = environ.get(name)
    if not text:
        raise InvalidArgumentError(
            f"{name} must be set beside the launcher's other variables, but is not; pass the whole "
            f"environment on, or set {COUNT}, {INDEX} and {COORDINATOR} instead"
        )
    return text


def required_int(name: str, environ: Mapping[str, str]) -> int:
    """A whole number that the launcher always sets.

    Raises:
        InvalidArgumentError: The variable is unset, or holds something else.
    """
    required(name, environ)
    number = env_int(name, environ)
    assert number is not None
    return number


def local_devices(environ: Mapping[str, str]) -> tuple[int, ...] | None:
    """The GPUs that PYREACTANT_LOCAL_DEVICE_IDS names.

    Raises:
        InvalidArgumentError: It has another form than 0,1.
    """
    text = environ.get(LOCAL_DEVICES)
    if not text:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidArgumentError(
            f"{LOCAL_DEVICES} must be whole numbers separated by commas, got {text!r}"
        ) from None


def seen(names: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Those of these variables that are set."""
    return {name: environ[name] for name in names if name in environ}


class Trap(InvalidArgumentError):
    """Started in a way that cannot work, with the exact line that does.

    Attributes:
        sentence: What is wrong, and what the line is for.
        line: The command to use, or the setting to make.
    """

    def __init__(self, sentence: str, line: str):
        super().__init__(f"{sentence}: {line}")
        self.sentence, self.line = sentence, line


@dataclass(frozen=True, slots=True)
class Finding:
    """What one resolver found in the environment.

    Attributes:
        name: The resolver, which is the ``source`` of its group.
        reason: Why it applies or does not, in a few words.
        saw: The variables (or other things) it looked at and found, with their values.
        group: The group it gives; None where it does not apply, or where there is a trap.
        trap: What is wrong with the launch, to be raised.
        notes: What a user should know even though it works.
    """

    name: str
    reason: str
    saw: Mapping[str, str] = field(default_factory=dict)
    group: ProcessGroup | None = None
    trap: InvalidArgumentError | None = None
    notes: tuple[str, ...] = ()

    @property
    def applies(self) -> bool:
        """Whether it decides, if no resolver before it does."""
        return self.group is not None or self.trap is not None
