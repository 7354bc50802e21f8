"""Cloud TPU slices: Google Kubernetes Engine says in variables who is who."""

import re
from collections.abc import Mapping, Sequence

from .._errors import InvalidArgumentError
from .._system.hardware import tpu_chips
from ._environment import (
    COORDINATOR,
    COUNT,
    INDEX,
    Finding,
    env_int,
    local_devices,
    required,
    required_int,
    seen,
)
from ._group import ProcessGroup, join_address

GKE = "Cloud TPU on GKE"
# JAX's own port on Cloud TPU (jax/_src/clusters/cloud_tpu_cluster.py, 0.10 to 0.12), so that a
# firewall opened for JAX is open for this; 8476 and 8471 are libtpu's. A fixed one is enough, as a
# slice runs one program at a time.
PORT = 8482
MEGASCALE = ("MEGASCALE_NUM_SLICES", "MEGASCALE_SLICE_ID", "MEGASCALE_COORDINATOR_ADDRESS")
_WORKER, _HOSTS = "TPU_WORKER_ID", "TPU_WORKER_HOSTNAMES"
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*|[0-9A-Fa-f]*:[0-9A-Fa-f:.]+")


def gke(environ: Mapping[str, str]) -> Finding:
    """The workers of a slice, from the variables that GKE gives to a pod with TPUs.

    See "TPUs in GKE: environment variables" in Google's documentation; the order of the hosts
    is that of the workers.
    """
    if not environ.get(_HOSTS):
        return Finding(GKE, f"{_HOSTS} is not set", seen((_WORKER, *MEGASCALE), environ))
    saw = seen((_WORKER, _HOSTS, *MEGASCALE), environ)
    try:
        hosts = [host_of(_HOSTS, host) for host in environ[_HOSTS].split(",")]
        alone = len(hosts) == 1 and not environ.get(_WORKER)
        worker = 0 if alone else required_int(_WORKER, environ)
        group = slice_group(GKE, (_WORKER, worker), hosts, environ, environ)
    except InvalidArgumentError as trap:
        return Finding(GKE, "the variables contradict each other", saw, trap=trap)
    return Finding(GKE, f"worker {worker} of {len(hosts)} of a slice", saw, group)


def slice_group(
    source: str,
    worker: tuple[str, int],
    hosts: Sequence[str],
    megascale: Mapping[str, str],
    environ: Mapping[str, str],
) -> ProcessGroup:
    """The group of one or several slices; process = slice * workers of a slice + worker.

    Args:
        source: The resolver.
        worker: Where the worker's index within its slice was found, and the index.
        hosts: The workers of this slice, by index.
        megascale: Where the MEGASCALE variables are.
        environ: Where our own variables are.

    Raises:
        InvalidArgumentError: The numbers contradict each other or are missing.
    """
    name, index = worker
    slices = _within("MEGASCALE_NUM_SLICES", env_int(MEGASCALE[0], megascale) or 1, 1, 1_000_000)
    slice_id = required_int(MEGASCALE[1], megascale) if slices > 1 else 0
    _within(MEGASCALE[1], slice_id, 0, slices - 1)
    _within(name, index, 0, len(hosts) - 1)
    count, process = slices * len(hosts), slice_id * len(hosts) + index
    local = local_devices(environ)
    known = tuple(hosts) if slices == 1 else None  # a slice does not know the hosts of the others
    if count == 1:
        return ProcessGroup(1, 0, None, local, source, None, known)
    # Megascale's own coordinator is the first worker of the first slice; the port is its own.
    first = hosts[0] if slices == 1 else host_of(MEGASCALE[2], required(MEGASCALE[2], megascale))
    address = environ.get(COORDINATOR) or join_address(first, PORT)
    return ProcessGroup(count, process, address, local, source, None, known)


def host_of(name: str, text: str) -> str:
    """The host of "host", "host:port", "IPv6" or "[IPv6]:port".

    Raises:
        InvalidArgumentError: It has another form; `name` is where it was found.
    """
    host = text.strip()
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    if not _HOST.fullmatch(host):
        raise InvalidArgumentError(f"{name} must name hosts, such as 'worker-0', got {text!r}")
    return host


def _within(name: str, number: int, least: int, most: int) -> int:
    if not least <= number <= most:
        raise InvalidArgumentError(f"{name} must be from {least} to {most}, got {number}")
    return number


METADATA = "Cloud TPU metadata"
_SERVERS = ("GCE_METADATA_HOST", "GCE_METADATA_IP")
_DEFAULT_SERVER = "metadata.google.internal"
_PATH = "/computeMetadata/v1/instance/attributes/"
_TIMEOUT = 3
_ATTEMPTS = 3
_PAUSE = 0.5
_LONGEST = 1 << 20
_WORKER_NUMBER, _ENDPOINTS, _TPU_ENV = "agent-worker-number", "worker-network-endpoints", "tpu-env"


def metadata(environ: Mapping[str, str]) -> Finding:
    """The workers of a slice, from the attributes that Cloud TPU gives to its machines.

    Asked only where a TPU is, or where Google's own variables name a metadata server, so that
    no other machine waits for an address that is nowhere.
    """
    saw = seen((*_SERVERS, "TPU_SKIP_MDS_QUERY"), environ)
    chips = tpu_chips()
    if chips:
        saw["TPU chips"] = str(chips)
    if environ.get("TPU_SKIP_MDS_QUERY"):
        return Finding(METADATA, "not asked: TPU_SKIP_MDS_QUERY is set", saw)
    if not chips and not any(environ.get(name) for name in _SERVERS):
        return Finding(METADATA, "not asked: this machine has no TPU", saw)
    server = environ.get(_SERVERS[0]) or environ.get(_SERVERS[1]) or _DEFAULT_SERVER
    try:
        answers = {key: _attribute(server, key) for key in (_WORKER_NUMBER, _ENDPOINTS, _TPU_ENV)}
        if answers[_WORKER_NUMBER] is None:
            return Finding(
                METADATA, f"{server} knows no {_WORKER_NUMBER}: no machine of a slice", saw
            )
        saw |= {key: answers[key] or "" for key in (_WORKER_NUMBER, _ENDPOINTS)}
        hosts = endpoints(answers[_ENDPOINTS] or "")
        worker = worker_number(answers[_WORKER_NUMBER] or "")
        megascale = {**tpu_env(answers[_TPU_ENV] or ""), **seen(MEGASCALE, environ)}
        saw |= seen(MEGASCALE, megascale)
        group = slice_group(METADATA, (_WORKER_NUMBER, worker), hosts, megascale, environ)
    except InvalidArgumentError as trap:
        return Finding(METADATA, "the metadata cannot be used", saw, trap=trap)
    return Finding(METADATA, f"worker {worker} of {len(hosts)} of a slice", saw, group)


def worker_number(text: str) -> int:
    """This worker's index within its slice.

    Raises:
        InvalidArgumentError: It is no number.
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
        InvalidArgumentError: It has neither form.
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
    """An attribute of this machine; None where it has no such one."""
    import time

    problem = ""
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE)  # the server restarts now and then, and says 503 meanwhile
        status, answer = _get(server, key)
        if status == 200:
            return answer
        if status == 404:
            return None
        problem = f"answered {status}" if status else answer
    raise InvalidArgumentError(
        f"metadata {key}: the metadata server {server} {problem}, so nothing says which worker of "
        f"a Cloud TPU slice this is; set {COUNT}, {INDEX} and {COORDINATOR}, or {COUNT}=1 to run "
        "alone"
    )


def _get(server: str, key: str) -> tuple[int, str]:
    """Status and body, or 0 and what went wrong; straight to the server, past any proxy."""
    import http.client

    try:
        connection = http.client.HTTPConnection(server, timeout=_TIMEOUT)
        try:
            connection.request("GET", _PATH + key, headers={"Metadata-Flavor": "Google"})
            response = connection.getresponse()
            body = response.read(_LONGEST + 1)
        finally:
            connection.close()
        if response.getheader("Metadata-Flavor") != "Google":
            return 0, "did not answer as Google's metadata server does (Metadata-Flavor)"
        if len(body) > _LONGEST:
            return 0, f"answered with more than {_LONGEST} bytes"
        return response.status, body.decode()
    except (OSError, http.client.HTTPException, ValueError) as error:
        return 0, f"did not answer ({error or type(error).__name__})"
