"""The nodes of a run: Slurm's two compressed notations for them, and which GPUs a task has there.

The notations are node lists and tasks per node.
"""

import os
import re
from collections.abc import Mapping, Sequence

from .._errors import InvalidArgumentError
from ._environment import LOCAL_DEVICES, LaunchError, env_int, local_devices

_TIMEOUT = 10
_MAX_TASKS = 10_000_000  # more than any machine has, few enough to list
_NODE_LIST = re.compile(r"[A-Za-z0-9_.:][A-Za-z0-9_.:\[\],-]*")
_HOST = re.compile(r"[A-Za-z0-9_.:][A-Za-z0-9_.:-]*")
_COUNT = re.compile(r"([0-9]{1,9})(?:\(x([0-9]{1,9})\))?")


def host_names(nodes: str, expected: int | None, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The host names of a node list, such as "rack[1-2]node[01-04],login".

    Slurm itself expands it, because the notation differs between its versions. ``scontrol show
    hostnames`` needs slurm.conf but does not ask the controller. It silently expands "n[07" to
    "n]", hence `expected` (both seen with Slurm 22.05).

    Args:
        nodes: The node list.
        expected: The number of hosts that the list must name; None if unknown.
        environ: Variables such as ``PATH`` and ``SLURM_CONF``, before those of this process.

    Raises:
        InvalidArgumentError: The text is not a node list, or scontrol is absent or fails.
    """
    # scontrol takes a leading "-" for an option and a leading "/" for a file.
    if not _NODE_LIST.fullmatch(nodes):
        raise InvalidArgumentError(
            f"a Slurm node list must look like 'n[1-4],login', got {nodes!r}"
        )
    names = _expanded(nodes, environ) if "[" in nodes or "]" in nodes else nodes.split(",")
    if not all(_HOST.fullmatch(name) for name in names) or len(names) != (expected or len(names)):
        required = "host names" if expected is None else f"{expected} host names"
        raise InvalidArgumentError(
            f"Slurm's node list {nodes!r} must have {required}, got {', '.join(names) or 'none'}"
        )
    return tuple(names)


def _expanded(nodes: str, environ: Mapping[str, str]) -> Sequence[str]:
    import subprocess

    try:
        ran = subprocess.run(  # noqa: S603 - the list is checked above
            ["scontrol", "show", "hostnames", nodes],  # noqa: S607
            env={**os.environ, **environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT,
            check=False,
        )
    except OSError as error:
        problem = f"could not be started ({error.strerror or error})"
    except subprocess.TimeoutExpired:
        problem = f"did not end within {_TIMEOUT} s"
    else:
        # Slurm 22.05 ends with 0 even if it refuses the list.
        if ran.returncode == 0 and ran.stdout.strip():
            return ran.stdout.split()
        printed = ran.stderr.strip().splitlines() or ["nothing"]
        problem = f"ended with code {ran.returncode} and printed: {printed[-1]}"
    raise InvalidArgumentError(f"the node list {nodes!r} needs Slurm's scontrol, which {problem}")


def tasks_per_node(text: str) -> tuple[int, ...]:
    """The number of tasks of each node, from "2(x3),1" (srun(1), SLURM_TASKS_PER_NODE).

    Raises:
        InvalidArgumentError: The text has another form.
    """
    counts: list[int] = []
    left = _MAX_TASKS
    for part in text.split(","):
        match = _COUNT.fullmatch(part)
        tasks, repeated = (int(match[1]), int(match[2] or 1)) if match else (0, 0)
        left -= tasks * repeated
        if tasks < 1 or repeated < 1 or left < 0:
            raise InvalidArgumentError(
                f"Slurm's tasks per node must look like '2(x3),1', got {text!r}"
            )
        counts += [tasks] * repeated
    return tuple(counts)


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
    gpus = visible_gpus(environ)
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


def visible_gpus(environ: Mapping[str, str]) -> int | None:
    """The number of GPUs that this task sees; None if no variable gives it.

    CUDA counts the entries before the first invalid one, so "0,1" is two GPUs and "-1" is none
    (CUDA C++ Programming Guide, "CUDA Environment Variables"). Without CUDA_VISIBLE_DEVICES they
    are the GPUs that Slurm gave to the step on this node (srun(1), OUTPUT ENVIRONMENT VARIABLES).
    """
    cuda = environ.get("CUDA_VISIBLE_DEVICES")
    if cuda is not None:
        count = 0
        for entry in cuda.split(","):
            if not entry.strip() or entry.strip() in ("-1", "NoDevFiles"):
                break
            count += 1
        return count
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
