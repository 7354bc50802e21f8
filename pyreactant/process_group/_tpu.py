"""Cloud TPU slices: Google Kubernetes Engine says in variables who is who."""

import re
from collections.abc import Mapping, Sequence

from .._errors import InvalidArgumentError
from ._data import ProcessGroup, join_address
from ._environment import COORDINATOR, env_int, local_devices, required, required_int, seen
from ._finding import Finding

NAME = "Cloud TPU on GKE"
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
        return Finding(NAME, f"{_HOSTS} is not set", seen((_WORKER, *MEGASCALE), environ))
    saw = seen((_WORKER, _HOSTS, *MEGASCALE), environ)
    try:
        hosts = [host_of(_HOSTS, host) for host in environ[_HOSTS].split(",")]
        alone = len(hosts) == 1 and not environ.get(_WORKER)
        worker = 0 if alone else required_int(_WORKER, environ)
        group = slice_group(NAME, (_WORKER, worker), hosts, environ, environ)
    except InvalidArgumentError as trap:
        return Finding(NAME, "the variables contradict each other", saw, trap=trap)
    return Finding(NAME, f"worker {worker} of {len(hosts)} of a slice", saw, group)


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
