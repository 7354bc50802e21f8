"""Delete what launchers have left behind that were killed."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ._journal import Entry, Journal
from ._lifecycle import CLOCKS, end_of_life
from ._resource import CloudError, NotOursError, Resource

if TYPE_CHECKING:
    from ._client import Client

_MARGIN = 10 * CLOCKS  # seconds by which the clocks of launchers, of Google and of gc may differ
_IN_FLIGHT = 120.0  # seconds for which a request that was sent may still be carried out


@dataclass(frozen=True, slots=True)
class Finding:
    """What gc did about a resource: "deleted", "left", "gone" or "failed", and why."""

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
    pause: float = 1.0,
    unseen: float = 10.0,
    timeout: float = 900.0,
) -> list[Finding]:
    """Delete resources of pyreactant whose launcher is dead, or whose lifetime is over.

    Args:
        client: The API.
        journal: What this machine has asked for.
        tell: Says a sentence to the user.
        parents: Projects and zones ("projects/P/locations/Z") in which to look for resources
            of other machines whose lifetime is over, too.
        dry_run: Say what would be deleted, and delete nothing.
        pause: Seconds between two looks.
        unseen: Seconds to look for a resource that may just be coming into being.
        timeout: Seconds for the deletion of one.
    """
    findings = []
    for found in journal.entries():
        if isinstance(found, Entry):
            finding = _of_journal(client, journal, found, tell, dry_run, pause, unseen, timeout)
        else:
            finding = Finding(found.name, "left", f"{found} is damaged; look at it and remove it")
        findings.append(finding)
    known = {f.name for f in findings}
    for parent in parents:
        findings += [
            _of_label(client, resource, tell, dry_run, pause, timeout)
            for resource in client.resources(parent)
            if resource.run is not None and resource.path not in known
        ]
    return findings


def _of_journal(
    client: "Client",
    journal: Journal,
    found: Entry,
    tell: Callable[[str], None],
    dry_run: bool,
    pause: float,
    unseen: float,
    timeout: float,
) -> Finding:
    launcher = found.launcher()
    over = time.time() > found.asked + found.lifetime + _MARGIN
    if not over and found.kept:
        return Finding(found.path, "left", "its user asked to keep it")
    if not over and launcher != "dead":
        where = f"process {found.pid} on {found.host}"
        return Finding(found.path, "left", f"its launcher ({where}) is {launcher}")
    why = "its lifetime is over" if over else "its launcher is dead"
    if dry_run:
        return Finding(found.path, "left", f"{why}; it would be deleted")
    fresh = time.time() - found.asked < _IN_FLIGHT
    try:
        there = client.get(found.path) is not None
        end_of_life(
            client,
            found.path,
            found.run,
            tell,
            first=fresh,
            unseen=unseen,
            timeout=timeout,
            pause=pause,
        )
    except CloudError as error:
        return Finding(found.path, "failed", str(error))
    journal.forget(found.run)
    return Finding(found.path, "deleted" if there else "gone", why)


def _of_label(
    client: "Client",
    found: Resource,
    tell: Callable[[str], None],
    dry_run: bool,
    pause: float,
    timeout: float,
) -> Finding:
    assert found.run is not None
    age = None if found.created is None else time.time() - found.created.timestamp()
    if age is None or found.lifetime is None or age < found.lifetime + _MARGIN:
        return Finding(found.path, "left", "another machine made it, and its lifetime is not over")
    if dry_run:
        return Finding(found.path, "left", "its lifetime is over; it would be deleted")
    try:
        end_of_life(
            client,
            found.path,
            found.run,
            tell,
            first=False,
            unseen=0.0,
            timeout=timeout,
            pause=pause,
        )
    except CloudError as error:
        return Finding(found.path, "failed", str(error))
    return Finding(found.path, "deleted", "its lifetime is over")


def delete_ours(
    client: "Client", journal: Journal, path: str, tell: Callable[[str], None], timeout: float
) -> None:
    """Delete one resource, provided that pyreactant made it.

    Raises:
        NotOursError: Somebody else made it.
        CloudError: It is not gone in time.
    """
    found = client.get(path)
    name = path.rpartition("/")[2]
    if found is not None and found.run is None:
        raise NotOursError(f"{name} was not made by pyreactant, and is left alone")
    if found is None:
        tell(f"there is no {name}")
    else:
        end_of_life(
            client, path, str(found.run), tell, first=False, unseen=0.0, timeout=timeout, pause=1.0
        )
    for noted in journal.entries():
        if isinstance(noted, Entry) and noted.path == path and noted.launcher() != "alive":
            journal.forget(noted.run)
