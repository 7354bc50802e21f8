"""All jobs of this user: found by their ids, listed, and removed."""

import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..base.errors import FileError, InvalidArgumentError, PyReactantError
from . import targets
from .places.target import with_reason
from .record import DamagedError, Record, Status, changed, jobs_folder, load

_BIRTH = 3600.0
"""Seconds after which a folder without a record is nobody's."""


def find(name: str) -> Record:
    """The job of that id; the beginning or the end of an id is enough if only one job has it.

    Raises:
        InvalidArgumentError: It is no id, or several jobs have it.
        FileError: There is no such job; or as `load`.
    """
    return load(folder_of(name))


def folder_of(name: str) -> Path:
    """The folder of the job that `find` finds, which may be damaged."""
    if not re.fullmatch(r"[-\w]{1,100}", name, re.ASCII):
        raise InvalidArgumentError(
            f"a job id is like 20261122-204500-3f9a, or its beginning or end, got {name[:100]!r}"
        )
    if (jobs_folder() / name).is_dir():
        return jobs_folder() / name
    if name.isdecimal():
        # A number may be Slurm's: "12" is not the end of "20261127-052745-d412".
        matching = [known for known in names() if known.endswith(f"-{name}")] or _with_number(name)
        matching = matching or [known for known in names() if known.startswith(name)]
    else:
        matching = [known for known in names() if known.startswith(name) or known.endswith(name)]
    if len(matching) > 1:
        more = f" and {len(matching) - 4} more" if len(matching) > 4 else ""
        some = ", ".join(matching[:4]) + more
        raise InvalidArgumentError(
            f"{len(matching)} jobs have an id like {name}: {some}; write more"
        )
    if not matching:
        raise FileError(
            f"there is no job {name} in {jobs_folder()}; pyreactant jobs list shows all jobs"
        )
    return jobs_folder() / matching[0]


def _with_number(name: str) -> list[str]:
    """The jobs that Slurm knows by this number."""
    number, having = int(name), []
    for file in jobs_folder().glob("*/handle.json"):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # a record that is damaged
            if json.loads(file.read_bytes()).get("slurm") == number:
                having.append(file.parent.name)
    return having


def names() -> list[str]:
    """The ids of all jobs of this user, the earliest first.

    Raises:
        FileError: The folder of all jobs cannot be read.
    """
    try:
        with os.scandir(jobs_folder()) as entries:
            return sorted(e.name for e in entries if not e.name.startswith(".") and e.is_dir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise FileError(f"{jobs_folder()} cannot be read ({error.strerror})") from None


def rows() -> Iterator[tuple[str, Record | None, Status]]:
    """Id, record and state of every job, the earliest first; no record if it is damaged."""
    folder = jobs_folder()
    found: dict[str, Record | FileError] = {}
    for name in names():
        try:
            found[name] = load(folder / name)
        except FileError as error:
            found[name] = error
    statuses = _statuses([one for one in found.values() if isinstance(one, Record)])
    for name, record in found.items():
        status = record if isinstance(record, FileError) else statuses[name]
        if isinstance(status, Status) and isinstance(record, Record):
            yield name, record, status
        elif (folder / name / "job.json").exists():  # else it begins or goes just now
            yield name, None, Status("lost", str(status))


def _statuses(records: Iterable[Record]) -> dict[str, Status | FileError]:
    """How jobs stand, by their ids: each place is asked once for all of its jobs."""
    found: dict[str, Status | FileError] = {}
    places: dict[str, list[tuple[targets.Target, Record]]] = {}
    for record in records:
        try:
            target = targets.make(record.target, record.settings)
        except PyReactantError as error:  # of another version
            found[record.id] = with_reason(record, error)
        else:
            places.setdefault(record.target, []).append((target, record))
    for jobs in places.values():
        found |= type(jobs[0][0]).statuses(jobs)
    return found


def status_of(record: Record) -> Status:
    """How a job stands; a place that cannot be asked now is its reason.

    Raises:
        FileError: Its record does not say it.
    """
    status = _statuses([record])[record.id]
    if isinstance(status, FileError):
        raise status
    return status


def as_json(name: str, record: Record | None, status: Status) -> dict[str, Any]:
    """One job as plain JSON."""
    row: dict[str, Any] = {
        "id": name,
        "state": status.state,
        "reason": status.reason,
        "exit_code": status.exit_code,
        "since": status.since or None,
        "folder": str(jobs_folder() / name),
    }
    if record is not None:
        fields = ("what", "target", "origin", "created", "host")
        row |= {field: getattr(record, field) for field in fields}
        row |= {"settings": dict(record.settings), "run": str(record.run)}
        row["left"] = [asdict(slices) for slices in record.slices_left()]
    return row


def clean(older_than: float, *, dry_run: bool) -> list[Record]:
    """Remove the records of jobs that ended more than so many seconds ago; those that run stay.

    The record of a job whose slices may still cost money stays, too.

    Returns:
        The removed jobs.
    """
    now = time.time()
    removable = [
        record
        for _, record, status in rows()
        if record is not None and status.ended and now - status.since >= older_than
        if not record.slices_left()
    ]
    if not dry_run:
        for record in removable:
            _give_up(record)
            _remove(record.folder)
        for folder in (jobs_folder() / name for name in names()):
            # The submitting process was killed before it wrote the record.
            if not (folder / "job.json").exists() and now - folder.stat().st_mtime > _BIRTH:
                _remove(folder)
    return removable


def remove(folder: Path, *, dry_run: bool = False) -> str:
    """Remove one job, given its folder; a damaged one, too, unless this machine still keeps it.

    Args:
        folder: As `folder_of` found it.
        dry_run: Whether to check only, and remove nothing.

    Returns:
        What ran, or that the job is damaged.

    Raises:
        InvalidArgumentError: It has not ended.
        CloudError: Its slices may still cost money.
        FileError: As `load`, unless it is damaged.
    """
    record: Record | None = None
    try:
        record = load(folder)
        status = status_of(record)
    except DamagedError:
        damaged = Record(folder, folder.name, "", "", {})
        if damaged.is_kept():
            raise InvalidArgumentError(
                f"the job {folder.name} is damaged, but a process of this machine still keeps it; "
                f"end that process first, which this shows: fuser {folder / 'lock'}"
            ) from None
        what = f"damaged, all of {folder}"
        slices = damaged.slices_left()
    else:
        what = record.what
        if not status.ended:
            raise InvalidArgumentError(
                f"the job {record.id} is {status.state}; only an ended job can be removed: "
                f"pyreactant jobs cancel {record.id}"
            )
        slices = record.slices_left()
    if slices:
        from .queued.request import CloudError

        why = "; ".join(map(str, slices))
        raise CloudError(f"the record of the job {folder.name} stays: {why}")
    if not dry_run:
        if record is not None:
            _give_up(record)
        _remove(folder)
    return what


def _give_up(record: Record) -> None:
    """Let the target give up what it can of what it holds for an ended job."""
    with contextlib.suppress(PyReactantError):  # settings of another version
        targets.make(record.target, record.settings).discard(record)


def _remove(folder: Path) -> None:
    """Remove a folder under another name, so that no half of it can be taken for a job."""
    going = folder.with_name(f".{folder.name}.going")
    with changed(folder), contextlib.suppress(FileNotFoundError):  # another process removes it
        folder.rename(going)
        shutil.rmtree(going, ignore_errors=True)
