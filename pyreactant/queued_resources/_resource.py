"""What the API says of a queued resource and its nodes, as plain data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from .._errors import PyReactantError

WAITING = ("CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING")
READY = "ACTIVE"
PREEMPTED = ("SUSPENDING", "SUSPENDED")
"""The service took the nodes away, or somebody did."""

RUN_LABEL = "pyreactant-run"
LIFETIME_LABEL = "pyreactant-lifetime"
"""Labels of a node: which run made it, and after how many seconds it may be deleted."""


@dataclass(frozen=True, slots=True)
class Worker:
    """A VM of a slice.

    Attributes:
        node: Short name of its node, one per slice.
        index: Within its node, as gcloud's --worker counts.
        internal: Address within the network.
        external: Address of the internet, "" where it has none.
        node_id: The node's number, which no other node ever gets.
    """

    node: str
    index: int
    internal: str
    external: str
    node_id: str

    def __str__(self) -> str:
        return f"{self.node} worker {self.index}"


@dataclass(frozen=True, slots=True)
class Resource:
    """A queued resource as it is now.

    Attributes:
        path: Its full name.
        state: As the API names it, such as "WAITING_FOR_RESOURCES".
        reason: What the service says of the state, "" where nothing.
        created: By the service's clock; None where it does not say.
        labels: Of its nodes.
        node_ids: Short names of its nodes.
        by_service: Whether the service, not a user, brought it into this state.
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
        """Its id."""
        return self.path.rpartition("/")[2]

    @property
    def run(self) -> str | None:
        """The run of pyreactant that made it; None for a resource of somebody else."""
        return self.labels.get(RUN_LABEL)

    @property
    def lifetime(self) -> float | None:
        """Seconds after which it may be deleted; None for a resource of somebody else."""
        text = self.labels.get(LIFETIME_LABEL, "")
        return float(text) if text.isdigit() else None


def from_api(found: Any) -> Resource:
    """Plain data of a `google.cloud.tpu_v2.QueuedResource`."""
    specs = list(found.tpu.node_spec)
    state = found.state
    failed = state.failed_data.error
    reason = f"{failed.message} (code {failed.code})" if failed.message or failed.code else ""
    name = found.name.rpartition("/")[2]
    return Resource(
        path=found.name,
        state=state.state.name,
        reason=reason,
        created=found.create_time,
        labels=dict(specs[0].node.labels) if specs else {},
        node_ids=tuple(node for spec in specs for node in _node_ids(spec, name)),
        by_service=state.state_initiator.name != "USER",
    )


def _node_ids(spec: Any, name: str) -> list[str]:
    count = spec.multislice_params.node_count
    if not count:
        return [spec.node_id]
    prefix = spec.multislice_params.node_id_prefix or name
    return [f"{prefix}-{i}" for i in range(count)]


class CloudError(PyReactantError, RuntimeError):
    """Cloud TPU said no, could not be reached, or took the resource away.

    Attributes:
        later: Whether the same may work at another time.
    """

    exit_code: ClassVar[int] = 8

    def __init__(self, message: str, *, later: bool = False) -> None:
        super().__init__(message)
        self.later = later


class NotOursError(CloudError):
    """The name belongs to a resource that this run did not make; it is never deleted."""


class PreemptedError(CloudError):
    """The service took the nodes away; the same request may be made again."""

    exit_code: ClassVar[int] = 6
