"""Cloud TPU slices, from the variables of Google Kubernetes Engine or the metadata server."""

import re
from collections.abc import Mapping, Sequence

from ...base.errors import InvalidArgumentError
from ...base.facts import tpu_chips
from ...base.metadata import VARIABLES, ask, server_of
from ...base.settings import COORDINATOR, COUNT, INDEX, JOB_HOST, JOB_INDEX, JOB_REPLICAS
from .group import (
    ProcessGroup,
    Resolution,
    check_jax_process_id,
    defined_variables,
    env_int,
    join_address,
    local_devices,
    required,
    required_int,
)

GKE = "Cloud TPU on GKE"
PATHWAYS = "Pathways"
# JAX's port on Cloud TPU (jax/_src/clusters/cloud_tpu_cluster.py, 0.10 to 0.12), so that a firewall
# that admits JAX admits this too; 8476 and 8471 are libtpu's. A fixed port is enough, because a
# slice runs one program at a time.
PORT = 8482
MEGASCALE = ("MEGASCALE_NUM_SLICES", "MEGASCALE_SLICE_ID", "MEGASCALE_COORDINATOR_ADDRESS")
_WORKER, _HOSTS = "TPU_WORKER_ID", "TPU_WORKER_HOSTNAMES"
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*|[0-9A-Fa-f]*:[0-9A-Fa-f:.]+")


def pathways(environ: Mapping[str, str]) -> Resolution:
    """One process, which has the devices of all slices through Pathways' proxy.

    JAX finds the proxy by these variables, which PathwaysJobSet of the package pathwaysutils sets.
    """
    evidence = defined_variables(("JAX_PLATFORMS", "JAX_BACKEND_TARGET"), environ)
    if not is_proxy(environ.get("JAX_PLATFORMS")):
        return Resolution(PATHWAYS, "JAX_PLATFORMS does not name the proxy", evidence)
    note = "through Pathways one process has all devices: there is no roll-call and no guard"
    group = ProcessGroup(source=PATHWAYS)
    return Resolution(PATHWAYS, "JAX_PLATFORMS names the proxy", evidence, group, notes=(note,))


def is_proxy(platforms: str | None) -> bool:
    """Whether these platforms, as JAX_PLATFORMS lists them, are Pathways'."""
    return "proxy" in (platforms or "").split(",")


def gke(environ: Mapping[str, str]) -> Resolution:
    """The workers of a slice, from the variables that GKE gives to a pod with TPUs.

    They are described in Google's documentation, "TPUs in GKE: environment variables"; the hosts
    are in the order of the workers.
    """
    if not environ.get(_HOSTS):
        evidence = defined_variables((_WORKER, *MEGASCALE), environ)
        return Resolution(GKE, f"{_HOSTS} is not set", evidence)
    evidence = defined_variables((_WORKER, _HOSTS, *MEGASCALE), environ)
    try:
        hosts = [host_of(_HOSTS, host) for host in environ[_HOSTS].split(",")]
        alone = len(hosts) == 1 and not environ.get(_WORKER)
        worker = 0 if alone else required_int(_WORKER, environ)
        group = slice_group(
            GKE, worker=(_WORKER, worker), hosts=hosts, megascale=environ, environ=environ
        )
    except InvalidArgumentError as error:
        return Resolution(GKE, "the variables contradict each other", evidence, error=error)
    return Resolution(GKE, f"worker {worker} of {len(hosts)} of a slice", evidence, group)


def slice_group(
    source: str,
    *,
    worker: tuple[str, int],
    hosts: Sequence[str],
    megascale: Mapping[str, str],
    environ: Mapping[str, str],
) -> ProcessGroup:
    """The group of one or several slices; process = slice * workers of a slice + worker.

    Args:
        source: The name of the resolver.
        worker: The name of the variable with the worker's index within its slice, and the index.
        hosts: The workers of this slice, by index.
        megascale: The MEGASCALE variables.
        environ: The environment, with our own variables.

    Raises:
        InvalidArgumentError: The numbers contradict each other or are missing.
    """
    name, index = worker
    slices = _in_range("MEGASCALE_NUM_SLICES", env_int(MEGASCALE[0], megascale) or 1, 1, 1_000_000)
    slice_id = required_int(MEGASCALE[1], megascale) if slices > 1 else 0
    _in_range(MEGASCALE[1], slice_id, 0, slices - 1)
    _in_range(name, index, 0, len(hosts) - 1)
    count, process = slices * len(hosts), slice_id * len(hosts) + index
    if slices > 1:
        check_jax_process_id(process, count, environ)
    address: str | None = None
    if count > 1:
        # Megascale's coordinator is the first worker of the first slice, with a port of its own.
        first = (
            hosts[0] if slices == 1 else host_of(MEGASCALE[2], required(MEGASCALE[2], megascale))
        )
        address = environ.get(COORDINATOR) or join_address(first, PORT)
    return ProcessGroup(
        count,
        process,
        address,
        local_device_ids=local_devices(environ),
        source=source,
        hosts=tuple(hosts) if slices == 1 else None,  # a slice does not know the others' hosts
    )


def megascale_of_jobset(environ: Mapping[str, str]) -> dict[str, str | None]:
    """What `MEGASCALE` must be in a pod, where it is not: the JobSet's own labels say it.

    After a preemption a provider may have set another number of slices, for which JAX waits
    for ever (ray-project/ray#62893).

    Returns:
        The new values by their names; None for a variable that must go.

    Raises:
        InvalidArgumentError: The labels are no numbers.
    """
    host = environ.get(JOB_HOST)
    if not host or not any(environ.get(name) for name in MEGASCALE):
        return {}  # no pod of our JobSet, or no slice
    slices = required_int(JOB_REPLICAS, environ)
    if slices == 1:
        believed = environ.get(MEGASCALE[0], "1") == "1"
        return {} if believed else {name: None for name in MEGASCALE if name in environ}
    known = [environ.get(name, "") for name in MEGASCALE]
    known[2] = host_of(MEGASCALE[2], known[2]) if known[2] else ""  # it may have a port
    said = (str(slices), str(required_int(JOB_INDEX, environ)), host)
    return {name: new for name, old, new in zip(MEGASCALE, known, said, strict=True) if old != new}


def host_of(name: str, text: str) -> str:
    """The host of "host", "host:port", "IPv6" or "[IPv6]:port".

    Args:
        name: The variable that has the text, for messages.
        text: The address.

    Raises:
        InvalidArgumentError: The text has another form.
    """
    host = text.strip()
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    if not _HOST.fullmatch(host):
        raise InvalidArgumentError(f"{name} must name hosts, such as 'worker-0', got {text!r}")
    return host


def _in_range(name: str, number: int, least: int, most: int) -> int:
    if not least <= number <= most:
        raise InvalidArgumentError(f"{name} must be from {least} to {most}, got {number}")
    return number


METADATA = "Cloud TPU metadata"
_ATTEMPTS = 3
_PAUSE = 0.5
_WORKER_NUMBER, _ENDPOINTS, _TPU_ENV = "agent-worker-number", "worker-network-endpoints", "tpu-env"


def metadata(environ: Mapping[str, str]) -> Resolution:
    """The workers of a slice, from the attributes that Cloud TPU gives to its machines.

    The server is asked only on a machine with a TPU, or if Google's variables name a server, so
    that other machines do not wait for an address that does not exist.
    """
    evidence = defined_variables((*VARIABLES, "TPU_SKIP_MDS_QUERY"), environ)
    chips = tpu_chips()
    if chips:
        evidence["TPU chips"] = str(chips)
    if environ.get("TPU_SKIP_MDS_QUERY"):
        return Resolution(METADATA, "not asked: TPU_SKIP_MDS_QUERY is set", evidence)
    server = server_of(environ)
    if not chips and not any(map(environ.get, VARIABLES)):
        return Resolution(METADATA, "not asked: this machine has no TPU", evidence)
    try:
        answers = {key: _attribute(server, key) for key in (_WORKER_NUMBER, _ENDPOINTS, _TPU_ENV)}
        if answers[_WORKER_NUMBER] is None:
            reason = f"{server} has no {_WORKER_NUMBER}: not a machine of a slice"
            return Resolution(METADATA, reason, evidence)
        evidence |= {key: answers[key] or "" for key in (_WORKER_NUMBER, _ENDPOINTS)}
        hosts = endpoints(answers[_ENDPOINTS] or "")
        worker = worker_number(answers[_WORKER_NUMBER] or "")
        megascale = {**tpu_env(answers[_TPU_ENV] or ""), **defined_variables(MEGASCALE, environ)}
        evidence |= defined_variables(MEGASCALE, megascale)
        group = slice_group(
            METADATA,
            worker=(_WORKER_NUMBER, worker),
            hosts=hosts,
            megascale=megascale,
            environ=environ,
        )
    except InvalidArgumentError as error:
        return Resolution(METADATA, "the metadata cannot be used", evidence, error=error)
    return Resolution(METADATA, f"worker {worker} of {len(hosts)} of a slice", evidence, group)


def worker_number(text: str) -> int:
    """This worker's index within its slice.

    Raises:
        InvalidArgumentError: The text is not a whole number.
    """
    number = text.strip()
    if not (number.isascii() and number.isdigit() and len(number) < 10):
        raise InvalidArgumentError(
            f"metadata {_WORKER_NUMBER} must be a whole number, got {text!r:.200}"
        )
    return int(number)


def endpoints(text: str) -> list[str]:
    """The hosts of a slice's workers, from "host,host" or the older "name:id:address,...".

    Raises:
        InvalidArgumentError: The text has neither form.
    """
    parts = [entry.strip().split(":") for entry in text.strip().split(",")]
    if not all(len(part) in (1, 3) for part in parts):
        raise InvalidArgumentError(
            f"metadata {_ENDPOINTS} must look like 'host,host' or 'name:id:address,...', got "
            f"{text!r:.200}"
        )
    return [host_of(f"metadata {_ENDPOINTS}", part[-1]) for part in parts]


def tpu_env(text: str) -> dict[str, str]:
    """The settings of a tpu-env document, whose lines look like ``KEY: 'value'``."""
    pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {key.strip(): value.strip().strip("'\"") for key, value in pairs}


def _attribute(server: str, key: str) -> str | None:
    """An attribute of this machine; None if it does not have the attribute."""
    import time

    problem = ""
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE)  # a server that restarts answers 503
        status, answer = ask(server, f"attributes/{key}")
        if status == 200:
            return answer
        if status == 404:
            return None
        problem = f"answered {status}" if status else answer
    raise InvalidArgumentError(
        f"metadata {key}: the metadata server {server} {problem}, so the index of this worker in "
        f"its Cloud TPU slice is unknown; set {COUNT}, {INDEX} and {COORDINATOR}, or {COUNT}=1 to "
        "run alone"
    )
