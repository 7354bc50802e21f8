"""What of a job may still cost money although nothing uses it, by this machine's journal."""

from typing import TYPE_CHECKING

from .record import Record

if TYPE_CHECKING:
    from .queued.leftover import Leftover


def left(record: Record) -> "list[Leftover]":
    """The slices of a job that may cost money although its keeper ended or cannot delete them.

    No service is asked.
    """
    if record.target not in ("tpu", ""):  # "" for a record that is damaged
        return []
    from .queued.journal import Journal
    from .queued.leftover import leftovers

    status = record.status() if record.target else None
    unsure = status is not None and status.ended and status.state != "done"
    since = record.created if unsure else None
    return list(leftovers(Journal(), job=record.id, damaged_since=since))
