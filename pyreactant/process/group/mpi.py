"""mpirun, with or without Slurm: the variables of Open MPI, PMI (MPICH, Intel MPI) and PMIx."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ...base.errors import InvalidArgumentError
from ...base.settings import COORDINATOR, COUNT, INDEX
from .gpus import Assignment, assign, gpus_of_task
from .group import (
    LaunchError,
    ProcessGroup,
    Resolution,
    check_rank,
    defined_variables,
    env_int,
    join_address,
    loopback_address,
    port_of,
    required_int,
)
from .nodes import host_names

OPEN_MPI, PMIX = "Open MPI", "PMIx"
_URI = "OMPI_MCA_orte_hnp_uri"
_NUMBERS = {
    OPEN_MPI: (
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
    ),
    PMIX: ("PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"),
}
"""The variables of size and rank, of all processes and of those of this host."""
_OPEN_MPI_VARIABLES = (*_NUMBERS[OPEN_MPI], _URI, "PMIX_NAMESPACE", "PMIX_HOSTNAME")
_PMIX_VARIABLES = (*_NUMBERS[PMIX], "PMIX_NAMESPACE", "PMIX_RANK", "PMIX_HOSTNAME")
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
        InvalidArgumentError: A variable is not a number, some of the variables are missing, or
            those of two launchers contradict each other.
    """
    for name, (size, rank, local_size, local_rank) in _NUMBERS.items():
        if environ.get(size):
            if name == OPEN_MPI:
                _check_pmi(environ)
            return World(
                name,
                rank=required_int(rank, environ),
                size=env_int(size, environ),
                local_rank=env_int(local_rank, environ),
                local_size=env_int(local_size, environ),
            )
    if environ.get("PMIX_RANK") and environ.get("PMIX_NAMESPACE"):
        return World(PMIX, required_int("PMIX_RANK", environ), None)
    return None


def _check_pmi(environ: Mapping[str, str]) -> None:
    """Check that the variables of PMI and PMIx number this process as Open MPI's do.

    Those of ``srun --mpi=pmi2`` say no more than Slurm's own, which are compared with mpirun's.
    """
    size = environ.get("SLURM_STEP_NUM_TASKS"), environ.get("SLURM_PROCID")
    of_srun = None not in size and size == (environ.get("PMI_SIZE"), environ.get("PMI_RANK"))
    pmi = (("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"), ("OMPI_COMM_WORLD_RANK", "PMI_RANK"))
    for ours, other in (*(() if of_srun else pmi), ("OMPI_COMM_WORLD_RANK", "PMIX_RANK")):
        number, theirs = env_int(ours, environ), env_int(other, environ)
        if theirs is not None and number is not None and number != theirs:
            raise InvalidArgumentError(
                f"{ours}={number} contradicts {other}={theirs}: two launchers started this "
                f"process, one inside the other; unset the variables of one, or set {COUNT}, "
                f"{INDEX} and {COORDINATOR}, which decide"
            )


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
    size, rank, local_size, local_rank = _NUMBERS[world.name]
    check_rank(size, world.size, rank, world.rank)
    if world.local_size is not None:
        if not 1 <= world.local_size <= world.size:
            raise InvalidArgumentError(
                f"{local_size} must be from 1 to {world.size}, the number of all processes, got "
                f"{world.local_size}"
            )
        check_rank(local_size, world.local_size, local_rank, world.local_rank or 0)
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
        command=_PROCESS_PER_GPU[world.name],
    )
    unknown = own is None and gpus_of_task(environ) is None
    if tasks > 1 and unknown and environ.get("PYREACTANT_PLATFORM") != "cpu":
        notes += (
            f"CUDA_VISIBLE_DEVICES is not set: if this host has GPUs, each of the {tasks} "
            "processes on it takes all of them",
        )
    return Assignment(own, notes)


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
        return loopback_address(port), ()
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
        f"{world.name} started {world.size} processes, perhaps on several hosts, and no variable "
        "gives the host of rank 0; give it with",
        command,
    )
