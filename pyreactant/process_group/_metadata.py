"""Cloud TPU virtual machines: the metadata server says who is who."""

from collections.abc import Mapping

from .._errors import InvalidArgumentError
from ._environment import COORDINATOR, COUNT, INDEX, seen
from ._finding import Finding
from ._tpu import MEGASCALE, host_of, slice_group

NAME = "Cloud TPU metadata"
_SERVERS = ("GCE_METADATA_HOST", "GCE_METADATA_IP")
_DEFAULT_SERVER = "metadata.google.internal"
_PATH = "/computeMetadata/v1/instance/attributes/"
_TIMEOUT = 3
_ATTEMPTS = 3
_PAUSE = 0.5
_LONGEST = 1 << 20
_WORKER, _ENDPOINTS, _TPU_ENV = "agent-worker-number", "worker-network-endpoints", "tpu-env"


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
        return Finding(NAME, "not asked: TPU_SKIP_MDS_QUERY is set", saw)
    if not chips and not any(environ.get(name) for name in _SERVERS):
        return Finding(NAME, "not asked: this machine has no TPU", saw)
    server = environ.get(_SERVERS[0]) or environ.get(_SERVERS[1]) or _DEFAULT_SERVER
    try:
        answers = {key: _attribute(server, key) for key in (_WORKER, _ENDPOINTS, _TPU_ENV)}
        if answers[_WORKER] is None:
            return Finding(NAME, f"{server} knows no {_WORKER}: no machine of a slice", saw)
        saw |= {key: answers[key] or "" for key in (_WORKER, _ENDPOINTS)}
        hosts = endpoints(answers[_ENDPOINTS] or "")
        worker = worker_number(answers[_WORKER] or "")
        megascale = {**tpu_env(answers[_TPU_ENV] or ""), **seen(MEGASCALE, environ)}
        saw |= seen(MEGASCALE, megascale)
        group = slice_group(NAME, (_WORKER, worker), hosts, megascale, environ)
    except InvalidArgumentError as trap:
        return Finding(NAME, "the metadata cannot be used", saw, trap=trap)
    return Finding(NAME, f"worker {worker} of {len(hosts)} of a slice", saw, group)


def tpu_chips(devices: str = "/sys/bus/pci/devices") -> int:
    """How many TPUs are on this machine.

    Google's PCI devices (vendor 0x1ae0) without its network cards and disks, which every
    virtual machine of Google's has (PCI ID repository; PCI classes 1 and 2).
    """
    from pathlib import Path

    found = 0
    for vendor in Path(devices).glob("*/vendor"):
        try:
            if vendor.read_text().strip() == "0x1ae0":
                kind = int(vendor.with_name("class").read_text(), 16) >> 16
                found += kind not in (1, 2)
        except (OSError, ValueError):  # a device that goes away, or hides
            continue
    return found


def worker_number(text: str) -> int:
    """This worker's index within its slice.

    Raises:
        InvalidArgumentError: It is no number.
    """
    number = text.strip()
    if not (number.isascii() and number.isdigit() and len(number) < 10):
        raise InvalidArgumentError(f"metadata {_WORKER} must be a whole number, got {text!r:.200}")
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
