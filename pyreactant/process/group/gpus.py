"""The GPUs of one task of a machine, by the variables of Slurm and CUDA."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from ...base.counted import counted
from ...base.errors import InvalidArgumentError
from ...base.facts import VISIBLE_GPUS, visible_gpus
from ...base.settings import LOCAL_DEVICES
from .group import LaunchError, assignments, defined_variables, env_int, local_devices

_BINDS = ("SLURM_GPU_BIND", "SLURM_TRES_BIND", "SLURMD_TRES_BIND")
VARIABLES = (
    *VISIBLE_GPUS,
    "SLURM_GPUS_ON_NODE",
    "SLURM_STEP_GPUS",
    "SLURM_GPUS_PER_TASK",
    "SLURM_NTASKS_PER_GPU",
    "SLURM_TRES_PER_TASK",
    *_BINDS,
    LOCAL_DEVICES,
)
"""The variables that decide, for `pyreactant explain`."""


class Assignment(NamedTuple):
    """The GPUs of a process.

    Attributes:
        own: Its GPUs, by their positions among those that it sees; None for all of these.
        notes: What its user should know.
    """

    own: tuple[int, ...] | None
    notes: tuple[str, ...] = ()


_ALL = Assignment(None)


def assign(
    environ: Mapping[str, str],
    tasks: int,
    local_index: int,
    *,
    command: str,
    given: int | None = None,
    bound: bool = False,
) -> Assignment:
    """The GPUs of one task of a machine.

    Args:
        environ: The task's environment.
        tasks: The number of the run's tasks on this machine.
        local_index: The index of this task among them, from 0.
        command: The command to suggest if the tasks cannot share the GPUs equally; ``{gpus}`` is
            replaced by their number.
        given: How many GPUs the launcher gives each task as its own; None if it does not say.
        bound: Whether the launcher gives each task GPUs of its own, however many.

    Raises:
        InvalidArgumentError: The tasks see the same GPUs and cannot share them equally, or this one
            sees more GPUs than the launcher gave it.
    """
    named = local_devices(environ)
    if named is not None:
        return Assignment(named)
    gpus, visible = gpus_of_task(environ), visible_gpus(environ)
    if not gpus or environ.get("PYREACTANT_PLATFORM") == "cpu":
        return _ALL
    if tasks == 1:
        note = f"the one task on this node drives all {gpus} GPUs that it sees"
        return Assignment(None, (note,) if gpus > 1 else ())
    on_node = env_int("SLURM_GPUS_ON_NODE", environ)
    if given is not None or bound:
        if visible is None or (given is not None and visible <= given):
            return _ALL
        if given is not None:
            raise _too_many(environ, tasks, visible, f"Slurm gives each of them {given}")
        if on_node is None or visible * tasks <= on_node:
            return _ALL
        if visible != on_node:
            raise _too_many(environ, tasks, visible, f"the node has {on_node} for all of them")
    # A single visible GPU is the task's own, unless it is the only one of the node.
    elif gpus == 1 and on_node != 1:
        return _ALL
    return _shared(gpus, tasks, local_index, command)


def _shared(gpus: int, tasks: int, local_index: int, command: str) -> Assignment:
    """An equal part of GPUs that all tasks see."""
    if not 0 <= local_index < tasks:
        raise InvalidArgumentError(
            f"the task's index on its node must be from 0 to {tasks - 1}, got {local_index}"
        )
    if gpus % tasks:
        raise LaunchError(
            f"{tasks} tasks on this node see the same {counted(gpus, 'GPU')}, which "
            f"cannot be shared out equally (PYREACTANT_PLATFORM=cpu uses none, {LOCAL_DEVICES} "
            "names each task's own); give each task GPUs of its own with",
            command.format(gpus=gpus),
        )
    each = gpus // tasks
    own = tuple(range(local_index * each, (local_index + 1) * each))
    note = (
        f"{tasks} tasks on this node see the same {gpus} GPUs; this one takes "
        f"{', '.join(map(str, own))} of them"
    )
    return Assignment(own, (note,))


def _too_many(environ: Mapping[str, str], tasks: int, visible: int, limit: str) -> LaunchError:
    shown = assignments(defined_variables(VISIBLE_GPUS, environ))
    return LaunchError(
        f"each of the {tasks} tasks on this node must see GPUs of its own, but this one sees "
        f"{visible} ({shown}), and {limit}; leave that variable to Slurm, or name each task's GPUs "
        "with",
        f'srun bash -c \'{LOCAL_DEVICES}=$SLURM_LOCALID exec "$0" "$@"\' ...',
    )


def gpus_of_task(environ: Mapping[str, str]) -> int | None:
    """The number of GPUs that this task sees; None if no variable gives it.

    If none hides any, they are the GPUs that Slurm gave to the step on this node (srun(1), OUTPUT
    ENVIRONMENT VARIABLES).
    """
    visible = visible_gpus(environ)
    if visible is not None:
        return visible
    on_node = env_int("SLURM_GPUS_ON_NODE", environ)
    if on_node is not None:
        return on_node
    step = environ.get("SLURM_STEP_GPUS")
    return len(step.split(",")) if step else None


def slurm_gives(environ: Mapping[str, str]) -> tuple[int | None, bool]:
    """How many GPUs of its own Slurm gives each task, if it says so; and whether it gives any.

    A task sees ``--gpu-bind`` as SLURM_GPU_BIND if sbatch or salloc got the option, and as
    SLURMD_TRES_BIND ("gpu:single:1") if srun got it (seen with Slurm 22.05).
    """
    binds = ",".join(environ.get(name, "") for name in _BINDS).strip(",")
    if "none" in binds:
        return None, False
    per_task, tres = environ.get("SLURM_GPUS_PER_TASK"), environ.get("SLURM_TRES_PER_TASK", "")
    if exact := re.search(r"per_task:(\d+)", binds):
        return int(exact[1]), True
    if "single:" in binds or "map_gpu:" in binds:
        return 1, True
    if per_task:  # such as "2", or "a100:1,v100:1"
        numbers = [part.rpartition(":")[2] for part in per_task.split(",")]
        return (sum(map(int, numbers)) if all(map(str.isdecimal, numbers)) else None), True
    if "gpu" in tres:  # such as "cpu=4,gres/gpu:a100=2"
        number = re.search(r"gpu\b[^,]*?[:=](\d+)(?:,|$)", tres)
        return int(number[1]) if number else 1, True
    if environ.get("SLURM_NTASKS_PER_GPU"):
        return 1, True
    return None, bool(binds)
