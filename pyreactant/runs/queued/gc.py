"""Delete what killed launchers left: what the journal lists, and what labels and time tell."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...base.errors import RequirementError
from .deletion import Outcome, delete_and_wait, deletion_command
from .journal import CLOCK_TOLERANCE, Entry, Journal, signs
from .request import QUEUED, CloudError, NotOursError, Resource

if TYPE_CHECKING:
    from .client import Client

_MARGIN = 10 * CLOCK_TOLERANCE  # seconds by which clocks of launchers, Google and gc may differ
_IN_FLIGHT = 120.0  # seconds after which a request that was sent can no longer create a resource


@dataclass(frozen=True, slots=True)
class Finding:
    """What gc did about one resource.

    Attributes:
        name: Full name of the resource, or path of a damaged journal entry.
        action: "deleted", "left", "gone" or "failed".
        text: The reason.
        costs: Whether it may cost money although nobody is known to be responsible for it.
    """

    name: str
    action: str
    text: str
    costs: bool = False


def collect(
    client: "Client",
    journal: Journal,
    tell: Callable[[str], None],
    *,
    parents: Iterable[str] = (),
    dry_run: bool = False,
    force: bool = False,
    pause: float = 1.0,
    unseen: float = 10.0,
    timeout: float = 900.0,
) -> list[Finding]:
    """Delete pyreactant's resources whose launcher is dead or whose lifetime is over.

    A launcher that holds the lock of its entry is alive, and its resource is left.

    Args:
        client: Client of the API.
        journal: Journal of this machine's resources.
        tell: Prints a message for the user.
        parents: Projects and zones ("projects/P/locations/Z") in which resources of other
            machines are deleted too, once their lifetime is over.
        dry_run: Whether to report only, and delete nothing.
        force: Whether to delete also what waits in the queue, if it is not known whether its
            launcher is alive.
        pause: Seconds between two polls.
        unseen: Seconds within which a resource that was just requested may still appear.
        timeout: Seconds for the deletion of one resource.
    """
    collector = _Collector(
        client, journal, tell, dry_run, force=force, pause=pause, unseen=unseen, timeout=timeout
    )
    findings = []
    for noted in journal.entries():
        if isinstance(noted, Entry):
            findings.append(collector.recorded(noted))
        else:
            reason = f"{noted} is damaged; inspect it and remove it"
            findings.append(Finding(noted.name, "left", reason, costs=True))
    known = {finding.name for finding in findings}
    for parent in parents:
        try:
            resources = client.resources(parent)
        except (CloudError, RequirementError) as error:
            findings.append(Finding(parent, "failed", str(error), costs=True))
            continue
        findings += [
            collector.labelled(resource, resource.run)
            for resource in resources
            if resource.run is not None and resource.path not in known
        ]
    return findings


@dataclass(frozen=True, slots=True)
class _Collector:
    client: "Client"
    journal: Journal
    tell: Callable[[str], None]
    dry_run: bool
    force: bool
    pause: float
    unseen: float
    timeout: float

    def recorded(self, noted: Entry) -> Finding:
        """Handle a resource that this machine requested."""
        path, process = noted.path, f"process {noted.pid} on {noted.host}"
        launcher = self.journal.launcher(noted)
        if launcher == "alive":
            return Finding(path, "left", f"its launcher ({process}) is alive")
        try:
            found = self.client.get(path)
            if found is not None and found.run is None:
                return Finding(path, "left", _unlabelled(path), costs=True)
            reason = "its launcher is dead"
            if found is not None and found.run == noted.run:
                why, delete = self._judge(
                    found, noted.lifetime, kept=noted.kept, dead=launcher == "dead"
                )
                if not delete:
                    return Finding(path, "left", f"{why} ({process})")
                reason = why
            if self.dry_run:
                return Finding(path, "left", f"{reason}; it would be deleted", costs=True)
            outcome = delete_recorded(
                self.client,
                self.journal,
                noted,
                tell=self.tell,
                unseen=self.unseen,
                timeout=self.timeout,
                pause=self.pause,
            )
        except InFlightError as error:
            return Finding(path, "left", str(error), costs=True)
        except (CloudError, RequirementError) as error:
            return Finding(path, "failed", str(error), costs=True)
        return Finding(path, "deleted" if outcome == "deleted" else "gone", reason)

    def labelled(self, resource: Resource, run: str) -> Finding:
        """Handle a resource that another machine requested."""
        path, lifetime = resource.path, resource.lifetime
        try:
            reason, delete = self._judge(resource, lifetime, kept=False, dead=False)
            if not delete:
                return Finding(path, "left", f"another machine created it; {reason}")
            if self.dry_run:
                return Finding(path, "left", f"{reason}; it would be deleted", costs=True)
            delete_and_wait(
                self.client,
                path,
                run,
                journal=self.journal,
                tell=self.tell,
                timeout=self.timeout,
                pause=self.pause,
            )
        except (CloudError, RequirementError) as error:
            return Finding(path, "failed", str(error), costs=True)
        return Finding(path, "deleted", reason)

    def _judge(
        self, resource: Resource, lifetime: float | None, *, kept: bool, dead: bool
    ) -> tuple[str, bool]:
        """Whether to delete a resource whose launcher may be dead, and why.

        The lifetime begins with the nodes, and not in the queue.

        Args:
            resource: The resource.
            lifetime: Seconds for which its nodes may exist; None if that is unknown.
            kept: Whether its user is known to keep it.
            dead: Whether its launcher is known to be dead.
        """
        seen = signs(self.client.nodes(resource))
        if seen.alive and not dead:
            return f"its launcher was alive {max(seen.silent or 0.0, 0.0):.0f} s ago", False
        if seen.age is not None and lifetime is not None and seen.age > lifetime + _MARGIN:
            return "its lifetime is over", True
        if kept or (seen.kept and not dead):
            return "its user asked to keep it", False
        if dead:
            return "its launcher is dead", True
        if seen.dead:
            return f"its launcher is silent for {(seen.silent or 0.0) / 60:.0f} minutes", True
        if self.force and resource.state in QUEUED:
            return f"--force, and it is {resource.state}", True
        return "whether its launcher is alive is unknown, and its lifetime is not over", False


class InFlightError(CloudError):
    """A request whose answer was lost may still create its slices."""


def delete_recorded(
    client: "Client",
    journal: Journal,
    noted: Entry,
    *,
    tell: Callable[[str], None],
    timeout: float,
    unseen: float = 10.0,
    pause: float = 1.0,
) -> Outcome:
    """Delete what an entry is about, whoever keeps it, and forget the entry when it is gone.

    Args:
        client: Client of the API.
        journal: Journal that has the entry.
        noted: The entry.
        tell: Prints a message for the user.
        timeout: Seconds for the whole deletion.
        unseen: Seconds within which a resource that was just requested may still appear.
        pause: Seconds between two polls at first.

    Raises:
        InFlightError: The request may still arrive; the entry stays.
        CloudError: The resource may still exist; the entry stays.
    """
    in_flight = _age(noted) < _IN_FLIGHT
    outcome = delete_and_wait(
        client,
        noted.path,
        noted.run,
        journal=journal,
        tell=tell,
        unseen=min(unseen, timeout / 2) if in_flight else 0.0,
        timeout=timeout,
        pause=pause,
    )
    if outcome == "gone" and in_flight:
        why = f"its request may still arrive; run this again in {_IN_FLIGHT / 60:.0f} minutes"
        journal.note_trouble(noted.run, why)
        raise InFlightError(why)
    journal.forget(noted.run)
    return outcome


def _age(noted: Entry) -> float:
    return time.time() - noted.asked


def _unlabelled(path: str) -> str:
    return (
        "it has no labels, so another user may have created it; if it is yours, run: "
        f"{deletion_command(path)}"
    )


def delete_ours(
    client: "Client", journal: Journal, path: str, *, tell: Callable[[str], None], timeout: float
) -> None:
    """Delete one resource that pyreactant created.

    Raises:
        NotOursError: pyreactant did not create it.
        InFlightError: It does not exist, but a request for it may still arrive.
        CloudError: It may still exist after `timeout` seconds.
    """
    start = time.monotonic()
    name = path.rpartition("/")[2]
    recorded = [noted for noted in journal.entries() if isinstance(noted, Entry)]
    recorded = [noted for noted in recorded if noted.path == path]
    try:
        found = client.get(path)
    except (CloudError, RequirementError) as error:
        for noted in recorded:
            if journal.launcher(noted) != "alive":
                journal.note_trouble(noted.run, str(error), first=True)
        raise
    timeout -= time.monotonic() - start
    if found is None:
        tell(f"there is no queued resource {name}")
    elif found.run is None:
        raise NotOursError(
            f"{name} was not created by pyreactant and is not deleted, or Cloud TPU does not say "
            f"its labels now; if it is yours, run: {deletion_command(path)}"
        )
    else:
        delete_and_wait(
            client, path, found.run, journal=journal, tell=tell, timeout=timeout, pause=1.0
        )
    for noted in recorded:
        alive = journal.launcher(noted) == "alive"
        gone = found is not None and noted.run == found.run
        if not gone and (alive or _age(noted) < _IN_FLIGHT):
            raise InFlightError(
                f"{name} may still be created: "
                + (
                    f"its launcher (process {noted.pid} on {noted.host}) is alive; end it first"
                    if alive
                    else f"run this again in {_IN_FLIGHT / 60:.0f} minutes"
                )
            )
        if not alive:
            journal.forget(noted.run)
