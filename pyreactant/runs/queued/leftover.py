"""What may still cost money although nothing uses it, by the journal alone: no service is asked."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...base.errors import InvalidArgumentError
from ...base.slices.topology import topology
from .journal import Entry, Journal, Launcher
from .request import deletion_command, usd_per_hour


@dataclass(frozen=True, slots=True)
class Leftover:
    """Slices that may cost money although their launcher has ended or cannot delete them.

    Attributes:
        path: Full name of the queued resource; the journal's file if that is damaged.
        why: Why they may still be there.
        usd_per_hour: List price of an hour; None if it is not known.
        usd: List price from their creation until `over`; None if it is not known.
        over: When the VMs delete them at the latest, in seconds since the epoch; None if it is not
            known.
        command: The command that deletes them.
        kept: Whether their user asked to keep them.
    """

    path: str
    why: str
    usd_per_hour: float | None
    usd: float | None
    over: float | None
    command: str
    kept: bool = False

    def __str__(self) -> str:
        name = self.path.rpartition("/")[2]
        return f"{name} may still cost money: {self.why}; {self.cost()}; run: {self.command}"

    def cost(self) -> str:
        """What they cost at most, as text."""
        hourly = "an unknown amount" if self.usd_per_hour is None else _usd(self.usd_per_hour)
        text = f"they cost {hourly} an hour"
        if self.over is None:
            return text
        when = time.strftime("%H:%M UTC on %d %B", time.gmtime(self.over))
        if time.time() > self.over:
            return f"{text}, and their lifetime was over at {when}"
        most = "" if self.usd is None else f"at most {_usd(self.usd)} "
        return f"{text}, {most}until {when}, when the VMs delete them"


def leftovers(
    journal: Journal, *, job: str = "", path: str = "", damaged_since: float | None = None
) -> Iterator[Leftover]:
    """The slices of a job, or of one name, that nothing uses or whose deletion is refused.

    Args:
        path: Full name of a queued resource, in place of a job.
        damaged_since: A damaged entry that was written since then may be the job's; None if none.
    """
    for entry in journal.entries_of(job=job, path=path):
        launcher = journal.launcher(entry)
        if entry.kept or entry.trouble or launcher is Launcher.DEAD:
            yield _leftover(entry, launcher)
    for file in journal.entries():
        if isinstance(file, Path) and damaged_since is not None and _written(file) >= damaged_since:
            yield _of_damaged(file)


def _leftover(entry: Entry, launcher: Launcher) -> Leftover:
    process = f"process {entry.pid} on {entry.host}"
    if launcher is Launcher.ALIVE and entry.trouble:
        why = f"{process} tries to delete it, so far without success ({entry.trouble})"
    elif entry.trouble:
        why = f"it could not be deleted ({entry.trouble})"
    elif entry.kept:
        why = "its user asked to keep it"
    else:
        why = f"its launcher ({process}) ended without deleting it"
    hourly = None
    with contextlib.suppress(InvalidArgumentError):  # not known here, or not yet in version 0.1
        hourly = usd_per_hour(topology(entry.accelerator_type, entry.slice_count))
    _, project, _, zone, _, name = entry.path.split("/")
    command = f"pyreactant tpu delete --name {name} --project {project} --zone {zone}"
    if entry.job:
        command = f"pyreactant jobs cancel {entry.job}"
    return Leftover(
        path=entry.path,
        why=why,
        usd_per_hour=hourly,
        usd=None if hourly is None else hourly * entry.lifetime / 3600,
        over=entry.over,
        command=f"{command}   (or {deletion_command(entry.path)})",
        kept=entry.kept and not entry.trouble,
    )


def _of_damaged(file: Path) -> Leftover:
    return Leftover(
        path=str(file),
        why=f"{file} is damaged, so that its slices are not known",
        usd_per_hour=None,
        usd=None,
        over=None,
        command="pyreactant tpu list, delete what is left there, and remove the file",
    )


def _written(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def _usd(amount: float) -> str:
    return f"about {amount:,.0f} USD" if amount >= 10 else f"about {amount:.2f} USD"
