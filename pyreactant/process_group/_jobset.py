"""Pods of a Kubernetes JobSet: several replicas of an indexed Job, such as one for each slice.

Kubernetes numbers the pods within each replica (JOB_COMPLETION_INDEX); the replica's own index is a
label of the pod, which the manifest passes on. docs/kubernetes.md has such a manifest.
"""

from collections.abc import Mapping

from .._errors import InvalidArgumentError
from ._environment import (
    COORDINATOR,
    COUNT,
    INDEX,
    JOB_INDEX,
    JOB_REPLICAS,
    Resolution,
    check_jax_process_id,
    defined_variables,
    local_devices,
    required,
    required_int,
)
from ._group import ProcessGroup

NAME = "JobSet"
_COMPLETION = "JOB_COMPLETION_INDEX"


def jobset(environ: Mapping[str, str]) -> Resolution:
    """The pods of all replicas; process = index of the replica * its pods + index of the pod."""
    if not environ.get(JOB_INDEX):
        evidence = defined_variables((_COMPLETION,), environ)
        return Resolution(NAME, f"{JOB_INDEX} is not set", evidence)
    names = (_COMPLETION, JOB_INDEX, JOB_REPLICAS, COUNT, COORDINATOR)
    evidence = defined_variables(names, environ)
    try:
        group = _group(environ)
    except InvalidArgumentError as error:
        return Resolution(NAME, "the variables contradict each other", evidence, error=error)
    reason = f"pod {environ[_COMPLETION]} of replica {environ[JOB_INDEX]}"
    return Resolution(NAME, reason, evidence, group)


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
    address = required(COORDINATOR, environ) if count > 1 else environ.get(COORDINATOR) or None
    return ProcessGroup(
        count, process, address, local_device_ids=local_devices(environ), source=NAME
    )


def steps_aside(environ: Mapping[str, str]) -> bool:
    """Whether PYREACTANT_NUM_PROCESSES is for this resolver, because the index is not given."""
    return bool(environ.get(JOB_INDEX)) and not environ.get(INDEX)
