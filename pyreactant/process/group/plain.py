"""Launchers that number the processes of a run in plain variables: one row for each.

A row with an address resolves its processes. The others are refused: without the host of process 0
nothing could be resolved, and the process must not run alone while its launcher started several.
A number of processes above 1, an index above 0, or a list of several hosts says that there are
several; so does what is left of the variables of a launcher that has a resolver of its own.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...base.errors import InvalidArgumentError
from ...base.settings import COORDINATOR, COUNT, INDEX
from .group import (
    ProcessGroup,
    Resolution,
    assignments,
    check_rank,
    defined_variables,
    env_int,
    join_address,
    local_devices,
    port_of,
    required,
    required_int,
)

NAME = "other launchers"


@dataclass(frozen=True, slots=True)
class Launcher:
    """A launcher, and its variables.

    Attributes:
        name: The launcher.
        counts: Variables with numbers of processes or of nodes, separated by spaces. The first is
            the number of the run's processes.
        indexes: Variables with indexes from 0. The first is this process's index.
        lists: Variables with hosts, separated by commas or spaces.
        address: The variables of the address of process 0; "" if the process is refused.
        address_of: Their meaning: "host:port".
        common: Whether other programs use the names, so that they may have any value.
    """

    name: str
    counts: str = ""
    indexes: str = ""
    lists: str = ""
    address: str = ""
    address_of: Callable[[Mapping[str, str]], str] | None = None
    common: bool = False

    @property
    def variables(self) -> tuple[str, ...]:
        """All that it sets, as far as we read it."""
        return tuple(" ".join((self.counts, self.indexes, self.lists, self.address)).split())

    def says_several(self, environ: Mapping[str, str]) -> bool:
        """Whether its variables say that this process is one of several.

        Raises:
            InvalidArgumentError: A variable that only this launcher has is not a number.
        """
        return (
            any(self._number(name, environ) > 1 for name in self.counts.split())
            or any(self._number(name, environ) > 0 for name in self.indexes.split())
            or any(len(_hosts(name, environ)) > 1 for name in self.lists.split())
        )

    def _number(self, name: str, environ: Mapping[str, str]) -> int:
        if name == _BOUNDS:
            return _product(environ.get(name, ""))
        try:
            if self.common:  # torchrun's 2:4 means from two to four
                environ = {name: environ.get(name, "").partition(":")[0]}
            number = env_int(name, environ) or 0
        except InvalidArgumentError:
            if self.common:
                return 0
            raise
        if number < 0 and not self.common:
            raise InvalidArgumentError(f"{name} must be a whole number from 0, got {number}")
        return number


_BOUNDS, _TF = "TPU_PROCESS_BOUNDS", "TF_CONFIG"


def _product(text: str) -> int:
    """The number of processes in the bounds 2,1,1; 0 if it is no such text."""
    try:
        return math.prod(map(int, text.split(",")))
    except ValueError:
        return 0


def _hosts(name: str, environ: Mapping[str, str]) -> set[str]:
    """The hosts that a variable lists."""
    text = environ.get(name, "")
    if name != _TF:
        return {*text.replace(",", " ").split()}
    try:
        cluster = json.loads(text)["cluster"]
        return {f"{task} {host}" for task, hosts in cluster.items() for host in hosts}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return set()


def _host_and_port(host: str, port: str) -> Callable[[Mapping[str, str]], str]:
    """The address in `host`, whose port may be in a variable of its own."""

    def address(environ: Mapping[str, str]) -> str:
        given = required(host, environ)
        has_port = given.rpartition(":")[2].isdecimal() and (given.count(":") == 1 or "]" in given)
        if not has_port and ":" in given and not given.startswith("[") and not environ.get(port):
            raise InvalidArgumentError(
                f"{host} must have the form host:port or [IPv6]:port, got {given!r}; put an IPv6 "
                "address in brackets"
            )
        return given if has_port else join_address(given, required_int(port, environ))

    return address


def _first_node(environ: Mapping[str, str]) -> str:
    return join_address(required(_NODES, environ).split()[0], port_of("SkyPilot"))


_NODES = "SKYPILOT_NODE_IPS"
_JAX = ("JAX_COORDINATOR_ADDRESS", "JAX_COORDINATOR_PORT")
_JAXJOB = ("COORDINATOR_ADDRESS", "COORDINATOR_PORT")

LAUNCHERS = (
    Launcher(
        "JAX_*",
        "JAX_NUM_PROCESSES",
        "JAX_PROCESS_ID",
        address=" ".join(_JAX),
        address_of=_host_and_port(*_JAX),
    ),
    Launcher(
        "JAXJob",
        "NUM_PROCESSES",
        "PROCESS_ID",
        address=" ".join(_JAXJOB),
        address_of=_host_and_port(*_JAXJOB),
        common=True,
    ),
    Launcher(
        "SkyPilot",
        "SKYPILOT_NUM_NODES",
        "SKYPILOT_NODE_RANK",
        lists=_NODES,
        address_of=_first_node,
    ),
    Launcher(
        "torchrun",
        "WORLD_SIZE GROUP_WORLD_SIZE LOCAL_WORLD_SIZE",
        "RANK GROUP_RANK LOCAL_RANK",
        common=True,
    ),
    Launcher("torchrun's agent", "PET_NNODES PET_NPROC_PER_NODE", "PET_NODE_RANK", common=True),
    Launcher("xpk", "NNODES", "NODE_RANK", common=True),
    Launcher("Flux", "FLUX_JOB_SIZE FLUX_JOB_NNODES", "FLUX_TASK_RANK FLUX_TASK_LOCAL_ID"),
    Launcher("jsrun", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK JSM_NAMESPACE_LOCAL_RANK"),
    Launcher("LSF", "LSF_PM_TASKID", lists="LSB_HOSTS"),
    Launcher(
        "MVAPICH",
        "MV2_COMM_WORLD_SIZE MV2_COMM_WORLD_LOCAL_SIZE",
        "MV2_COMM_WORLD_RANK MV2_COMM_WORLD_LOCAL_RANK",
    ),
    Launcher("Horovod", "HOROVOD_SIZE HOROVOD_LOCAL_SIZE", "HOROVOD_RANK HOROVOD_LOCAL_RANK"),
    Launcher("LeaderWorkerSet", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX"),
    Launcher("AWS Batch", "AWS_BATCH_JOB_NUM_NODES", "AWS_BATCH_JOB_NODE_INDEX"),
    Launcher("MaxText", "JAX_PROCESS_COUNT"),
    Launcher("PALS", "PALS_LOCAL_SIZE", "PALS_RANKID PALS_NODEID PALS_LOCAL_RANKID"),
    Launcher("ALPS", "", "ALPS_APP_PE"),
    Launcher("PBS", "PBS_NUM_NODES PBS_TASKNUM", "PBS_NODENUM PBS_VNODENUM"),
    Launcher("Volcano", "VC_WORKER_NUM", "VC_TASK_INDEX VK_TASK_INDEX"),
    Launcher("SageMaker", lists="SM_HOSTS"),
    Launcher("TensorFlow", lists=_TF),
    Launcher("DMLC", "DMLC_NUM_WORKER", "DMLC_WORKER_ID", common=True),
    Launcher("mpirun_rsh", "MPIRUN_NPROCS", "MPIRUN_RANK"),
    Launcher(
        "Cloud TPU",
        f"MEGASCALE_NUM_SLICES {_BOUNDS}",
        "TPU_WORKER_ID CLOUD_TPU_TASK_ID MEGASCALE_SLICE_ID",
        lists="TPU_WORKER_HOSTNAMES TPU_PROCESS_ADDRESSES",
    ),
    Launcher(
        "Open MPI",
        "OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_SIZE",
        "OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_LOCAL_RANK",
    ),
    Launcher("PMI", "PMI_SIZE MPI_LOCALNRANKS", "PMI_RANK PMI_ID MPI_LOCALRANKID PMIX_RANK"),
)
"""Who sets what: Kubeflow's trainer sets ``JAX_*``, its training operator those of a JAXJob."""


def plain(environ: Mapping[str, str]) -> Resolution:
    """The first launcher of the table that says that there are several processes."""
    for launcher in LAUNCHERS:
        evidence = defined_variables(launcher.variables, environ)
        try:
            if not launcher.says_several(environ):
                continue
            group = _group(launcher, environ)
        except InvalidArgumentError as error:
            return Resolution(NAME, f"{launcher.name}: not resolved", evidence, error=error)
        return Resolution(NAME, f"{launcher.name} started this process", evidence, group)
    return Resolution(NAME, "no variable of theirs says that there are several processes")


def refuse_to_run_alone(resolution: Resolution, environ: Mapping[str, str]) -> Resolution:
    """The resolution, or its refusal: it says one process, but another launcher says several.

    Such as the pods of a Kubeflow TrainJob that each see a whole slice of one host.
    """
    group = resolution.group
    if group is None or group.num_processes > 1:
        return resolution
    other = plain(environ)
    if not other.applies:
        return resolution
    said = assignments(other.evidence)
    error = InvalidArgumentError(
        f"{resolution.name} says that this process is the only one, but {said} says that it is one "
        f"of several; set {COUNT}, {INDEX} and {COORDINATOR} to decide, or {COUNT}=1 to run alone"
    )
    reason = "another launcher says that there are several processes"
    evidence = {**resolution.evidence, **other.evidence}
    return Resolution(resolution.name, reason, evidence, error=error)


def _group(launcher: Launcher, environ: Mapping[str, str]) -> ProcessGroup:
    if launcher.address_of is None:
        raise _refusal(launcher, environ)
    count, index = (required_int(name, environ) for name in (launcher.counts, launcher.indexes))
    check_rank(launcher.counts, count, launcher.indexes, index)
    return ProcessGroup(
        count,
        index,
        environ.get(COORDINATOR) or launcher.address_of(environ),
        local_device_ids=local_devices(environ),
        source=launcher.name,
    )


def _refusal(launcher: Launcher, environ: Mapping[str, str]) -> InvalidArgumentError:
    said = assignments(defined_variables(launcher.variables, environ))
    return InvalidArgumentError(
        f"{said} (from {launcher.name}) means that this process is one of several, but does not "
        f"say how it meets the others; set {COUNT}, {INDEX} and {COORDINATOR} (host:port of "
        f"process 0) in each process, or {COUNT}=1 to run alone"
    )
