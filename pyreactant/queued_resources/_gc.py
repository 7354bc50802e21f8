"""Delete what killed launchers left: what the journal lists, and what labels and time tell."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ._deletion import Outcome, delete_and_wait, deletion_command
from ._journal import CLOCK_TOLERANCE, Entry, Journal, signs
from ._request import QUEUED, CloudError, NotOursError, Resource

if TYPE_CHECKING:
    from ._client import Client

_MARGIN = 10 * CLOCK_TOLERANCE  # seconds by which clocks of launchers, Google and gc may differ
_IN_FLIGHT = 120.0  # seconds after which a request that was sent can no longer create a resource


@dataclass(frozen=True, slots=True)
class Finding:
    """What gc did about one resource.

    Attributes:
        name: Full name of the resource, or path of a damaged journal entry.
        action: "deleted", "left", "gone" or "failed".
        text: The reason.
    """

    name: str
    action: str
    text: str


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
        client, tell, dry_run, force=force, pause=pause, unseen=unseen, timeout=timeout
    )
    findings = []
    for noted in journal.entries():
        if isinstance(noted, Entry):
            findings.append(collector.recorded(noted, journal))
        else:
            reason = f"{noted} is damaged; inspect it and remove it"
            findings.append(Finding(noted.name, "left", reason))
    known = {finding.name for finding in findings}
    for parent in parents:
        findings += [
            collector.labelled(resource, resource.run)
            for resource in client.resources(parent)
            if resource.run is not None and resource.path not in known
        ]
    return findings


@dataclass(frozen=True, slots=True)
class _Collector:
    client: "Client"
    tell: Callable[[str], None]
    dry_run: bool
    force: bool
    pause: float
    unseen: float
    timeout: float

    def recorded(self, noted: Entry, journal: Journal) -> Finding:
        """Handle a resource that this machine requested."""
        path, process = noted.path, f"process {noted.pid} on {noted.host}"
        launcher = journal.launcher(noted)
        if launcher == "alive":
            return Finding(path, "left", f"its launcher ({process}) is alive")
        try:
            found = self.client.get(path)
            if found is not None and found.run is None:
                return Finding(path, "left", _unlabelled(path))
            reason = "its launcher is dead"
            if found is not None and found.run == noted.run:
                why, delete = self._judge(
                    found, noted.lifetime, kept=noted.kept, dead=launcher == "dead"
                )
                if not delete:
                    return Finding(path, "left", f"{why} ({process})")
                reason = why
            return self._end(noted, journal, found, reason)
        except CloudError as error:
            return Finding(path, "failed", str(error))

    def _end(self, noted: Entry, journal: Journal, found: Resource | None, reason: str) -> Finding:
        """Delete what an entry is about, and forget the entry when it is gone."""
        if self.dry_run:
            return Finding(noted.path, "left", f"{reason}; it would be deleted")
        in_flight = _age(noted) < _IN_FLIGHT
        outcome = self._delete(noted.path, noted.run, self.unseen if in_flight else 0.0)
        if outcome == "gone" and found is None and in_flight:
            reason = (
                f"its request may still arrive; run this again in {_IN_FLIGHT / 60:.0f} minutes"
            )
            return Finding(noted.path, "left", reason)
        journal.forget(noted.run)
        return Finding(noted.path, "deleted" if outcome == "deleted" else "gone", reason)

    def labelled(self, resource: Resource, run: str) -> Finding:
        """Handle a resource that another machine requested."""
        path, lifetime = resource.path, resource.lifetime
        try:
            reason, delete = self._judge(resource, lifetime, kept=False, dead=False)
            if not delete:
                return Finding(path, "left", f"another machine created it; {reason}")
            if self.dry_run:
                return Finding(path, "left", f"{reason}; it would be deleted")
            self._delete(path, run, 0.0)
        except CloudError as error:
            return Finding(path, "failed", str(error))
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

    def _delete(self, path: str, run: str, unseen: float) -> Outcome:
        return delete_and_wait(
            self.client,
            path,
            run,
            tell=self.tell,
            unseen=unseen,
            timeout=self.timeout,
            pause=self.pause,
        )


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
        CloudError: It still exists after `timeout` seconds.
    """
    start = time.monotonic()
    found = client.get(path, patience=timeout)
    timeout -= time.monotonic() - start
    name = path.rpartition("/")[2]
    if found is None:
        tell(f"there is no queued resource {name}")
    elif found.run is None:
        raise NotOursError(f"{name} was not created by pyreactant and is not deleted")
    else:
        delete_and_wait(client, path, found.run, tell=tell, timeout=timeout, pause=1.0)
    for noted in journal.entries():
        if not isinstance(noted, Entry) or noted.path != path or journal.launcher(noted) == "alive":
            continue
        if (found is not None and noted.run == found.run) or _age(noted) > _IN_FLIGHT:
            journal.forget(noted.run)
