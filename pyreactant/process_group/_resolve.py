"""Resolve who this process is: the first of a list of resolvers that applies decides."""

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .._errors import InvalidArgumentError
from ._cloud_tpu import gke, metadata
from ._environment import (
    COORDINATOR,
    COUNT,
    INDEX,
    LOCAL_DEVICES,
    Finding,
    Trap,
    env_int,
    local_devices,
    seen,
)
from ._group import ProcessGroup
from ._mpi import open_mpi, pmix
from ._slurm import slurm


def resolve(
    *,
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_index: int | None = None,
    local_device_ids: Sequence[int] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> ProcessGroup:
    """The process group; explicit arguments win over the environment as a whole.

    Without them ``PYREACTANT_*`` decide, then Slurm, Open MPI or PMIx, Cloud TPU on GKE, Cloud
    TPU's metadata server, and else it is one process. ``PYREACTANT_COORDINATOR_ADDRESS`` alone
    changes only where the launcher's processes meet; local_device_ids alone, only the devices.

    Raises:
        InvalidArgumentError: Only a part of it was said, the values contradict each other, or
            the process was started in a way that cannot work; it names the line to use.
    """
    local = None if local_device_ids is None else tuple(int(i) for i in local_device_ids)
    explicit = (num_processes, process_index, coordinator_address)
    if any(value is not None for value in explicit):
        if num_processes is None or (num_processes > 1 and process_index is None):
            raise InvalidArgumentError(
                "give num_processes, process_index and coordinator_address together, got "
                f"num_processes={num_processes}, process_index={process_index}, "
                f"coordinator_address={coordinator_address!r}"
            )
        return ProcessGroup(
            num_processes, process_index or 0, coordinator_address, local, "arguments"
        )
    if local is not None:
        environ = {**environ, LOCAL_DEVICES: ",".join(map(str, local))}
    for finding in findings(environ):
        if finding.trap is not None:
            raise finding.trap
        if finding.group is not None:
            return finding.group
    raise AssertionError("one process always applies")


def findings(environ: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """What each resolver finds, in the order in which they decide; each looks when it is asked."""
    for resolver in _RESOLVERS:
        yield resolver(environ)


def _environment(environ: Mapping[str, str]) -> Finding:
    name = "environment"
    saw = seen((COUNT, INDEX, COORDINATOR, LOCAL_DEVICES), environ)
    said = [variable for variable in (COUNT, INDEX, COORDINATOR) if environ.get(variable)]
    if not said:
        return Finding(name, f"{COUNT} is not set", saw)
    if said == [COORDINATOR]:
        return Finding(name, f"only {COORDINATOR} is set, for whichever below decides", saw)
    try:
        count, index = env_int(COUNT, environ), env_int(INDEX, environ)
        if count is None or (count > 1 and index is None):
            raise _incomplete(said)
        coordinator = environ.get(COORDINATOR) or None
        group = ProcessGroup(count, index or 0, coordinator, local_devices(environ), name)
    except InvalidArgumentError as trap:
        return Finding(name, "the variables contradict each other", saw, trap=trap)
    return Finding(name, "PYREACTANT_* are set", saw, group)


def _one_process(environ: Mapping[str, str]) -> Finding:
    name = "one process"
    try:
        if environ.get(COORDINATOR):
            raise _incomplete([COORDINATOR])
        _refuse_a_part_of_a_slice(environ)
        group = ProcessGroup(local_device_ids=local_devices(environ))
    except InvalidArgumentError as trap:
        return Finding(name, "the variables contradict each other", trap=trap)
    return Finding(name, "nothing started several", group=group)


def _refuse_a_part_of_a_slice(environ: Mapping[str, str]) -> None:
    """A worker whose hosts nothing names would start a run of its own, and nobody would notice."""
    for name, alone in (("TPU_WORKER_ID", 0), ("MEGASCALE_NUM_SLICES", 1)):
        if (env_int(name, environ) or alone) != alone:
            raise InvalidArgumentError(
                f"{name}={environ[name]} says that this is a part of a Cloud TPU slice, but "
                "neither TPU_WORKER_HOSTNAMES nor a metadata server names its hosts; set "
                f"{COUNT}, {INDEX} and {COORDINATOR}, or {COUNT}=1 to run alone"
            )


def _incomplete(said: Sequence[str]) -> InvalidArgumentError:
    missing = [name for name in (COUNT, INDEX, COORDINATOR) if name not in said]
    return InvalidArgumentError(
        f"{', '.join(said)} set but not {', '.join(missing)}; set all three or none"
    )


_RESOLVERS: tuple[Callable[[Mapping[str, str]], Finding], ...] = (
    _environment,
    slurm,
    open_mpi,
    pmix,
    gke,
    metadata,
    _one_process,
)


_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy")


@dataclasses.dataclass(frozen=True, slots=True)
class Explanation:
    """How this process learns who it is.

    Attributes:
        findings: Every resolver's, in the order in which they decide.
        notes: What a user should know even though it works.
    """

    findings: tuple[Finding, ...]
    notes: tuple[str, ...]

    @property
    def decider(self) -> Finding:
        """The first that applies."""
        return next(finding for finding in self.findings if finding.applies)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        decider = self.decider
        return {
            "decided": decider.name if decider.group else None,
            "group": _group(decider.group),
            "error": None if decider.trap is None else str(decider.trap),
            "line": _line(decider),
            "notes": list(self.notes),
            "resolvers": [
                {
                    "name": finding.name,
                    "decides": finding is decider,
                    "applies": finding.applies,
                    "reason": finding.reason,
                    "saw": dict(finding.saw),
                    "group": _group(finding.group),
                    "error": None if finding.trap is None else str(finding.trap),
                    "line": _line(finding),
                    "notes": list(finding.notes),
                }
                for finding in self.findings
            ],
        }


def explain(environ: Mapping[str, str] = os.environ) -> Explanation:
    """Ask every resolver, also those that come too late to decide; raises nothing.

    Values of secrets and of proxies, which may hold passwords, are never part of it.
    """
    found = (
        Finding("arguments", "none here: they are what a program gives to initialize"),
        *findings(environ),
    )
    proxies = [n for p in _PROXIES for n in (p, p.upper()) if environ.get(n)]
    notes = next(finding for finding in found if finding.applies).notes
    if proxies:
        notes += (f"pyreactant goes around the proxy of {', '.join(proxies)} to the coordinator",)
    return Explanation(found, notes)


def _group(group: ProcessGroup | None) -> dict[str, Any] | None:
    return None if group is None else dataclasses.asdict(group)


def _line(finding: Finding) -> str | None:
    return finding.trap.line if isinstance(finding.trap, Trap) else None
