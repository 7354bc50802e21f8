"""Resolve the processes of a run: the first resolver that applies decides.

Here are the resolvers of our own variables. Those of a Kubernetes JobSet are among them: Kubernetes
numbers the pods within each replica (JOB_COMPLETION_INDEX); the replica's own index is a label of
the pod, which the manifest passes on. docs/kubernetes.md has such a manifest.
"""

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ...base.errors import InvalidArgumentError
from ...base.settings import (
    COORDINATOR,
    COUNT,
    INDEX,
    JOB_HOST,
    JOB_INDEX,
    JOB_REPLICAS,
    LOCAL_DEVICES,
)
from .cloud_tpu import PORT, gke, metadata, pathways
from .group import (
    LaunchError,
    ProcessGroup,
    Resolution,
    check_jax_process_id,
    check_rank,
    defined_variables,
    env_int,
    join_address,
    local_devices,
    proxy_names,
    required,
    required_int,
)
from .mpi import open_mpi, pmix
from .plain import plain, refuse_to_run_alone
from .slurm import slurm, tasks_without_job


def resolve(
    *,
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_index: int | None = None,
    local_device_ids: Sequence[int] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> ProcessGroup:
    """The process group; explicit arguments win over the environment as a whole.

    Without them the first of these that is there decides: ``PYREACTANT_*``, Pathways' proxy, a
    Kubernetes JobSet, Slurm, Open MPI, PMIx, Cloud TPU on GKE, Cloud TPU's metadata server, the
    launchers of `plain.LAUNCHERS`; otherwise it is one process. If a launcher says one process and
    another says several, that is an error: nothing runs alone without a word.
    ``PYREACTANT_COORDINATOR_ADDRESS`` alone changes only the address at which the launcher's
    processes meet, and local_device_ids alone only the devices.

    Raises:
        InvalidArgumentError: Only some of the values are given, the values contradict each other,
            or the process was started in a way that cannot work; the message has the command
            that does.
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
            num_processes,
            process_index or 0,
            coordinator_address,
            local_device_ids=local,
            source="arguments",
        )
    if local is not None:
        environ = {**environ, LOCAL_DEVICES: ",".join(map(str, local))}
    for resolution in resolutions(environ):
        if resolution.error is not None:
            raise resolution.error
        if resolution.group is not None:
            return resolution.group
    raise AssertionError("one process always applies")


def resolutions(environ: Mapping[str, str] = os.environ) -> Iterator[Resolution]:
    """What each resolver concludes, in the order in which they decide; each runs when needed."""
    decider = ""
    for resolver in _RESOLVERS:
        resolution = resolver(environ)
        if resolver not in _OURS:
            resolution = refuse_to_run_alone(resolution, environ)
        if resolution.applies:
            decider = decider or resolution.name
        yield resolution
    yield _one_process(environ, decider)


def _environment(environ: Mapping[str, str]) -> Resolution:
    name = "environment"
    evidence = defined_variables((COUNT, INDEX, COORDINATOR, LOCAL_DEVICES), environ)
    given = [variable for variable in (COUNT, INDEX, COORDINATOR) if environ.get(variable)]
    if not given:
        return Resolution(name, f"{COUNT} is not set", evidence)
    if given == [COORDINATOR]:
        reason = f"only {COORDINATOR} is set, for the resolver below that decides"
        return Resolution(name, reason, evidence)
    if environ.get(JOB_INDEX) and not environ.get(INDEX):
        return Resolution(name, f"{INDEX} is not set, but {JOB_INDEX} is, for a JobSet", evidence)
    try:
        count, index = env_int(COUNT, environ), env_int(INDEX, environ)
        if count is None or (count > 1 and index is None):
            raise _incomplete(given)
        check_rank(COUNT, count, INDEX, index or 0)
        group = ProcessGroup(
            count,
            index or 0,
            environ.get(COORDINATOR) or None,
            local_device_ids=local_devices(environ),
            source=name,
        )
    except InvalidArgumentError as error:
        return Resolution(name, "the variables contradict each other", evidence, error=error)
    return Resolution(name, "PYREACTANT_* are set", evidence, group)


def _one_process(environ: Mapping[str, str], decider: str) -> Resolution:
    """The last resolution; `decider` is the name of the first that applies, "" if none does."""
    name = "one process"
    if decider:
        return Resolution(name, f"not asked: {decider} decides")
    try:
        if environ.get(COORDINATOR):
            raise _incomplete([COORDINATOR])
        tasks_without_job(environ)
        group = ProcessGroup(local_device_ids=local_devices(environ))
    except InvalidArgumentError as error:
        return Resolution(name, "the variables contradict each other", error=error)
    return Resolution(name, "no launcher started several processes", group=group)


def _incomplete(given: Sequence[str]) -> InvalidArgumentError:
    missing = [name for name in (COUNT, INDEX, COORDINATOR) if name not in given]
    return InvalidArgumentError(
        f"{', '.join(given)} set but not {', '.join(missing)}; set all three or none"
    )


_JOBSET = "JobSet"
_COMPLETION = "JOB_COMPLETION_INDEX"


def jobset(environ: Mapping[str, str]) -> Resolution:
    """The pods of all replicas; process = index of the replica * its pods + index of the pod."""
    if not environ.get(JOB_INDEX):
        evidence = defined_variables((_COMPLETION, JOB_REPLICAS), environ)
        if not environ.get(JOB_REPLICAS):
            return Resolution(_JOBSET, f"{JOB_INDEX} is not set", evidence)
    names = (_COMPLETION, JOB_INDEX, JOB_REPLICAS, COUNT, JOB_HOST, COORDINATOR)
    evidence = defined_variables(names, environ)
    try:
        group = _group(environ)
    except InvalidArgumentError as error:
        return Resolution(_JOBSET, "the variables contradict each other", evidence, error=error)
    reason = f"pod {environ[_COMPLETION]} of replica {environ[JOB_INDEX]}"
    return Resolution(_JOBSET, reason, evidence, group)


def _group(environ: Mapping[str, str]) -> ProcessGroup:
    replica, replicas = (required_int(name, environ) for name in (JOB_INDEX, JOB_REPLICAS))
    count, pod = required_int(COUNT, environ), required_int(_COMPLETION, environ)
    if replicas < 1 or count < 1 or count % replicas:
        raise InvalidArgumentError(
            f"{COUNT} is the number of pods of all replicas and must be a multiple of "
            f"{JOB_REPLICAS}, got {count} and {replicas}"
        )
    pods = count // replicas
    for name, number, limit in ((JOB_INDEX, replica, replicas), (_COMPLETION, pod, pods)):
        if not 0 <= number < limit:
            raise InvalidArgumentError(
                f"{name} must be from 0 to {limit - 1} with {COUNT}={count} and "
                f"{JOB_REPLICAS}={replicas}, got {number}"
            )
    process = replica * pods + pod
    if replicas > 1:
        check_jax_process_id(process, count, environ)
    address = environ.get(COORDINATOR) or None
    if address is None and environ.get(JOB_HOST):
        address = join_address(environ[JOB_HOST], PORT)
    if address is None and count > 1:
        address = required(COORDINATOR, environ)
    return ProcessGroup(
        count, process, address, local_device_ids=local_devices(environ), source=_JOBSET
    )


_Resolver = Callable[[Mapping[str, str]], Resolution]
_OURS: tuple[_Resolver, ...] = (_environment, jobset)
_RESOLVERS = (_environment, pathways, jobset, slurm, open_mpi, pmix, gke, metadata, plain)


@dataclasses.dataclass(frozen=True, slots=True)
class Explanation:
    """How the process group of this process is decided.

    Attributes:
        resolutions: What every resolver concludes, in the order in which they decide.
        notes: What a user should know even though the launch works.
    """

    resolutions: tuple[Resolution, ...]
    notes: tuple[str, ...]

    @property
    def decider(self) -> Resolution:
        """The first resolution that applies."""
        return next(resolution for resolution in self.resolutions if resolution.applies)

    def to_dict(self) -> dict[str, Any]:
        """The explanation as plain data for `json.dumps`."""
        decider = self.decider
        return {
            "decided": decider.name if decider.group else None,
            "group": _group_dict(decider.group),
            "error": None if decider.error is None else str(decider.error),
            "line": _command(decider),
            "notes": list(self.notes),
            "resolvers": [
                {
                    "name": resolution.name,
                    "decides": resolution is decider,
                    "applies": resolution.applies,
                    "reason": resolution.reason,
                    "saw": dict(resolution.evidence),
                    "group": _group_dict(resolution.group),
                    "error": None if resolution.error is None else str(resolution.error),
                    "line": _command(resolution),
                    "notes": list(resolution.notes),
                }
                for resolution in self.resolutions
            ],
        }


def explain(environ: Mapping[str, str] = os.environ) -> Explanation:
    """Run every resolver, including those after the one that decides; raises nothing.

    The result never contains secrets, nor the values of proxies, which may hold passwords.
    """
    # It needs sockets, which a program need not wait for.
    from .coordinator import coordinator_note

    arguments = "a program can pass them to initialize; there are none here"
    concluded = (Resolution("arguments", arguments), *resolutions(environ))
    decider = next(resolution for resolution in concluded if resolution.applies)
    notes = decider.notes
    if proxies := ", ".join(proxy_names(environ)):
        notes += (f"pyreactant connects to the coordinator without the proxy of {proxies}",)
    if decider.group is not None and (note := coordinator_note(decider.group, environ)):
        notes += (note,)
    return Explanation(concluded, notes)


def _group_dict(group: ProcessGroup | None) -> dict[str, Any] | None:
    return None if group is None else dataclasses.asdict(group)


def _command(resolution: Resolution) -> str | None:
    return resolution.error.command if isinstance(resolution.error, LaunchError) else None
