"""mpirun: Open MPI's own variables, PMI's (MPICH, Intel MPI), and what PMIx leaves out."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from .._errors import InvalidArgumentError
from . import _gpus
from ._environment import COORDINATOR, COUNT, INDEX, Finding, Trap, env_int, required_int, seen
from ._group import ProcessGroup, join_address, port_of
from ._slurm_nodes import host_names

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
# With a process for each GPU of a host, each takes its own.
_FOR_EACH_GPU = {OPEN_MPI: "mpirun --map-by ppr:{gpus}:node ...", PMIX: "mpiexec -ppn {gpus} ..."}


@dataclass(frozen=True, slots=True)
class World:
    """What mpirun says of this process; None where it does not say it."""

    name: str
    rank: int
    size: int | None
    local_rank: int | None = None
    local_size: int | None = None

    @property
    def several_hosts(self) -> bool:
        """Whether mpirun says that its processes are on more hosts than this one."""
        return self.local_size is not None and self.local_size != self.size


def world(environ: Mapping[str, str]) -> World | None:
    """MPI_COMM_WORLD before MPI_Init; None where no mpirun started this process.

    Raises:
        InvalidArgumentError: A variable is no number, or a part of them is missing.
    """
    if environ.get("OMPI_COMM_WORLD_SIZE"):
        return World(
            OPEN_MPI,
            required_int("OMPI_COMM_WORLD_RANK", environ),
            env_int("OMPI_COMM_WORLD_SIZE", environ),
            env_int("OMPI_COMM_WORLD_LOCAL_RANK", environ),
            env_int("OMPI_COMM_WORLD_LOCAL_SIZE", environ),
        )
    if environ.get("PMI_SIZE"):
        return World(
            PMIX,
            required_int("PMI_RANK", environ),
            env_int("PMI_SIZE", environ),
            env_int("MPI_LOCALRANKID", environ),
            env_int("MPI_LOCALNRANKS", environ),
        )
    if environ.get("PMIX_RANK") and environ.get("PMIX_NAMESPACE"):
        return World(PMIX, required_int("PMIX_RANK", environ), None)
    return None


def open_mpi(environ: Mapping[str, str]) -> Finding:
    """Processes of Open MPI's mpirun, from its FAQ, "environment variables at run time"."""
    return _find(OPEN_MPI, _OPEN_MPI_VARIABLES, "OMPI_COMM_WORLD_SIZE is not set", environ)


def pmix(environ: Mapping[str, str]) -> Finding:
    """Processes of any other launcher that speaks PMI or PMIx."""
    return _find(PMIX, _PMIX_VARIABLES, "PMI_SIZE and PMIX_RANK are not set", environ)


def _find(
    name: str, variables: tuple[str, ...], absent: str, environ: Mapping[str, str]
) -> Finding:
    by_open_mpi = bool(environ.get("OMPI_COMM_WORLD_SIZE"))
    if by_open_mpi != (name == OPEN_MPI):
        return Finding(name, f"started by {OPEN_MPI}" if by_open_mpi else absent)
    saw = seen(variables, environ)
    try:
        found = world(environ)
        if found is None:
            return Finding(name, absent)
        group, notes = _group(found, environ)
    except InvalidArgumentError as trap:
        return Finding(name, "the launch cannot work", saw, trap=trap)
    return Finding(name, f"process {found.rank} of mpirun", saw, group, notes=notes)


def _group(found: World, environ: Mapping[str, str]) -> tuple[ProcessGroup, tuple[str, ...]]:
    if found.size is None:
        raise Trap(
            f"PMIX_RANK={found.rank} says which process this is, but PMIx does not say of how many;"
            " say it, and where process 0 is, with",
            f"prterun -n <count> bash -c '{COUNT}=<count> {INDEX}=$PMIX_RANK "
            f'{COORDINATOR}=<host of rank 0>:<port> exec "$0" "$@"\' ...',
        )
    namespace = environ.get("PMIX_NAMESPACE") if found.name == OPEN_MPI else None
    run_id = f"{found.name} {namespace}" if namespace else None
    local, notes = _local_devices(found, environ)
    if found.size == 1:
        return ProcessGroup(1, found.rank, None, local, found.name, run_id), notes
    said = environ.get(COORDINATOR)
    address, more = (said, ()) if said else _address(found, run_id, environ)
    here = environ.get("PMIX_HOSTNAME")
    hosts = (here,) * found.size if here and found.local_size == found.size else None
    group = ProcessGroup(found.size, found.rank, address, local, found.name, run_id, hosts)
    return group, notes + more


def _local_devices(found: World, environ: Mapping[str, str]) -> _gpus.Share:
    tasks = found.local_size or 1
    own, notes = _gpus.share(
        environ, tasks, found.local_rank or 0, bound=False, command=_FOR_EACH_GPU[found.name]
    )
    unsaid = own is None and _gpus.visible_gpus(environ) is None
    if tasks > 1 and unsaid and environ.get("PYREACTANT_PLATFORM") != "cpu":
        notes += (
            f"CUDA_VISIBLE_DEVICES is not set: if this host has GPUs, each of the {tasks} "
            "processes on it takes all of them",
        )
    return own, notes


def _address(
    found: World, run_id: str | None, environ: Mapping[str, str]
) -> tuple[str, tuple[str, ...]]:
    """Where rank 0 is: here if all are, else the job's first node, else where mpirun runs."""
    port = port_of(run_id or found.name)
    if found.local_size == found.size:
        return join_address("127.0.0.1", port), ()
    value = f"<host of rank 0>:{port}"
    line = (
        f"mpirun -x {COORDINATOR}={value} ..."
        if found.name == OPEN_MPI
        else f"mpiexec -genv {COORDINATOR} {value} ..."
    )
    nodes = environ.get("SLURM_JOB_NODELIST")
    if nodes:
        try:
            first = host_names(nodes, None, environ)[0]
        except InvalidArgumentError as error:
            raise Trap(f"{error}; say where rank 0 is with", line) from None
        return join_address(first, port), (f"the Slurm job's first node, {first}, has rank 0",)
    # "1915224064.0;tcp://192.0.2.2,198.51.100.2:43903;tcp6://[fd00::2]:36199"
    uri = re.search(r"tcp://([^,:;/\s]+)|tcp6://\[([^],\s]+)", environ.get(_URI, ""))
    if uri:
        host = uri[1] or uri[2]
        return join_address(host, port), (
            f"mpirun runs at {host}, which is taken for the host of rank 0; if it is not, use "
            f"{line}",
        )
    raise Trap(
        f"{found.name} started {found.size} processes on several hosts, but nothing says where "
        "rank 0 is; say it with",
        line,
    )
