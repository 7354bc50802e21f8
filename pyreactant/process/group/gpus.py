"""The GPUs of one task of a machine, by the variables of Slurm and CUDA."""

from collections.abc import Mapping

from ...base.errors import InvalidArgumentError
from ...base.facts import visible_gpus
from ...base.settings import LOCAL_DEVICES
from .group import LaunchError, env_int, local_devices

VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "SLURM_GPUS_ON_NODE",
    "SLURM_STEP_GPUS",
    "SLURM_GPUS_PER_TASK",
    "SLURM_NTASKS_PER_GPU",
    "SLURM_TRES_PER_TASK",
    "SLURM_GPU_BIND",
    "SLURMD_TRES_BIND",
    LOCAL_DEVICES,
)
"""The variables that decide, for `pyreactant explain`."""

Assignment = tuple[tuple[int, ...] | None, tuple[str, ...]]
"""A process's own GPUs (None: all that it sees), and notes for its user."""


def assign(
    environ: Mapping[str, str], tasks: int, local_index: int, *, bound: bool, command: str
) -> Assignment:
    """The GPUs of one task of a machine.

    Args:
        environ: The task's environment.
        tasks: The number of the run's tasks on this machine.
        local_index: The index of this task among them, from 0.
        bound: Whether the launcher gives each task GPUs of its own.
        command: The command to suggest if the tasks cannot share the GPUs equally; ``{gpus}`` is
            replaced by their number.

    Raises:
        InvalidArgumentError: The tasks see the same GPUs and cannot share them equally.
    """
    named = local_devices(environ)
    if named is not None:
        return named, ()
    gpus = gpus_of_task(environ)
    if not gpus or environ.get("PYREACTANT_PLATFORM") == "cpu":
        return None, ()
    if tasks == 1:
        note = f"the one task on this node drives all {gpus} GPUs that it sees"
        return None, (note,) if gpus > 1 else ()
    # A single visible GPU is the task's own, unless it is the only one of the node.
    if bound or (gpus == 1 and env_int("SLURM_GPUS_ON_NODE", environ) != 1):
        return None, ()
    if not 0 <= local_index < tasks:
        raise InvalidArgumentError(
            f"the task's index on its node must be from 0 to {tasks - 1}, got {local_index}"
        )
    if gpus % tasks:
        raise LaunchError(
            f"{tasks} tasks on this node see the same {gpus} GPU{'s' if gpus > 1 else ''}, which "
            f"cannot be shared out equally (PYREACTANT_PLATFORM=cpu uses none, {LOCAL_DEVICES} "
            "names each task's own); give each task GPUs of its own with",
            command.format(gpus=gpus),
        )
    each = gpus // tasks
    own = tuple(range(local_index * each, (local_index + 1) * each))
    return own, (
        f"{tasks} tasks on this node see the same {gpus} GPUs; this one takes "
        f"{', '.join(map(str, own))} of them",
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


def slurm_binds(environ: Mapping[str, str]) -> bool:
    """Whether Slurm gives each task GPUs of its own.

    A task sees ``--gpu-bind`` as SLURM_GPU_BIND if sbatch or salloc got the option, and as
    SLURMD_TRES_BIND ("gpu:single:1") if srun got it (seen with Slurm 22.05).
    """
    binds = [environ.get(n, "") for n in ("SLURM_GPU_BIND", "SLURM_TRES_BIND", "SLURMD_TRES_BIND")]
    if any("none" in bind for bind in binds):
        return False
    return bool(
        any(binds)
        or environ.get("SLURM_GPUS_PER_TASK")
        or environ.get("SLURM_NTASKS_PER_GPU")
        or "gpu" in environ.get("SLURM_TRES_PER_TASK", "")
    )
