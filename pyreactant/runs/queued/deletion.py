"""Delete queued resources until the service shows that they are gone.

That is what a launcher does with its own, `pyreactant tpu delete` with one by its name, and
`pyreactant tpu gc` with what killed launchers left: what the journal lists, and what labels and
time tell.
"""

import enum
import time
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ...base.errors import RequirementError
from ...base.process import in_thread
from ...base.say import Repeated
from .journal import CLOCK_TOLERANCE, DEAD_AFTER, Entry, Journal, Launcher, signs
from .request import QUEUED, CloudError, NotOursError, QueuedResource, deletion_command

if TYPE_CHECKING:
    from .client import Client

_UNLABELLED = 60.0
"""Seconds after which a resource that stays without labels is not deleted."""
_MARGIN = 10 * CLOCK_TOLERANCE
"""Seconds by which the clocks of launchers, Google and this machine may differ."""
_IN_FLIGHT = 120.0
"""Seconds after which a request that was sent can no longer create a resource."""


class Outcome(enum.Enum):
    """How a deletion ended."""

    DELETED = "deleted"
    """The resource was there and is not there any more."""
    GONE = "gone"
    """It was never there."""
    REPLACED = "replaced"
    """Another run has its name now."""


class InFlightError(CloudError):
    """A request whose answer was lost may still create its slices."""


@dataclass(frozen=True, slots=True)
class Deleter:
    """Deletes resources, and keeps the journal true.

    Attributes:
        client: Client of the API.
        journal: Journal of this machine's resources.
        tell: Prints a message for the user.
        timeout: Seconds for the deletion of one resource.
        pause: Seconds between two polls at first; grows to ten times that.
        unseen: Seconds within which a resource that was just requested may still appear.
    """

    client: "Client"
    journal: Journal
    tell: Callable[[str], None]
    timeout: float = 900.0
    pause: float = 1.0
    unseen: float = 10.0

    def delete(
        self,
        path: str,
        run: str,
        *,
        unseen: float = 0.0,
        is_ours: Callable[[QueuedResource], bool] = lambda _: False,
    ) -> Outcome:
        """Delete the resource of one run, and wait until the API no longer lists it.

        Every error, such as expired credentials or an answer that no API gave, means "not yet". The
        user sees it at once, and the run's entry has it. A resource with the same name but another
        run's label is left unchanged. Without a label the resource may be another's: it is left
        unchanged, and if the label does not appear within a minute, that is an error.

        Args:
            run: Label of the run that must own it.
            unseen: Seconds within which a resource that is not visible yet may still appear.
            is_ours: Whether a resource without a label is the run's all the same.

        Raises:
            CloudError: The resource may still exist after `timeout` seconds.
        """
        name, start, pause = path.rpartition("/")[2], time.monotonic(), self.pause
        requested, state, trouble, about = False, "", "", name
        unlabelled: float | None = None  # since when
        repeated = Repeated(self.tell)
        while (elapsed := time.monotonic() - start) < self.timeout:
            left, trouble = self.timeout - elapsed, ""
            try:
                resource = self.client.get(path, once=left)
                if resource is None and (state or elapsed >= unseen):
                    if state:
                        repeated.say(f"{name} is deleted")
                    return Outcome.DELETED if state else Outcome.GONE
                if resource is not None and resource.run not in (None, run):
                    return Outcome.REPLACED
                if resource is not None and resource.run is None and not is_ours(resource):
                    unlabelled = elapsed if unlabelled is None else unlabelled
                    trouble = f"{name} has no labels, so it may not be this run's"
                elif resource is not None:
                    unlabelled = None
                    if not state:
                        about = f"deleting {name}, which is {resource.state}"
                        repeated.say(about)
                    state = resource.state
                    if not (requested and state == "DELETING"):
                        self.client.delete(path, once=left)
                        requested = True
            except Exception as error:  # whatever it was, the resource may still cost money
                trouble = str(error) or type(error).__name__
            self.journal.note_trouble(run, trouble)
            about = trouble or about
            trouble = trouble or f"{name} is {state or 'not visible yet'}"
            repeated.say(
                f"deletion has not succeeded yet: {trouble}; trying for another {left:.0f} s",
                about=about,
            )
            if unlabelled is not None and elapsed - unlabelled > _UNLABELLED:
                break
            time.sleep(pause)
            pause = min(pause * 1.2, 10 * self.pause)
        self.journal.note_trouble(run, trouble)
        raise CloudError(
            f"{name} could NOT be deleted ({trouble}) and still costs money; run: "
            f"{deletion_command(path)}   (or pyreactant tpu gc)"
        )

    def delete_recorded(self, entry: Entry) -> Outcome:
        """Delete what an entry is about, whoever keeps it, and forget the entry when it is gone.

        Raises:
            InFlightError: The request may still arrive; the entry stays.
            CloudError: The resource may still exist; the entry stays.
        """
        in_flight = _is_in_flight(entry)
        unseen = min(self.unseen, self.timeout / 2) if in_flight else 0.0
        outcome = self.delete(entry.path, entry.run, unseen=unseen)
        if outcome is Outcome.GONE and in_flight:
            why = f"its request may still arrive; {_AGAIN}"
            self.journal.note_trouble(entry.run, why)
            raise InFlightError(why)
        self.journal.forget(entry.run)
        return outcome

    def delete_named(self, path: str) -> None:
        """Delete one resource that pyreactant created.

        Raises:
            NotOursError: pyreactant did not create it.
            InFlightError: It does not exist, but a request for it may still arrive.
            CloudError: It may still exist after `timeout` seconds.
        """
        start, name = time.monotonic(), path.rpartition("/")[2]
        entries = self.journal.entries_of(path=path)
        try:
            resource = self.client.get(path)
        except (CloudError, RequirementError) as error:
            for entry in entries:
                if self.journal.launcher(entry) is not Launcher.ALIVE:
                    self.journal.note_trouble(entry.run, str(error), first=True)
            raise
        if resource is None:
            self._check_elsewhere(path)
            self.tell(f"there is no queued resource {name}")
        elif resource.run is None:
            raise NotOursError(
                f"{name} was not created by pyreactant and is not deleted, or Cloud TPU does not "
                f"say its labels now; if it is yours, run: {deletion_command(path)}"
            )
        else:
            rest = self.timeout - (time.monotonic() - start)
            replace(self, timeout=rest).delete(path, resource.run)
        for entry in entries:
            alive = self.journal.launcher(entry) is Launcher.ALIVE
            gone = resource is not None and entry.run == resource.run
            if not gone and (alive or _is_in_flight(entry)):
                process = f"its launcher (process {entry.pid} on {entry.host}) is alive"
                why = f"{process}; end it first" if alive else _AGAIN
                raise InFlightError(f"{name} may still be created: {why}")
            if not alive:
                self.journal.forget(entry.run)

    def _check_elsewhere(self, path: str) -> None:
        """Raise CloudError if the journal knows the name in another project or zone only."""
        here, _, name = path.rpartition("/")
        paths = [entry.path for entry in self.journal.entries() if isinstance(entry, Entry)]
        others = [other for other in paths if other.rpartition("/")[2] == name and other != path]
        if others and path not in paths:
            _, project, _, zone, *_ = others[0].split("/")
            raise CloudError(
                f"there is no queued resource {name} in {here.removesuffix('/queuedResources')}, "
                f"but one in {zone} of {project} may cost money; give --project {project} "
                f"--zone {zone} to delete it"
            )


_AGAIN = f"run this again in {_IN_FLIGHT / 60:.0f} minutes"


def _is_in_flight(entry: Entry) -> bool:
    """Whether the request of an entry may still create its resource."""
    has_arrived = entry.valid_for == 0.0  # as `entry` says of one that is ACTIVE
    return not has_arrived and time.time() - entry.asked < _IN_FLIGHT


@dataclass(frozen=True, slots=True)
class Finding:
    """What `Collector` did about one resource.

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


class Judgement(NamedTuple):
    """Whether to delete a resource, and why; whether it costs money, and nobody seems to use it."""

    delete: bool
    why: str
    costs: bool = False


@dataclass(frozen=True, slots=True)
class Collector:
    """Deletes pyreactant's resources whose launcher is dead or whose lifetime is over.

    A launcher that holds the lock of its entry is alive, and its resource is left.

    Attributes:
        deleter: Deletes them.
        dry_run: Whether to report only, and delete nothing.
        force: Whether to delete also what waits in the queue, if it is not known whether its
            launcher is alive.
    """

    deleter: Deleter
    dry_run: bool = False
    force: bool = False

    def collect(self, parents: Iterable[str] = ()) -> list[Finding]:
        """Handle what the journal lists, and then what other machines created.

        Args:
            parents: Projects and zones ("projects/P/locations/Z") in which resources of other
                machines are deleted too, once their lifetime is over.
        """
        tasks, known = list[Callable[[], Finding]](), set[str]()
        for entry in self.deleter.journal.entries():
            if isinstance(entry, Entry):
                tasks.append(partial(self._guarded, entry.path, partial(self._recorded, entry)))
                known.add(entry.path)
            else:
                reason = f"{entry} is damaged; inspect it and remove it"
                tasks.append(partial(Finding, entry.name, "left", reason, costs=True))
        for parent in parents:
            tasks += self._tasks_of(parent, known)
        # At the same time, so that all together have the time of one.
        return [future.result() for future in [in_thread(task) for task in tasks]]

    def _tasks_of(self, parent: str, known: Container[str]) -> list[Callable[[], Finding]]:
        """What to do about the resources of a project and zone that the journal does not list."""
        try:
            resources = self.deleter.client.resources(parent)
        except (CloudError, RequirementError) as error:
            return [partial(Finding, parent, "failed", str(error), costs=True)]
        return [
            partial(self._guarded, resource.path, partial(self._labelled, resource, resource.run))
            for resource in resources
            if resource.run is not None and resource.path not in known
        ]

    def _guarded(self, path: str, handle: Callable[[], Finding]) -> Finding:
        """What became of a resource, also if it is not known."""
        try:
            return handle()
        except InFlightError as error:
            return Finding(path, "left", str(error), costs=True)
        except (CloudError, RequirementError, OSError) as error:
            return Finding(path, "failed", str(error), costs=True)

    def _recorded(self, entry: Entry) -> Finding:
        """Handle a resource that this machine requested."""
        path, process = entry.path, f"process {entry.pid} on {entry.host}"
        launcher = self.deleter.journal.launcher(entry)
        if launcher is Launcher.ALIVE:
            return Finding(path, "left", f"its launcher ({process}) is alive")
        resource = self.deleter.client.get(path)
        if resource is not None and resource.run is None:
            why = "it has no labels, so another user may have created it; if it is yours, run: "
            return Finding(path, "left", f"{why}{deletion_command(path)}", costs=True)
        reason = "its launcher is dead"
        if resource is not None and resource.run == entry.run:
            # With a trouble, its user has asked since then to delete it.
            kept = entry.kept and not entry.trouble
            judged = self._judge(resource, entry.lifetime, kept=kept, launcher=launcher)
            if not judged.delete:
                return Finding(path, "left", f"{judged.why} ({process})", costs=judged.costs)
            reason = judged.why
        if self.dry_run:
            return Finding(path, "left", f"{reason}; it would be deleted", costs=True)
        deleted = self.deleter.delete_recorded(entry) is Outcome.DELETED
        return Finding(path, "deleted" if deleted else "gone", reason)

    def _labelled(self, resource: QueuedResource, run: str) -> Finding:
        """Handle a resource that another machine requested."""
        path, unknown = resource.path, Launcher.UNKNOWN
        judged = self._judge(resource, resource.lifetime, kept=False, launcher=unknown)
        if not judged.delete:
            why = f"another machine created it; {judged.why}"
            return Finding(path, "left", why, costs=judged.costs)
        if self.dry_run:
            return Finding(path, "left", f"{judged.why}; it would be deleted", costs=True)
        self.deleter.delete(path, run)
        return Finding(path, "deleted", judged.why)

    def _judge(
        self,
        resource: QueuedResource,
        lifetime: float | None,
        *,
        kept: bool,
        launcher: Launcher,
    ) -> Judgement:
        """Whether to delete a resource whose launcher may be dead.

        The lifetime begins with the nodes, and not in the queue.

        Args:
            lifetime: Seconds for which its nodes may exist; None if that is unknown.
            kept: Whether its user is known to keep it.
            launcher: What this machine knows of its launcher.
        """
        seen, dead = signs(self.deleter.client.nodes(resource)), launcher is Launcher.DEAD
        silent = max(seen.silent or 0.0, 0.0)
        if seen.launcher is Launcher.ALIVE and not dead:
            return Judgement(False, f"its launcher was alive {silent:.0f} s ago")
        if seen.age is not None and lifetime is not None and seen.age > lifetime + _MARGIN:
            return Judgement(True, "its lifetime is over")
        if kept or (seen.kept and not dead):
            return Judgement(False, "its user asked to keep it")
        if dead:
            return Judgement(True, "its launcher is dead")
        if seen.launcher is Launcher.DEAD:
            return Judgement(True, f"its launcher is silent for {silent / 60:.0f} minutes")
        if self.force and resource.state in QUEUED:
            return Judgement(True, f"--force, and it is {resource.state}")
        return Judgement(
            False,
            "whether its launcher is alive is unknown, and its lifetime is not over",
            costs=seen.age is not None and seen.age > DEAD_AFTER,
        )
