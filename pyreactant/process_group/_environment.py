"""What is read from environment variables, and the variables that are our own."""

import os
from collections.abc import Iterable, Mapping

from .._errors import InvalidArgumentError

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
