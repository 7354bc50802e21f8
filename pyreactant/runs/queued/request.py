"""Queued resources as plain data: what is requested, what exists with its VMs, and errors.

A request is validated before anything is sent. The errors are those of the API.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from ...base.counted import counted
from ...base.errors import ExitCode, InvalidArgumentError, PyReactantError, argument
from ...base.slices.topology import Topology, topology

PROVISIONING = ("on-demand", "spot", "reserved")
HOUR = 3600.0

_NAME = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
_PROJECT = re.compile(r"(?:[a-z0-9.-]+:)?[a-z][-a-z0-9]{4,28}[a-z0-9]")
_ZONE = re.compile(r"[a-z]+(?:-[a-z]+)+[0-9]+-[a-z]")
_RUNTIME = re.compile(r"[a-z0-9][-._a-z0-9]{0,99}")
_NETWORK = re.compile(
    r"(?=.{1,200}$)(?:https://)?(?:[a-z0-9][-a-z0-9._:]*/)*[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?"
)
_FORMS = {
    "QR_ID": (_NAME, "a letter, then up to 62 lower-case letters, digits and dashes"),
    "PROJECT": (_PROJECT, "a project's id, such as my-project-123"),
    "ZONE": (_ZONE, "a zone, such as asia-northeast1-b"),
    "RUNTIME_VERSION": (_RUNTIME, "a TPU VM image, such as v2-alpha-tpuv6e"),
    "network": (_NETWORK, "a network's name"),
    "subnetwork": (_NETWORK, "a subnetwork's name"),
}
RESOURCE_PATH = re.compile(r"projects/[^/\s]+/locations/[^/\s]+/queuedResources/[^/\s]+")
"""Full name of a queued resource."""
SHORTEST, LONGEST = 60.0, 7 * 24 * HOUR
"""Limits of a request's time in the queue and of a lifetime, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceRequest:
    """One queued resource: slices of one kind in one zone.

    Attributes:
        name: Id (QR_ID), unique within project and zone.
        project: GCP project that is billed.
        zone: Zone of the slices, such as "asia-northeast1-b".
        accelerator_type: A slice by any name of it; then Cloud TPU's name, such as "v6e-16".
        runtime_version: TPU VM image, such as "v2-alpha-tpuv6e"; "" for the slice's own.
        slice_count: Number of slices; several are joined by the data-center network.
        provisioning: "on-demand", "spot" or "reserved".
        valid_for: Seconds for which the request may wait in the queue; None for no limit.
        lifetime: Seconds after which the VMs delete the resource, even without a launcher.
        network: None for the project's default network.
        subnetwork: None for the network's default subnetwork.
        internal_ips: Whether VMs have no public IP addresses.

    Raises:
        InvalidArgumentError: Cloud TPU does not accept a value, or the slice does not exist.
    """

    name: str
    project: str
    zone: str
    accelerator_type: str
    runtime_version: str = ""
    slice_count: int = 1
    provisioning: str = "on-demand"
    valid_for: float | None = None
    lifetime: float = 6 * HOUR
    network: str | None = None
    subnetwork: str | None = None
    internal_ips: bool = False

    def __post_init__(self) -> None:
        for label, value in (
            ("QR_ID", self.name),
            ("PROJECT", self.project),
            ("ZONE", self.zone),
            ("RUNTIME_VERSION", self.runtime_version or None),
            ("network", self.network),
            ("subnetwork", self.subnetwork),
        ):
            if value is not None:
                check_form(label, value)
        count = self.slice_count
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 512:
            raise InvalidArgumentError(
                f"{argument('SLICE_COUNT')} must be a whole number from 1 to 512, got {count!r}"
            )
        if self.provisioning not in PROVISIONING:
            raise InvalidArgumentError(
                f"{argument('provisioning')} must be one of {', '.join(PROVISIONING)}, got "
                f"{self.provisioning!r}"
            )
        for label, seconds in (("valid_for", self.valid_for), ("lifetime", self.lifetime)):
            if seconds is not None and not SHORTEST <= seconds <= LONGEST:
                raise InvalidArgumentError(
                    f"{argument(label)} must be from 60 seconds to 7 days, got {seconds:g} seconds"
                )
        self._check_slice()

    def _check_slice(self) -> None:
        slices = self.topology
        cloud = topology(slices.accelerator_type, self.slice_count)
        if (cloud.shape, cloud.host_bounds) != (slices.shape, slices.host_bounds):
            raise InvalidArgumentError(
                f"{argument('ACCELERATOR_TYPE')} must be a slice of Cloud TPU, got "
                f"{self.accelerator_type!r}, which has {_described(slices)}; Cloud TPU's "
                f"{cloud.accelerator_type} has {_described(cloud)}: name that, or use GKE"
            )
        object.__setattr__(self, "accelerator_type", cloud.accelerator_type)
        if slices.runtime_version is None:
            raise InvalidArgumentError(
                f"{self.accelerator_type} is not available as a queued resource; use GKE instead"
            )
        if not self.runtime_version:
            object.__setattr__(self, "runtime_version", slices.runtime_version)
        # A slice whose image is for another generation never becomes ready.
        other, own = map(_generation_of, (self.runtime_version, slices.runtime_version))
        if other and other != own:
            raise InvalidArgumentError(
                f"{argument('RUNTIME_VERSION')} {self.runtime_version!r} is not for "
                f"{self.accelerator_type}; use {slices.runtime_version}"
            )

    @property
    def topology(self) -> Topology:
        """Topology of all slices together."""
        return topology(self.accelerator_type, self.slice_count)

    @property
    def parent(self) -> str:
        """The API's name of project and zone."""
        return f"projects/{self.project}/locations/{self.zone}"

    @property
    def path(self) -> str:
        """The queued resource's full name."""
        return f"{self.parent}/queuedResources/{self.name}"

    @property
    def nodes(self) -> tuple[str, ...]:
        """Short names of the nodes, one for each slice."""
        if self.slice_count == 1:
            return (self.name,)
        return tuple(f"{self.name}-{i}" for i in range(self.slice_count))


def _described(slices: Topology) -> str:
    shape = "x".join(map(str, slices.shape))
    return f"{shape} chips, {slices.chips_per_host} on each VM"


def _generation_of(image: str) -> str:
    """The generation that a TPU VM image is for; "" if its name does not say it."""
    generation = re.search(r"tpu(v[0-9]+[a-z]?)(?:-lite)?", image)
    return generation.group() if generation else ""


def check_form(label: str, value: str) -> None:
    """Raise InvalidArgumentError if Cloud TPU does not accept a value."""
    form, requirement = _FORMS[label]
    if value.startswith("<"):
        raise InvalidArgumentError(
            f"{argument(label)} is still the placeholder {value!r}; replace it"
        )
    if not form.fullmatch(value):
        raise InvalidArgumentError(f"{argument(label)} must be {requirement}; got {value!r}")


# USD per chip-hour on demand in US regions (cloud.google.com/tpu/pricing, 2025). Prices change,
# and differ between regions and kinds of provisioning.
_LIST_PRICE = {"v2": 1.125, "v3": 2.0, "v4": 3.22, "v5e": 1.2, "v5p": 4.2, "v6e": 2.7}


def cost_of_forgetting(request: SliceRequest, attempts: int = 1) -> str:
    """The chip-hours until slices delete themselves, and their approximate cost.

    Args:
        attempts: Number of attempts, each with new slices: the first one and its restarts.
    """
    slices, hours = request.topology, request.lifetime / HOUR
    chip_hours = slices.chips * hours * attempts
    usd = usd_per_hour(slices)
    about = (
        ""
        if usd is None
        else (
            f", about {usd * hours * attempts:,.0f} USD at {usd / slices.chips:g} USD per chip and "
            "hour (list price of US regions on demand; see cloud.google.com/tpu/pricing)"
        )
    )
    times = "" if attempts == 1 else f" in each of {attempts} attempts"
    chips = counted(slices.chips, "chip")
    are = "is" if slices.chips == 1 else "are"
    return f"{chips} for {hours:g} h{times} {are} {chip_hours:,.0f} chip-hours{about}"


def usd_per_hour(slices: Topology) -> float | None:
    """The list price of slices for one hour; None if it is not known."""
    price = _LIST_PRICE.get(slices.generation)
    return None if price is None else slices.chips * price


def deletion_command(path: str) -> str:
    """The command of gcloud that deletes a resource."""
    _, project, _, zone, _, name = path.split("/")
    return (
        f"gcloud compute tpus queued-resources delete {name} --project={project} --zone={zone} "
        "--force --quiet"
    )


QUEUED = ("CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES")
"""No node exists yet, and nothing costs money."""

READY = "ACTIVE"
ENDED = ("FAILED", "DELETING")
"""The resource can no longer become ACTIVE."""
PREEMPTED = ("SUSPENDING", "SUSPENDED")
"""The service, or a user, took the nodes away."""

RUN_LABEL = "pyreactant-run"
LIFETIME_LABEL = "pyreactant-lifetime"
"""Labels of a node: the run that created it, and its lifetime in seconds."""

HEARTBEAT_LABEL = "pyreactant-heartbeat"
KEPT_LABEL = "pyreactant-kept"
"""Labels of a node: when its launcher was last alive, in seconds since the epoch; present if its
user keeps it."""


@dataclass(frozen=True, slots=True)
class Worker:
    """A VM of a slice.

    Attributes:
        index: Its index within the node, as in gcloud's --worker.
        external: Public IP address; "" without one.
        node_id: The node's number, which is never reused.
    """

    node: str
    index: int
    internal: str
    external: str
    node_id: str

    def __str__(self) -> str:
        return f"{self.node} worker {self.index}"


@dataclass(frozen=True, slots=True)
class Node:
    """A node, which is one slice.

    Attributes:
        created: Time of creation in seconds since the epoch, by the service's clock.
        labels: Its present labels.
    """

    created: float | None
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class QueuedResource:
    """The current state of a queued resource.

    Attributes:
        path: Its full name.
        state: The API's name for it, such as "WAITING_FOR_RESOURCES"; "STATE_99" if Google's client
            knows the number only.
        reason: The service's reason for a failure; "" without one.
        created: Time of creation by the service's clock; None if the service does not report it.
        labels: Labels of its nodes.
        node_ids: Short names of its nodes.
        by_service: Whether the service, not a user, caused this state.
    """

    path: str
    state: str
    reason: str = ""
    created: datetime | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    node_ids: tuple[str, ...] = ()
    by_service: bool = True

    @property
    def name(self) -> str:
        """Its id (QR_ID)."""
        return self.path.rpartition("/")[2]

    @property
    def run(self) -> str | None:
        """The run of pyreactant that created it; None if pyreactant did not."""
        return self.labels.get(RUN_LABEL)

    @property
    def lifetime(self) -> float | None:
        """Seconds after which it may be deleted; None if pyreactant did not create it."""
        text = self.labels.get(LIFETIME_LABEL, "")
        return float(text) if text.isdecimal() else None


class CloudError(PyReactantError, RuntimeError):
    """Cloud TPU refused a request, was unreachable, or removed the resource.

    Attributes:
        later: Whether the same request may succeed later.
    """

    exit_code: int = ExitCode.CLOUD

    def __init__(self, message: str, *, later: bool = False) -> None:
        super().__init__(message)
        self.later = later


class NotOursError(CloudError):
    """The resource was not created by this run, so it is never deleted."""


class PreemptedError(CloudError):
    """The service took the nodes away; the same request may succeed again."""

    exit_code: int = ExitCode.LOST
