"""Launchers that number the processes of a run in plain variables: one row for each.

A row with an address resolves its processes. The others are refused: without the host of process 0
nothing could be resolved, and the process must not run alone while its launcher started several.
Only an index above 0, or a number of processes above 1, says that there are several.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...base.errors import InvalidArgumentError
from ...base.settings import COORDINATOR, COUNT, INDEX
from .group import (
    ProcessGroup,
    Resolution,
    defined_variables,
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
        count: Variable with the number of processes; "" if it has none.
        index: Variable with this process's index.
        address: The variables of the address of process 0; () if the process is refused.
        address_of: Their meaning: "host:port".
    """

    name: str
    count: str
    index: str
    address: tuple[str, ...] = ()
    address_of: Callable[[Mapping[str, str]], str] | None = None

    @property
    def variables(self) -> tuple[str, ...]:
        """All that it sets, as far as we read it."""
        return tuple(filter(None, (self.count, self.index, *self.address)))

    def says_several(self, environ: Mapping[str, str]) -> bool:
        """Whether its variables say that this process is one of several."""
        return _number(self.count, environ) > 1 or _number(self.index, environ) > 0


def _host_and_port(host: str, port: str) -> Callable[[Mapping[str, str]], str]:
    """The address in `host`, whose port may be in a variable of its own."""

    def address(environ: Mapping[str, str]) -> str:
        given = required(host, environ)
        has_port = given.rpartition(":")[2].isdecimal() and (given.count(":") == 1 or "]" in given)
        return given if has_port else join_address(given, required_int(port, environ))

    return address


def _first_node(environ: Mapping[str, str]) -> str:
    return join_address(required(_NODES, environ).split()[0], port_of("SkyPilot"))


_NODES = "SKYPILOT_NODE_IPS"
_JAX = ("JAX_COORDINATOR_ADDRESS", "JAX_COORDINATOR_PORT")
_JAXJOB = ("COORDINATOR_ADDRESS", "COORDINATOR_PORT")

LAUNCHERS = (
    Launcher("JAX_*", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", _JAX, _host_and_port(*_JAX)),
    Launcher("JAXJob", "NUM_PROCESSES", "PROCESS_ID", _JAXJOB, _host_and_port(*_JAXJOB)),
    Launcher("SkyPilot", "SKYPILOT_NUM_NODES", "SKYPILOT_NODE_RANK", (_NODES,), _first_node),
    Launcher("torchrun", "WORLD_SIZE", "RANK"),
    Launcher("torchrun's agent", "PET_NNODES", "PET_NODE_RANK"),
    Launcher("xpk", "NNODES", "NODE_RANK"),
    Launcher("Flux", "FLUX_JOB_SIZE", "FLUX_TASK_RANK"),
    Launcher("jsrun", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK"),
    Launcher("MVAPICH", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"),
    Launcher("Horovod", "HOROVOD_SIZE", "HOROVOD_RANK"),
    Launcher("LeaderWorkerSet", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX"),
    Launcher("AWS Batch", "AWS_BATCH_JOB_NUM_NODES", "AWS_BATCH_JOB_NODE_INDEX"),
    Launcher("MaxText", "JAX_PROCESS_COUNT", ""),
    Launcher("PALS", "", "PALS_RANKID"),
    Launcher("ALPS", "", "ALPS_APP_PE"),
    Launcher("PBS", "", "PBS_NODENUM"),
    Launcher("Cloud TPU", "MEGASCALE_NUM_SLICES", "TPU_WORKER_ID"),
)
"""Who sets what: Kubeflow's trainer sets ``JAX_*``, its training operator those of a JAXJob."""


def plain(environ: Mapping[str, str]) -> Resolution:
    """The first launcher of the table that says that there are several processes."""
    launcher = next((row for row in LAUNCHERS if row.says_several(environ)), None)
    if launcher is None:
        return Resolution(NAME, "no variable of theirs says that there are several processes")
    evidence = defined_variables(launcher.variables, environ)
    try:
        group = _group(launcher, environ)
    except InvalidArgumentError as error:
        return Resolution(NAME, f"{launcher.name}: not resolved", evidence, error=error)
    return Resolution(NAME, f"{launcher.name} started this process", evidence, group)


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
    said = ", ".join(f"{name}={value}" for name, value in other.evidence.items())
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
    return ProcessGroup(
        required_int(launcher.count, environ),
        required_int(launcher.index, environ),
        environ.get(COORDINATOR) or launcher.address_of(environ),
        local_device_ids=local_devices(environ),
        source=launcher.name,
    )


def _refusal(launcher: Launcher, environ: Mapping[str, str]) -> InvalidArgumentError:
    said = defined_variables(launcher.variables, environ)
    return InvalidArgumentError(
        f"{', '.join(f'{name}={value}' for name, value in said.items())} (from {launcher.name}) "
        "means that this process is one of several, but does not say how it meets the others; set "
        f"{COUNT}, {INDEX} and {COORDINATOR} (host:port of process 0) in each process, or "
        f"{COUNT}=1 to run alone"
    )


def _number(name: str, environ: Mapping[str, str]) -> int:
    """The value of a variable; 0 if it is unset or, as names like RANK may be, something else."""
    text = environ.get(name, "") if name else ""
    return int(text) if text.isascii() and text.isdecimal() else 0
