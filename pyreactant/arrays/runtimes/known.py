"""The runtimes that `initialize` knows, and the train loop of Ray Train in which one may start.

Importing this imports no runtime, and not NumPy. Ray is asked only where Ray Train has started this
process.
"""

import re
import sys
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from ...base.errors import InvalidArgumentError, StateError

if TYPE_CHECKING:
    from ...process.group import ProcessGroup

BACKENDS = {
    "jax": ("pyreactant.arrays.runtimes.jax.backend:JaxBackend", "jax"),
    "reactant": ("pyreactant.arrays.runtimes.reactant.backend:ReactantBackend", "juliacall"),
}
"""Known runtimes: the class, imported when the runtime starts, and the package that it needs."""

PLATFORMS = ("cpu", "gpu", "tpu")

MOST_CPU_DEVICES = 4096
"""XLA starts threads for each virtual CPU device; with many more it never gets ready."""


PLATFORM, BACKEND = "PYREACTANT_PLATFORM", "PYREACTANT_BACKEND"
CPU_DEVICES = "PYREACTANT_NUM_CPU_DEVICES"
JAX_CPU_DEVICES = "JAX_NUM_CPU_DEVICES"


def check_platform(name: str, given_as: str = "platform") -> None:
    """Check the name of a platform; InvalidArgumentError has the known ones."""
    _check_known(given_as, name, PLATFORMS)


def check_backend(name: str, given_as: str = "backend") -> None:
    """Check the name of a runtime; InvalidArgumentError has the known ones."""
    _check_known(given_as, name, BACKENDS)


def check_variables(overridden: Mapping[str, object], environ: Mapping[str, str]) -> None:
    """Check the variables that choose runtime, platform and virtual CPU devices.

    Args:
        overridden: Variables that something else overrides, if its value here is not None.
        environ: The environment.

    Raises:
        InvalidArgumentError: A value is not one of the known ones, or not such a number.
    """
    from ...process.group.group import env_int  # with all launchers, which no command line needs

    for name, check in ((BACKEND, check_backend), (PLATFORM, check_platform)):
        value = environ.get(name)
        if value and overridden.get(name) is None:
            check(value, name)
    count = env_int(CPU_DEVICES, environ) if overridden.get(CPU_DEVICES) is None else None
    if count is not None and not 1 <= count <= MOST_CPU_DEVICES:
        raise InvalidArgumentError(f"{CPU_DEVICES} must be 1 to {MOST_CPU_DEVICES}, got {count}")
    of_jax = environ.get(JAX_CPU_DEVICES, "") if overridden.get(CPU_DEVICES) is None else ""
    # JAX itself refuses what is no number. -1 is its default, and with 0 it ends by SIGSEGV.
    count = int(of_jax) if re.fullmatch(r"-?\d+", of_jax) else -1
    if count != -1 and not 1 <= count <= MOST_CPU_DEVICES:
        raise InvalidArgumentError(
            f"{JAX_CPU_DEVICES} must be 1 to {MOST_CPU_DEVICES}, or -1 for JAX's own number, got "
            f"{of_jax:.80}; correct it, or unset it"
        )


def _check_known(what: str, name: str, known: Collection[str]) -> None:
    if name not in known:
        raise InvalidArgumentError(f"unknown {what} {name!r}; known are: {', '.join(known)}")


SOURCE = "Ray Train"


def train_module() -> Any:
    """The module `ray.train` if this process is a worker of Ray Train; None otherwise."""
    train = sys.modules.get("ray.train")
    if train is None:
        return None
    try:
        train.get_context().get_world_rank()
    except Exception:  # the driver, a plain task, or a part of Ray Train that has no workers
        return None
    return train


def check_workers(backend: str, group: "ProcessGroup | None") -> "ProcessGroup | None":
    """The processes of a train loop are the trainer's; elsewhere nothing changes.

    Args:
        backend: Name of the runtime that is to start.
        group: The processes of `jax.distributed`; None if the trainer did not start it.

    Raises:
        StateError: The trainer's workers are not connected, so each would run alone.
        InvalidArgumentError: The runtime cannot take over what the trainer started.
    """
    train = train_module()
    if train is None:
        return group
    context = train.get_context()
    rank, count = context.get_world_rank(), context.get_world_size()
    if backend != "jax":
        raise InvalidArgumentError(
            f"backend {backend!r} was requested in a train loop of Ray Train, whose JaxTrainer "
            "starts JAX; use backend='jax', or submit the program with pr.targets.Ray"
        )
    if count == 1:
        return group
    if group is None:
        raise StateError(
            f"this is worker {rank} of {count} of Ray Train, but its trainer did not start "
            "jax.distributed, so each worker would run alone; use JaxTrainer with "
            "ScalingConfig(use_tpu=True, topology=...) or ScalingConfig(use_gpu=True)"
        )
    from ...process.group import ProcessGroup

    return ProcessGroup(
        group.num_processes, group.process_index, group.coordinator_address, source=SOURCE
    )
