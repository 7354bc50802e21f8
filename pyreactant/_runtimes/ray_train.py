"""Inside a train loop of Ray Train: its workers, and preemption.

Ray is asked only where Ray Train has started this process; nothing here imports it otherwise.
"""

import sys
from typing import Any

from .._errors import InvalidArgumentError, StateError
from ..process_group import ProcessGroup

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


def check_workers(backend: str, group: ProcessGroup | None) -> ProcessGroup | None:
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
    return ProcessGroup(
        group.num_processes, group.process_index, group.coordinator_address, source=SOURCE
    )


def reached_preemption() -> bool | None:
    """Whether a node of the train loop is about to be preempted; None outside. Collective."""
    train = train_module()
    return None if train is None else train.get_preemption_info() is not None
