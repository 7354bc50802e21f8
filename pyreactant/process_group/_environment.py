"""Our environment variables, and what a resolver reports of the variables that it reads."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from .._errors import InvalidArgumentError
from ._group import ProcessGroup

COUNT = "PYREACTANT_NUM_PROCESSES"
INDEX = "PYREACTANT_PROCESS_INDEX"
COORDINATOR = "PYREACTANT_COORDINATOR_ADDRESS"
LOCAL_DEVICES = "PYREACTANT_LOCAL_DEVICE_IDS"
JOB_INDEX = "PYREACTANT_JOB_INDEX"
JOB_REPLICAS = "PYREACTANT_JOB_REPLICAS"


def env_int(name: str, environ: Mapping[str, str] = os.environ) -> int | None:
    """A whole number from the environment; None if the variable is unset or empty.

    Raises:
        InvalidArgumentError: The value is not a whole number.
    """
    text = environ.get(name)
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise InvalidArgumentError(f"{name} must be a whole number, got {text!r}") from None


def required(name: str, environ: Mapping[str, str]) -> str:
    """The value of a variable that the launcher always sets.

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
        InvalidArgumentError: The variable is unset, or its value is not a whole number.
    """
    required(name, environ)
    number = env_int(name, environ)
    assert number is not None
    return number


def local_devices(environ: Mapping[str, str]) -> tuple[int, ...] | None:
    """The GPUs that PYREACTANT_LOCAL_DEVICE_IDS names.

    Raises:
        InvalidArgumentError: The value does not have the form 0,1.
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


def check_jax_process_id(process: int, count: int, environ: Mapping[str, str]) -> None:
    """Check JAX_PROCESS_ID, if it is set, in a run of several slices.

    Kubeflow's trainer sets it to the pod's index within its slice (its issue 3537), so that it
    repeats in every slice.

    Raises:
        InvalidArgumentError: It is another process.
    """
    found = env_int("JAX_PROCESS_ID", environ)
    if found not in (None, process):
        raise InvalidArgumentError(
            f"this is process {process} of {count} in a run of several slices, but "
            f"JAX_PROCESS_ID={found}, which repeats in every slice if it is the index within the "
            f"slice; unset it, or set it to {process} here"
        )


def defined_variables(names: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables among `names` that are set, with their values."""
    return {name: environ[name] for name in names if name in environ}


class LaunchError(InvalidArgumentError):
    """The process was started in a way that cannot work; the error has the command that does.

    Attributes:
        problem: What is wrong, and what the command is for.
        command: The command to use, or the variable to set.
    """

    def __init__(self, problem: str, command: str):
        super().__init__(f"{problem}: {command}")
        self.problem, self.command = problem, command


@dataclass(frozen=True, slots=True)
class Resolution:
    """What one resolver concludes from the environment.

    Attributes:
        name: The resolver, which is the ``source`` of its group.
        reason: Why it applies or not, in a few words.
        evidence: The variables and other facts that it found, with their values.
        group: The process group; None if the resolver does not apply or the launch is wrong.
        error: What is wrong with the launch, to be raised.
        notes: What a user should know even though the launch works.
    """

    name: str
    reason: str
    evidence: Mapping[str, str] = field(default_factory=dict)
    group: ProcessGroup | None = None
    error: InvalidArgumentError | None = None
    notes: tuple[str, ...] = ()

    @property
    def applies(self) -> bool:
        """Whether it decides, unless a resolver before it does."""
        return self.group is not None or self.error is not None
