"""A queued resource and its VMs as plain data, and the errors of the API."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from .._errors import PyReactantError

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

_BY_USER = 1  # QueuedResourceState.StateInitiator.USER; importing the client takes a second


@dataclass(frozen=True, slots=True)
class Worker:
    """A VM of a slice.

    Attributes:
        node: Short name of its node, one per slice.
        index: Its index within the node, as in gcloud's --worker.
        internal: IP address within the network.
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
class Resource:
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
        return float(text) if text.isdigit() else None


def from_api(found: Any) -> Resource:
    """A `google.cloud.tpu_v2.QueuedResource` as plain data."""
    specs = list(found.tpu.node_spec)
    state = found.state
    failed = state.failed_data.error
    reason = f"{failed.message} (code {failed.code})" if failed.message or failed.code else ""
    name = found.name.rpartition("/")[2]
    return Resource(
        path=found.name,
        state=state_name(state),
        reason=reason,
        created=found.create_time,
        labels=dict(specs[0].node.labels) if specs else {},
        node_ids=tuple(node for spec in specs for node in _node_ids(spec, name)),
        by_service=type(state).pb(state).state_initiator != _BY_USER,
    )


def state_name(message: Any) -> str:
    """The name of a message's state; its number if Google's client does not know it."""
    number = type(message).pb(message).state
    known = type(message).State
    return known(number).name if number in known.__members__.values() else f"STATE_{number}"


def _node_ids(spec: Any, name: str) -> list[str]:
    count = spec.multislice_params.node_count
    if not count:
        return [spec.node_id]
    prefix = spec.multislice_params.node_id_prefix or name
    return [f"{prefix}-{i}" for i in range(count)]


class CloudError(PyReactantError, RuntimeError):
    """Cloud TPU refused a request, was unreachable, or removed the resource.

    Attributes:
        later: Whether the same request may succeed later.
    """

    exit_code: int = 8

    def __init__(self, message: str, *, later: bool = False) -> None:
        super().__init__(message)
        self.later = later


class NotOursError(CloudError):
    """The resource was not created by this run, so it is never deleted."""


class PreemptedError(CloudError):
    """The service took the nodes away; the same request may succeed again."""

    exit_code: int = 6
