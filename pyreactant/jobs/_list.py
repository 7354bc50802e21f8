"""All jobs of this user, and the removal of old ones."""

import contextlib
import dataclasses
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .._errors import InvalidArgumentError, PyReactantError
from . import targets
from ._find import names
from ._record import Record, Status, jobs_folder, load

_BIRTH = 3600.0
"""Seconds after which a folder without a record is nobody's."""


def rows() -> Iterator[tuple[str, Record | None, Status]]:
    """Id, record and state of every job, the earliest first; no record if it is damaged."""
    folder = jobs_folder()
    for name in names():
        try:
            record = load(folder / name)
            yield name, record, status_of(record)
        except PyReactantError as error:
            if (folder / name / "job.json").exists():  # else it begins or goes just now
                yield name, None, Status("lost", str(error))


def status_of(record: Record) -> Status:
    """How a job stands; a place that cannot be asked now is its reason."""
    found = record.status()
    if found.ended:
        return found
    try:
        return targets.make(record.target, record.settings).status(record)
    except PyReactantError as error:
        return dataclasses.replace(found, reason=str(error))


def as_json(name: str, record: Record | None, status: Status) -> dict[str, Any]:
    """One job as plain JSON."""
    found: dict[str, Any] = {
        "id": name,
        "state": status.state,
        "reason": status.reason,
        "exit_code": status.exit_code,
        "since": status.since or None,
        "folder": str(jobs_folder() / name),
    }
    if record is not None:
        fields = ("what", "target", "origin", "created", "host")
        found |= {field: getattr(record, field) for field in fields}
        found |= {"settings": dict(record.settings), "run": str(record.run)}
    return found


def clean(older_than: float, *, dry_run: bool) -> list[Record]:
    """Remove the records of jobs that ended more than so many seconds ago; those that run stay.

    Returns:
        The removed jobs.
    """
    now = time.time()
    found = [
        record
        for _, record, status in rows()
        if record is not None and status.ended and now - status.since >= older_than
    ]
    if not dry_run:
        for record in found:
            _give_up(record)
        for folder in _unborn(now):
            _remove(folder)
    return found


def _unborn(now: float) -> list[Path]:
    """Folders without a record: the submitting process was killed before it wrote that."""
    folders = [jobs_folder() / name for name in names()]
    found = [folder for folder in folders if not (folder / "job.json").exists()]
    return [folder for folder in found if now - folder.stat().st_mtime > _BIRTH]


def remove(record: Record) -> None:
    """Remove the record of one job.

    Raises:
        InvalidArgumentError: It has not ended.
    """
    status = status_of(record)
    if not status.ended:
        raise InvalidArgumentError(
            f"the job {record.id} is {status.state}; only an ended job can be removed: pyreactant "
            f"jobs cancel {record.id}"
        )
    _give_up(record)


def _give_up(record: Record) -> None:
    with contextlib.suppress(PyReactantError):  # settings of another version
        targets.make(record.target, record.settings).discard(record)
    _remove(record.folder)


def _remove(folder: Path) -> None:
    """Remove a folder under another name, so that no half of it can be taken for a job."""
    going = folder.with_name(f".{folder.name}.going")
    with contextlib.suppress(FileNotFoundError):  # another process removes it
        folder.rename(going)
        shutil.rmtree(going, ignore_errors=True)
