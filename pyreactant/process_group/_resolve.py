"""Resolve who this process is: explicit arguments, then PYREACTANT_*, then one process."""

import os
from collections.abc import Mapping, Sequence

from .._errors import InvalidArgumentError
from ._data import ProcessGroup

COUNT = "PYREACTANT_NUM_PROCESSES"
INDEX = "PYREACTANT_PROCESS_INDEX"
COORDINATOR = "PYREACTANT_COORDINATOR_ADDRESS"
LOCAL_DEVICES = "PYREACTANT_LOCAL_DEVICE_IDS"


def resolve(
    *,
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_index: int | None = None,
    local_device_ids: Sequence[int] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> ProcessGroup:
    """The process group; explicit arguments win over the environment as a whole.

    Raises:
        InvalidArgumentError: Only a part of it was said, or the values contradict each other.
    """
    local = None if local_device_ids is None else tuple(int(i) for i in local_device_ids)
    explicit = (num_processes, process_index, coordinator_address)
    if any(value is not None for value in explicit):
        if num_processes is None or (num_processes > 1 and process_index is None):
            raise InvalidArgumentError(
                "give num_processes, process_index and coordinator_address together, got "
                f"num_processes={num_processes}, process_index={process_index}, "
                f"coordinator_address={coordinator_address!r}"
            )
        return ProcessGroup(
            num_processes, process_index or 0, coordinator_address, local, "arguments"
        )
    said = [name for name in (COUNT, INDEX, COORDINATOR) if environ.get(name)]
    if not said:
        _refuse_to_run_alone(environ)
        return ProcessGroup(local_device_ids=local or _ids(environ))
    count = env_int(COUNT, environ)
    index = env_int(INDEX, environ)
    if count is None or (count > 1 and index is None):
        missing = [name for name in (COUNT, INDEX, COORDINATOR) if name not in said]
        raise InvalidArgumentError(
            f"{', '.join(said)} set but not {', '.join(missing)}; set all three or none"
        )
    return ProcessGroup(
        count, index or 0, environ.get(COORDINATOR) or None, local or _ids(environ), "environment"
    )


# What launchers set for each of several tasks: their number, and which one this is.
_LAUNCHERS = {
    "SLURM_STEP_NUM_TASKS": "SLURM_PROCID",
    "OMPI_COMM_WORLD_SIZE": "OMPI_COMM_WORLD_RANK",
    "PMI_SIZE": "PMI_RANK",
}


def _refuse_to_run_alone(environ: Mapping[str, str]) -> None:
    """Each task of a launcher would start a run of its own, and nobody would notice."""
    for size, rank in _LAUNCHERS.items():
        if (env_int(size, environ) or 1) > 1:
            raise InvalidArgumentError(
                f"this is one of {environ[size]} tasks ({size}={environ[size]}), but nothing says "
                f"how they find each other; set {COUNT}=${size}, {INDEX}=${rank} and "
                f"{COORDINATOR}=host:port of task 0, or {COUNT}=1 to let each task run alone"
            )


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


def _ids(environ: Mapping[str, str]) -> tuple[int, ...] | None:
    text = environ.get(LOCAL_DEVICES)
    if not text:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidArgumentError(
            f"{LOCAL_DEVICES} must be whole numbers separated by commas, got {text!r}"
        ) from None
