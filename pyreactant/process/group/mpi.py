"""mpirun, with or without Slurm: the variables of Open MPI, PMI (MPICH, Intel MPI) and PMIx.

First the nodes of a run, which Slurm also gives: its two compressed notations for them, node lists
and tasks per node, and which GPUs a task has there.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...base.errors import InvalidArgumentError
from ...base.facts import visible_gpus
from ...base.settings import COORDINATOR, COUNT, INDEX, LOCAL_DEVICES
from .group import (
    LaunchError,
    ProcessGroup,
    Resolution,
    defined_variables,
    env_int,
    join_address,
    local_devices,
    port_of,
    required_int,
)

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


OPEN_MPI, PMIX = "Open MPI", "PMIx"
_URI = "OMPI_MCA_orte_hnp_uri"
_OPEN_MPI_VARIABLES = (
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    _URI,
    "PMIX_NAMESPACE",
    "PMIX_HOSTNAME",
)
_PMIX_VARIABLES = (
    "PMI_SIZE",
    "PMI_RANK",
    "MPI_LOCALNRANKS",
    "MPI_LOCALRANKID",
    "PMIX_NAMESPACE",
    "PMIX_RANK",
    "PMIX_HOSTNAME",
)
# One process for each GPU of a host, so that each has its own.
_PROCESS_PER_GPU = {
    OPEN_MPI: "mpirun --map-by ppr:{gpus}:node ...",
    PMIX: "mpiexec -ppn {gpus} ...",
}


@dataclass(frozen=True, slots=True)
class World:
    """MPI_COMM_WORLD as the launcher's variables describe it; None for what they do not give."""

    name: str
    rank: int
    size: int | None
    local_rank: int | None = None
    local_size: int | None = None

    @property
    def several_hosts(self) -> bool:
        """Whether the launcher's variables show that it runs processes on other hosts too."""
        return self.local_size is not None and self.local_size != self.size


def world_of(environ: Mapping[str, str]) -> World | None:
    """MPI_COMM_WORLD before MPI_Init; None if no mpirun started this process.

    Raises:
        InvalidArgumentError: A variable is not a number, or some of the variables are missing.
    """
    if environ.get("OMPI_COMM_WORLD_SIZE"):
        return World(
            name=OPEN_MPI,
            rank=required_int("OMPI_COMM_WORLD_RANK", environ),
            size=env_int("OMPI_COMM_WORLD_SIZE", environ),
            local_rank=env_int("OMPI_COMM_WORLD_LOCAL_RANK", environ),
            local_size=env_int("OMPI_COMM_WORLD_LOCAL_SIZE", environ),
        )
    if environ.get("PMI_SIZE"):
        return World(
            name=PMIX,
            rank=required_int("PMI_RANK", environ),
            size=env_int("PMI_SIZE", environ),
            local_rank=env_int("MPI_LOCALRANKID", environ),
            local_size=env_int("MPI_LOCALNRANKS", environ),
        )
    if environ.get("PMIX_RANK") and environ.get("PMIX_NAMESPACE"):
        return World(PMIX, required_int("PMIX_RANK", environ), None)
    return None


def open_mpi(environ: Mapping[str, str]) -> Resolution:
    """Processes of Open MPI's mpirun (Open MPI FAQ, "environment variables at run time")."""
    return _resolve(OPEN_MPI, _OPEN_MPI_VARIABLES, "OMPI_COMM_WORLD_SIZE is not set", environ)


def pmix(environ: Mapping[str, str]) -> Resolution:
    """Processes of any other launcher that speaks PMI or PMIx."""
    return _resolve(PMIX, _PMIX_VARIABLES, "PMI_SIZE and PMIX_RANK are not set", environ)


def _resolve(
    name: str, variables: tuple[str, ...], absent: str, environ: Mapping[str, str]
) -> Resolution:
    by_open_mpi = bool(environ.get("OMPI_COMM_WORLD_SIZE"))
    if by_open_mpi != (name == OPEN_MPI):
        return Resolution(name, f"started by {OPEN_MPI}" if by_open_mpi else absent)
    evidence = defined_variables(variables, environ)
    try:
        world = world_of(environ)
        if world is None:
            return Resolution(name, absent)
        group, notes = _group(world, environ)
    except InvalidArgumentError as error:
        return Resolution(name, "the launch cannot work", evidence, error=error)
    return Resolution(name, f"process {world.rank} of mpirun", evidence, group, notes=notes)


def _group(world: World, environ: Mapping[str, str]) -> tuple[ProcessGroup, tuple[str, ...]]:
    if world.size is None:
        raise LaunchError(
            f"PMIX_RANK={world.rank} is the index of this process, but PMIx does not give the "
            "number of processes; give it, and the host of process 0, with",
            f"prterun -n <count> bash -c '{COUNT}=<count> {INDEX}=$PMIX_RANK "
            f'{COORDINATOR}=<host of rank 0>:<port> exec "$0" "$@"\' ...',
        )
    namespace = environ.get("PMIX_NAMESPACE") if world.name == OPEN_MPI else None
    run_id = f"{world.name} {namespace}" if namespace else None
    local, notes = _local_devices(world, environ)
    address, hosts = None, None
    if world.size > 1:
        address, more = _coordinator(world, run_id, environ)
        notes += more
        host = environ.get("PMIX_HOSTNAME")
        hosts = (host,) * world.size if host and world.local_size == world.size else None
    group = ProcessGroup(
        world.size,
        world.rank,
        address,
        local_device_ids=local,
        source=world.name,
        run_id=run_id,
        hosts=hosts,
    )
    return group, notes


def _local_devices(world: World, environ: Mapping[str, str]) -> Assignment:
    tasks = world.local_size or 1
    own, notes = assign(
        environ,
        tasks,
        world.local_rank or 0,
        bound=False,
        command=_PROCESS_PER_GPU[world.name],
    )
    unknown = own is None and gpus_of_task(environ) is None
    if tasks > 1 and unknown and environ.get("PYREACTANT_PLATFORM") != "cpu":
        notes += (
            f"CUDA_VISIBLE_DEVICES is not set: if this host has GPUs, each of the {tasks} "
            "processes on it takes all of them",
        )
    return own, notes


def _coordinator(
    world: World, run_id: str | None, environ: Mapping[str, str]
) -> tuple[str, tuple[str, ...]]:
    """The coordinator's address, on the host of rank 0, and notes.

    If no variable gives the address, that host is this one if all processes are here, otherwise
    the Slurm job's first node, otherwise the host where mpirun runs.
    """
    given = environ.get(COORDINATOR)
    if given:
        return given, ()
    port = port_of(run_id or world.name)
    if world.local_size == world.size:
        return join_address("127.0.0.1", port), ()
    value = f"<host of rank 0>:{port}"
    command = (
        f"mpirun -x {COORDINATOR}={value} ..."
        if world.name == OPEN_MPI
        else f"mpiexec -genv {COORDINATOR} {value} ..."
    )
    nodes = environ.get("SLURM_JOB_NODELIST")
    if nodes:
        try:
            first = host_names(nodes, None, environ)[0]
        except InvalidArgumentError as error:
            raise LaunchError(f"{error}; give the host of rank 0 with", command) from None
        return join_address(first, port), (f"the Slurm job's first node, {first}, has rank 0",)
    # "1915224064.0;tcp://192.0.2.2,198.51.100.2:43903;tcp6://[fd00::2]:36199"
    uri = re.search(r"tcp://([^,:;/\s]+)|tcp6://\[([^],\s]+)", environ.get(_URI, ""))
    if uri:
        host = uri[1] or uri[2]
        return join_address(host, port), (
            f"mpirun runs on {host}, which is assumed to be the host of rank 0; if it is not, use "
            f"{command}",
        )
    raise LaunchError(
        f"{world.name} started {world.size} processes on several hosts, but no variable gives the "
        "host of rank 0; give it with",
        command,
    )
