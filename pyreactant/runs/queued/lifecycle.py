"""Life cycle of a queued resource: request it, wait for it, and always delete it."""

import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.counted import counted
from ...base.errors import DeadlineError, FileError, RequirementError
from ...base.say import Repeated
from .deletion import Deleter, Outcome
from .journal import CLOCK_TOLERANCE, Heartbeat, entry
from .request import (
    ENDED,
    PREEMPTED,
    READY,
    CloudError,
    NotOursError,
    PreemptedError,
    QueuedResource,
    SliceRequest,
    Worker,
    cost_of_forgetting,
)

if TYPE_CHECKING:
    from .client import Client


def scripts_folder() -> Path:
    """The folder "gcloud" of the checkout, or its copy in the installed package.

    Raises:
        FileError: Neither exists.
    """
    package = Path(__file__).resolve().parent.parent.parent
    for folder in (package.parent / "gcloud", package / "_gcloud"):
        if (folder / "expire.sh").exists():
            return folder
    raise FileError(f"gcloud/expire.sh is neither beside {package} nor in it; reinstall pyreactant")


def startup_script(request: SliceRequest) -> str:
    """expire.sh with this request's RESOURCE and LIFETIME, for the metadata of every node."""
    text = (scripts_folder() / "expire.sh").read_text(encoding="utf-8")
    first, _, rest = text.partition("\n")
    values = {"RESOURCE": request.path, "LIFETIME": str(int(request.lifetime))}
    settings = "\n".join(f"{key}={shlex.quote(value)}" for key, value in values.items())
    return f"{first}\n{settings}\n{rest}"


class Stage(IntEnum):
    """What this process knows of the resource that it must delete."""

    UNASKED = 0
    """Nothing was requested, or the name is another's: there is nothing to delete."""
    ASKED = 1
    """Whether the request arrived is not known."""
    REFUSED = 2
    ACCEPTED = 3
    """By the API; the resource need not be visible yet."""
    FAILED = 4
    """Accepted, but not created."""
    SEEN = 5


@dataclass(slots=True)
class Lease:
    """One queued resource that this process must delete.

    Attributes:
        deleter: Deletes it, and has the client, the journal and the times of all steps.
        request: The resource to create.
        run: Label of this run, on the resource and in the journal.
        kept: Whether the resource outlives this process.
        to_keep: Whether `keep` will be called once the resource is ACTIVE.
        heartbeat: Seconds between two signs of life on the nodes.
        bare: Seconds for which the resource may be ACTIVE, and cost money, without all of its VMs.
    """

    deleter: Deleter
    request: SliceRequest
    run: str
    kept: bool = False
    to_keep: bool = False
    heartbeat: float = 120.0
    bare: float = 600.0
    _stage: Stage = field(default=Stage.UNASKED, init=False)
    _asked: float = field(default=0.0, init=False)
    _heart: Heartbeat | None = field(default=None, init=False)
    _operation: Any = field(default=None, init=False)
    _created: datetime | None = field(default=None, init=False)

    def create(self) -> None:
        """Record the resource in the journal, then request it.

        Raises:
            CloudError: The API refuses, or the name is taken.
            RequirementError: The journal cannot be written, or there are no usable credentials;
                nothing was requested.
        """
        request = self.request
        # Credentials that expired must show before the request.
        taken = self.deleter.client.get(request.path) is not None
        cost = cost_of_forgetting(request)
        self.deleter.tell(f"requesting {request.name}; if nothing deletes it before: {cost}")
        asked = time.time()
        self.deleter.journal.write(entry(request, self.run, asked=asked, kept=self.kept))
        self._asked, self._stage = asked, Stage.ASKED
        try:
            with _after_the_request():
                self._operation = self.deleter.client.create(
                    request,
                    self.run,
                    startup_script(request),
                    kept=self.kept or self.to_keep,
                )
        except NotOursError:
            self._stage = Stage.REFUSED
            resource = self.deleter.client.get(request.path)
            if resource is not None and (taken or resource.run is not None):
                self._stage = Stage.UNASKED  # another's resource: there is nothing to delete
                self.deleter.journal.forget(self.run)
            raise
        except CloudError as error:
            if not error.later:
                self._stage = Stage.REFUSED
            raise
        self._stage = Stage.ACCEPTED

    def wait(self, timeout: float) -> list[Worker]:
        """Wait until the resource is ACTIVE and the API lists all of its VMs.

        Raises:
            DeadlineError: It is not ACTIVE within `timeout` seconds.
            PreemptedError: The service took the nodes away.
            CloudError: The request failed, the resource was deleted, or it is ACTIVE without VMs.
        """
        with _after_the_request():
            workers = self._wait(timeout)
        if not (self.kept or self.to_keep):
            renew = partial(self.deleter.client.renew, self.request)
            self._heart = Heartbeat(renew, self.deleter.tell, self.heartbeat)
        return workers

    def _wait(self, timeout: float) -> list[Worker]:
        name, hosts = self.request.name, self.request.topology.hosts
        start = since = time.monotonic()
        pause, state, repeated = self.deleter.pause, "", Repeated(self.deleter.tell)
        while True:
            resource = self._poll()
            now = time.monotonic()
            if resource is not None and resource.state != state:
                state, since = resource.state, now
            reason = f": {resource.reason}" if resource is not None and resource.reason else ""
            if resource is not None and state == READY:
                workers = self.deleter.client.workers(self.request)
                active = f"{name} is ACTIVE for {now - since:.0f} s"
                if resource.run is None and now - since > self.deleter.unseen:
                    self.kept = False
                    raise CloudError(
                        f"{active}, and Cloud TPU's answers lack its labels, without which no "
                        "command recognises it; request it again"
                    )
                if resource.run is not None and len(workers) == hosts:
                    return workers
                labels = "" if resource.run else ", without its labels"
                reason = f", with {len(workers)} of {counted(hosts, 'VM')}{labels}{reason}"
                if now - since > self.bare:
                    raise CloudError(
                        f"{active}{reason}; Cloud TPU must list all VMs by then; request it again, "
                        "or in another zone"
                    )
            shown = f"{name} is {state or 'not visible yet'}"
            repeated.say(f"{shown} (for {now - since:.0f} s){reason}", about=shown)
            if now - start > timeout and state == READY:
                raise DeadlineError(
                    f"{name} is {state}{reason}, after {timeout:.0f} s; wait longer (--wait), or "
                    "request it again"
                )
            if now - start > timeout:
                raise DeadlineError(
                    f"{name} is {state or 'not visible'} and not ACTIVE after {timeout:.0f} s; "
                    "wait longer (--wait), or request fewer chips, another zone or another kind of "
                    "provisioning"
                )
            time.sleep(min(pause, max(start + timeout - now, 0.01)))
            pause = min(pause * 1.2, self.deleter.pause * 10)

    def keep(self) -> None:
        """Keep the resource after this process, until its lifetime is over.

        Raises:
            CloudError: The journal cannot be written.
        """
        with _after_the_request():
            self.deleter.journal.write(
                entry(self.request, self.run, asked=time.time(), kept=True, active=True)
            )
        self.kept = True

    def check(self) -> None:
        """Raise PreemptedError or CloudError if the resource is no longer ACTIVE."""
        with _after_the_request():
            resource = self._poll()
        if resource is None or resource.state != READY:
            raise CloudError(f"{self.request.name} is no longer ACTIVE")

    def _poll(self) -> QueuedResource | None:
        """The resource's current state; raises if it can no longer become ACTIVE."""
        resource, name = self.deleter.client.get(self.request.path), self.request.name
        if resource is None:
            failed = self.deleter.client.operation_error(self._operation)
            if failed is not None:
                self._stage = max(self._stage, Stage.FAILED)
                raise CloudError(f"Cloud TPU did not create {name}: {failed}")
            if self._stage is Stage.SEEN:
                raise CloudError(f"{name} was deleted by somebody else")
            return None
        if resource.run != self.run and not self._is_ours(resource):
            raise CloudError(f"{name} was deleted, and another resource has its name now")
        if self._stage is not Stage.SEEN and resource.created is not None:
            wrong = clock_error(resource.created.timestamp(), self._asked, time.time())
            if wrong:
                self.deleter.tell(wrong)
        self._stage, self._created = Stage.SEEN, self._created or resource.created
        if resource.state in PREEMPTED:
            cause = "by Cloud TPU (preempted)" if resource.by_service else "by a user"
            raise PreemptedError(f"{name} is {resource.state} {cause}; its VMs are gone")
        if resource.state == "FAILED":
            reason = resource.reason or "it gave no reason"
            raise CloudError(f"Cloud TPU could not provide {name}: {reason}")
        if resource.state == "DELETING":
            raise CloudError(f"{name} is being deleted by somebody else")
        return resource  # a state that is not known may be one that ends

    def _is_ours(self, resource: QueuedResource) -> bool:
        """Whether a resource whose labels the API does not say is this run's.

        The API answered the request for this name, and the resource is the one seen first.
        """
        if resource.run is not None or self._stage < Stage.ACCEPTED:
            return False
        self._created = self._created or resource.created
        return resource.created in (None, self._created)

    def close(self) -> None:
        """Delete the resource and wait until it is gone, unless it is kept.

        Its note is removed if the resource was there and is gone, or if the API refused it.

        Raises:
            CloudError: It could not be deleted; the message has the command that deletes it.
        """
        if self._heart is not None:
            self._heart.stop()
        seen = self._stage is Stage.SEEN
        if self._stage is Stage.UNASKED or (self.kept and seen):
            return
        outcome = self.deleter.delete(
            self.request.path,
            self.run,
            unseen=0.0 if seen else self.deleter.unseen,
            is_ours=self._is_ours,
        )
        if outcome is not Outcome.GONE or seen or self._stage in (Stage.REFUSED, Stage.FAILED):
            self.deleter.journal.forget(self.run)
            return
        trouble = (
            f"{self.request.name} did not appear, and whether the request arrived is not known"
        )
        self.deleter.journal.note_trouble(self.run, trouble)
        self.deleter.tell(f"{trouble}; run in some minutes: pyreactant tpu gc")


@contextmanager
def _after_the_request() -> Iterator[None]:
    """A missing requirement is an error of the cloud once the resource was requested.

    The exit code of a missing requirement promises that nothing was requested.
    """
    try:
        yield
    except RequirementError as error:
        raise CloudError(str(error)) from error


def clock_error(created: float, asked: float, now: float) -> str | None:
    """A message if this machine's clock must be wrong; otherwise None.

    Args:
        created: Time of the resource's creation by Google's clock, in seconds since the epoch.
        asked: Time of the request, by this machine's clock.
        now: Time at which the resource was first visible, by this machine's clock.
    """
    ahead = max(asked - created, 0.0) or min(now - created, 0.0)
    if abs(ahead) < CLOCK_TOLERANCE:
        return None
    return (
        f"this machine's clock is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} "
        "Google's: set it (timedatectl set-ntp true), because `pyreactant tpu gc` decides by it "
        "whether a lifetime is over"
    )


def wait_for(client: "Client", path: str, timeout: float, tell: Callable[[str], None]) -> None:
    """Wait until a queued resource of any origin is ACTIVE.

    Raises:
        DeadlineError: It is not ACTIVE within `timeout` seconds.
        PreemptedError: Its VMs were taken away.
        CloudError: It does not exist, or can no longer become ACTIVE.
    """
    name, start = path.rpartition("/")[2], time.monotonic()
    repeated = Repeated(tell)
    while True:
        resource = client.get(path)
        if resource is None:
            raise CloudError(f"there is no queued resource {path}")
        state, reason, waited = resource.state, resource.reason, time.monotonic() - start
        repeated.say(
            f"{name} is {state}{f': {reason}' if reason else ''}; waiting for another "
            f"{max(timeout - waited, 0):.0f} s",
            about=state,
        )
        if state == READY:
            return
        if state in PREEMPTED:
            raise PreemptedError(f"{name} is {state}; its VMs are gone")
        if state in ENDED:
            raise CloudError(f"{name} is {state} and cannot become ACTIVE: {reason}")
        if waited > timeout:
            raise DeadlineError(f"{name} is {state} and not ACTIVE after {timeout:.0f} s")
        time.sleep(min(5.0, timeout / 10))
