"""Launchers that number the processes of a run in plain variables: one row for each.

A row with an address resolves its processes. The others are refused: without the host of process 0
nothing could be resolved, and the process must not run alone while its launcher started several.
A number of processes above 1, an index above 0, or a list of several hosts says that there are
several; so does what is left of the variables of a launcher that has a resolver of its own. A value
that cannot be read may say so, too, and is refused; an empty one is as good as none.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

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
    split_address,
    whole_number,
)

NAME = "other launchers"


class UnreadableError(InvalidArgumentError):
    """A launcher's variable has a value that says nothing."""


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
    """

    name: str
    counts: str = ""
    indexes: str = ""
    lists: str = ""
    address: str = ""
    address_of: Callable[[Mapping[str, str]], str] | None = None

    @property
    def variables(self) -> tuple[str, ...]:
        """All that it sets, as far as we read it."""
        return tuple(" ".join((self.counts, self.indexes, self.lists, self.address)).split())

    def says_several(self, environ: Mapping[str, str]) -> bool:
        """Whether its variables say that this process is one of several.

        Raises:
            UnreadableError: A variable cannot be read.
        """
        # All are read, so that none hides another that cannot be.
        most = [
            *(_read(name, environ, _NUMBER) - 1 for name in self.counts.split()),
            *(_read(name, environ, _NUMBER) for name in self.indexes.split()),
            *(_read(name, environ, _HOSTS) - 1 for name in self.lists.split()),
        ]
        return max(most, default=0) > 0


_BOUNDS, _TF, _SM = "TPU_PROCESS_BOUNDS", "TF_CONFIG", "SM_HOSTS"
_VERTEX = "CLUSTER_SPEC"


def _whole(text: str) -> int:
    number = whole_number(text)
    if number < 0:
        raise ValueError(text)
    return number


def _largest(text: str) -> int:
    """The larger number of a range; torchrun's 2:4 means from two to four."""
    return max(map(_whole, text.split(":", 1)))


def _on_each_node(text: str) -> int:
    # torchrun's agent then starts one for each device; this process is none of them.
    return 0 if text in ("auto", "cpu", "gpu", "xpu") else _whole(text)


def _product(text: str) -> int:
    """The number of processes in the bounds 2,1,1."""
    number = math.prod(map(_whole, text.split(",")))
    if not number:
        raise ValueError(text)
    return number


def _number_of_hosts(text: str) -> int:
    return len({*text.replace(",", " ").split()})


def _number_in_json(text: str) -> int:
    hosts = json.loads(text)
    if not isinstance(hosts, list):
        raise TypeError(text)
    return len({*map(str, hosts)})


def _number_of_tasks(text: str) -> int:
    """The number of tasks of a TensorFlow cluster; without a cluster it is one."""
    cluster = json.loads(text).get("cluster", {})
    lists = {task: [hosts] if isinstance(hosts, str) else hosts for task, hosts in cluster.items()}
    tasks = [(task, host) for task, hosts in lists.items() for host in hosts]
    return max(1, len({*tasks}))


_NUMBER = _whole, "a whole number from 0"
_HOSTS = _number_of_hosts, "host names, separated by commas or spaces"
_RANGE = _largest, "a whole number, or two such as 1:2"
_FORMS: Mapping[str, tuple[Callable[[str], int], str]] = {
    _BOUNDS: (_product, "whole numbers from 1 such as 2,1,1"),
    _TF: (_number_of_tasks, "a JSON object with a cluster"),
    _VERTEX: (_number_of_tasks, "a JSON object with a cluster"),
    _SM: (_number_in_json, "a JSON list of host names"),
    "NNODES": _RANGE,
    "PET_NNODES": _RANGE,
    "PET_NPROC_PER_NODE": (_on_each_node, "a whole number, auto, cpu, gpu or xpu"),
}
"""What the values of some variables are: how many there are in one, and its form."""


def _read(name: str, environ: Mapping[str, str], usual: tuple[Callable[[str], int], str]) -> int:
    """How many processes, nodes or hosts a variable says; 0 if it is not set.

    Raises:
        UnreadableError: It cannot be read.
    """
    text = environ.get(name)
    if not text:
        return 0
    count, form = _FORMS.get(name, usual)
    try:
        return count(text)
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise UnreadableError(
            f"{name} must be {form}, got {text!r:.80}; correct or unset it, or set {COUNT}=1 to "
            "run alone"
        ) from None


def _host_and_port(host: str, port: str) -> Callable[[Mapping[str, str]], str]:
    """The address in `host`, whose port may be in a variable of its own."""

    def address(environ: Mapping[str, str]) -> str:
        given = required(host, environ)
        bare_ipv6 = given.count(":") > 1 and "]" not in given
        if given.endswith("]") or ":" not in given or (bare_ipv6 and environ.get(port)):
            given = join_address(given.strip("[]"), required_int(port, environ))
        try:
            _, number = split_address(given)
        except InvalidArgumentError:
            raise InvalidArgumentError(
                f"{host} must have the form host:port or [IPv6]:port with a port from 1 to 65535, "
                f"or a host with its port in {port}, got {given!r}"
            ) from None
        if env_int(port, environ) not in (None, number):
            raise InvalidArgumentError(
                f"{host}={given} and {port}={environ[port]} give two ports of process 0; unset "
                f"{port}"
            )
        return given

    return address


def _first_node(environ: Mapping[str, str]) -> str:
    hosts, count = required(_NODES, environ).split(), required_int(_NUM_NODES, environ)
    if len(hosts) != count:
        raise InvalidArgumentError(
            f"{_NODES} must list one host for each of {_NUM_NODES}={count}, got {len(hosts)}: "
            f"{', '.join(hosts)}; pass both on as SkyPilot sets them, or set {COUNT}, {INDEX} and "
            f"{COORDINATOR} instead"
        )
    return join_address(hosts[0], port_of("SkyPilot"))


_NODES, _NUM_NODES = "SKYPILOT_NODE_IPS", "SKYPILOT_NUM_NODES"
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
    ),
    Launcher(
        "SkyPilot",
        _NUM_NODES,
        "SKYPILOT_NODE_RANK",
        lists=_NODES,
        address_of=_first_node,
    ),
    Launcher(
        "torchrun",
        "WORLD_SIZE GROUP_WORLD_SIZE LOCAL_WORLD_SIZE",
        "RANK GROUP_RANK LOCAL_RANK",
    ),
    Launcher("torchrun's agent", "PET_NNODES PET_NPROC_PER_NODE", "PET_NODE_RANK"),
    Launcher("xpk", "NNODES", "NODE_RANK"),
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
    Launcher("SageMaker", lists=_SM),
    Launcher("TensorFlow", lists=_TF),
    Launcher("Vertex AI", lists=_VERTEX),
    Launcher("DMLC", "DMLC_NUM_WORKER", "DMLC_WORKER_ID"),
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
            _check_agreement(launcher, group, environ)
        except InvalidArgumentError as error:
            return Resolution(NAME, f"{launcher.name}: not resolved", evidence, error=error)
        return Resolution(NAME, f"{launcher.name} started this process", evidence, group)
    if environ.get(_JAX[0]) and not environ.get("JAX_NUM_PROCESSES"):
        lone = InvalidArgumentError(
            f"{_JAX[0]} set but not JAX_NUM_PROCESSES, JAX_PROCESS_ID; set all three or none, or "
            f"{COUNT}=1 to run alone"
        )
        evidence = defined_variables(_JAX, environ)
        return Resolution(NAME, "the address of process 0 is for several", evidence, error=lone)
    return Resolution(NAME, "no variable of theirs says that there are several processes")


def _check_agreement(launcher: Launcher, group: ProcessGroup, environ: Mapping[str, str]) -> None:
    """Check that no other launcher gives its processes another number, index or address."""
    for other in LAUNCHERS:
        if other is launcher or not other.address or not other.says_several(environ):
            continue
        theirs = _group(other, environ)
        if replace(theirs, source=group.source) != group:
            ours, said = (
                assignments(defined_variables(one.variables, environ)) for one in (launcher, other)
            )
            raise InvalidArgumentError(
                f"{ours} (from {launcher.name}) and {said} (from {other.name}) describe two runs; "
                f"unset the variables of one, or set {COUNT}, {INDEX} and {COORDINATOR}, which "
                "decide"
            )


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
    error, reason = other.error, other.reason
    if not isinstance(error, UnreadableError):
        said = assignments(other.evidence)
        error = InvalidArgumentError(
            f"{resolution.name} says that this process is the only one, but {said} says that it is "
            f"one of several; set {COUNT}, {INDEX} and {COORDINATOR} to decide, or {COUNT}=1 to "
            "run alone"
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
