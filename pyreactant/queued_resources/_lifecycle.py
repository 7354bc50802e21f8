"""The life of a queued resource: asked for, waited for, deleted whatever happens."""

import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._errors import DeadlineError, FileError
from ._journal import Journal, entry
from ._request import Request
from ._resource import PREEMPTED, READY, WAITING, CloudError, PreemptedError, Resource, Worker


def scripts_folder() -> Path:
    """The folder with run.sh: of the checkout, or within the installed package.

    Raises:
        FileError: It is in neither.
    """
    package = Path(__file__).resolve().parent.parent
    for folder in (package.parent / "gcloud", package / "_gcloud"):
        if (folder / "expire.sh").exists():
            return folder
    raise FileError(f"gcloud/expire.sh is neither beside nor in {package}; install it again")


def startup_script(request: Request) -> str:
    """expire.sh with this request's values before it; metadata of every node."""
    text = (scripts_folder() / "expire.sh").read_text(encoding="utf-8")
    first, _, rest = text.partition("\n")
    values = {"RESOURCE": request.path, "LIFETIME": str(int(request.lifetime))}
    given = "\n".join(f"{key}={shlex.quote(value)}" for key, value in values.items())
    return f"{first}\n{given}\n{rest}"


if TYPE_CHECKING:
    from ._client import Client

CLOCKS = 60.0
"""Seconds by which clocks may differ before it is said; `gc` allows ten times that."""


@dataclass(slots=True)
class Lease:
    """One queued resource that this process answers for.

    Attributes:
        client: The API.
        request: What is asked for.
        run: Label of this run, on the resource and in the journal.
        journal: Where it is noted.
        tell: Says a sentence to the user.
        kept: Whether it outlives this process.
        pause: Seconds between two looks at its state, growing to ten times that.
        unseen: Seconds for which a resource that was just asked for may be invisible.
        deletion: Seconds that a deletion may take, broken connections included.
    """

    client: "Client"
    request: Request
    run: str
    journal: Journal
    tell: Callable[[str], None]
    kept: bool = False
    pause: float = 1.0
    unseen: float = 10.0
    deletion: float = 900.0
    _asked: float | None = field(default=None, init=False)
    _seen: bool = field(default=False, init=False)
    _operation: Any = field(default=None, init=False)

    def create(self) -> None:
        """Ask for it; noted in the journal first.

        Raises:
            CloudError: The API refuses, or the name is taken.
            FileError: It cannot be noted.
        """
        request = self.request
        asked = time.time()
        self.journal.write(entry(request.path, self.run, asked, request.lifetime, self.kept))
        self._asked = asked
        self._operation = self.client.create(request, self.run, startup_script(request))

    def wait(self, timeout: float) -> list[Worker]:
        """Wait until it is ACTIVE and all of its VMs are there.

        Raises:
            DeadlineError: It is not within `timeout` seconds.
            PreemptedError: The service took it away.
            CloudError: It failed, or somebody deleted it.
        """
        deadline = time.monotonic() + timeout
        pause, state, since, said = self.pause, "", time.monotonic(), 0.0
        while True:
            found = self._look()
            now = time.monotonic()
            if found is not None and found.state != state:
                state, since, said = found.state, now, 0.0
            if now - said > 60 or not said:
                said = now
                reason = f": {found.reason}" if found is not None and found.reason else ""
                self.tell(
                    f"{self.request.name} is {state or 'not seen yet'}, for "
                    f"{now - since:.0f} s{reason}"
                )
            if found is not None and found.state == READY:
                workers = self.client.workers(self.request)
                if len(workers) == self.request.topology.hosts:
                    return workers
            if now > deadline:
                raise DeadlineError(
                    f"{self.request.name} is {state or 'not seen'} and not ACTIVE after "
                    f"{timeout:.0f} s; wait longer (--wait), or ask for fewer chips, another zone "
                    "or another kind of provisioning"
                )
            time.sleep(min(pause, max(deadline - now, 0.01)))
            pause = min(pause * 1.2, self.pause * 10)

    def keep(self) -> None:
        """Let it outlive this process; its lifetime ends it all the same.

        Raises:
            FileError: It cannot be noted.
        """
        made = entry(self.request.path, self.run, time.time(), self.request.lifetime, True)
        self.journal.write(made)
        self.kept = True

    def check(self) -> None:
        """Raise PreemptedError or CloudError where it is no longer ACTIVE."""
        found = self._look()
        if found is None or found.state != READY:
            raise CloudError(f"{self.request.name} is no longer ACTIVE")

    def _look(self) -> Resource | None:
        """How it is; raises where it will never be ready."""
        found = self.client.get(self.request.path)
        name = self.request.name
        if found is None:
            failed = self.client.operation_error(self._operation)
            if failed is not None:
                raise CloudError(f"Cloud TPU did not create {name}: {failed}")
            if self._seen:
                raise CloudError(f"{name} was deleted by somebody else")
            return None
        if found.run != self.run:
            raise CloudError(f"{name} was deleted, and its name taken, by somebody else")
        if not self._seen and self._asked is not None and found.created is not None:
            wrong = clock_error(found.created.timestamp(), self._asked, time.time())
            if wrong:
                self.tell(wrong)
        self._seen = True
        if found.state in PREEMPTED:
            who = "by Cloud TPU (preempted)" if found.by_service else "by a user"
            raise PreemptedError(f"{name} is {found.state} {who}; its VMs are gone")
        if found.state == "FAILED":
            raise CloudError(f"Cloud TPU could not provide {name}: {found.reason or 'no reason'}")
        if found.state == "DELETING":
            raise CloudError(f"{name} is being deleted by somebody else")
        return found if found.state in (*WAITING, READY) else None

    def close(self) -> None:
        """Delete it, unless it is to be kept, and see that it is gone.

        Raises:
            CloudError: It could not be deleted; the message says how to do it by hand.
        """
        if self._asked is None:
            return
        if self.kept and self._seen:
            return
        end_of_life(
            self.client,
            self.request.path,
            self.run,
            self.tell,
            first=not self._seen,
            unseen=self.unseen,
            timeout=self.deletion,
            pause=self.pause,
        )
        self.journal.forget(self.run)


def end_of_life(
    client: "Client",
    path: str,
    run: str,
    tell: Callable[[str], None],
    *,
    first: bool,
    unseen: float,
    timeout: float,
    pause: float,
) -> None:
    """Delete a resource of one run, and wait until the API no longer knows it.

    A resource of the same name that another run, or somebody else, made is left alone.

    Args:
        client: The API.
        path: The resource's full name.
        run: The run whose it must be.
        tell: Says a sentence to the user.
        first: Whether its creation may be under way unseen.
        unseen: Seconds to look for it in that case.
        timeout: Seconds for all.
        pause: Seconds between two looks.

    Raises:
        CloudError: It is not gone in time.
    """
    start = time.monotonic()
    asked, said, trouble = False, False, ""
    while (past := time.monotonic() - start) < timeout:
        try:
            found = client.get(path)
            if found is not None and found.run != run:
                return  # the name is another's by now
            if found is None and (asked or not first or past >= unseen):
                if asked:
                    tell(f"{path.rpartition('/')[2]} is deleted")
                return
            if found is not None and not (asked and found.state == "DELETING"):
                if not said:
                    said = True
                    tell(f"deleting {path.rpartition('/')[2]}, which is {found.state}")
                client.delete(path)
                asked = True
        except CloudError as error:
            if str(error) != trouble:
                trouble = str(error)
                tell(f"deletion does not get through yet: {trouble}")
        time.sleep(pause)
    raise CloudError(not_deleted(path, trouble))


def clock_error(created: float, asked: float, now: float) -> str | None:
    """What to say of this machine's clock; None where it may be right.

    Args:
        created: When the resource came into being, by Google's clock, in seconds of the epoch.
        asked: When it was asked for, by this machine's.
        now: When it was first seen, by this machine's.
    """
    ahead = max(asked - created, 0.0) or min(now - created, 0.0)
    if abs(ahead) < CLOCKS:
        return None
    return (
        f"this machine's clock is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} "
        "Google's: set it (timedatectl set-ntp true), since `pyreactant tpu gc` tells by it when "
        "a lifetime is over"
    )


def wait_for(client: "Client", path: str, timeout: float, tell: Callable[[str], None]) -> None:
    """Wait until a queued resource, whoever made it, is ACTIVE.

    Raises:
        DeadlineError: It is not within `timeout` seconds.
        PreemptedError: Its VMs were taken away.
        CloudError: There is none, or it will never be ACTIVE.
    """
    name, deadline, state = path.rpartition("/")[2], time.monotonic() + timeout, ""
    while True:
        found = client.get(path)
        if found is None:
            raise CloudError(f"there is no queued resource {path}")
        if found.state != state:
            state = found.state
            tell(f"{name} is {state}{f': {found.reason}' if found.reason else ''}")
        if state == READY:
            return
        if state in PREEMPTED:
            raise PreemptedError(f"{name} is {state}; its VMs are gone")
        if state not in WAITING:
            raise CloudError(f"{name} is {state} and will not be ACTIVE: {found.reason}")
        if time.monotonic() > deadline:
            raise DeadlineError(f"{name} is {state} and not ACTIVE after {timeout:.0f} s")
        time.sleep(min(5.0, timeout / 10))


def not_deleted(path: str, trouble: str) -> str:
    """What to do about a resource that is still there."""
    _, project, _, zone, _, name = path.split("/")
    return (
        f"{name} could NOT be deleted{f' ({trouble})' if trouble else ''} and goes on costing "
        f"money; run: gcloud compute tpus queued-resources delete {name} --project={project} "
        f"--zone={zone} --force --quiet   (or pyreactant tpu gc)"
    )
