"""Processes of this machine; the keeper is the supervisor of the run."""

import contextlib
import os
import shlex
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import ClassVar

from ...base.duration import seconds_word
from ...base.errors import DeadlineError, FileError
from ...base.files import is_full
from ...base.say import Repeated
from ...base.settings import JOB
from ..call import of_login
from ..keeper import detach, ended, install, running_once
from ..record import Record, Status, lock_of
from ..spec import Supervision, command_line
from ..supervisor import RunOptions
from .target import Target

_KILLED = 5.0
"""Seconds until processes that were killed are gone."""


@dataclass(frozen=True, kw_only=True)
class Local(Target, Supervision):
    """Processes of this machine.

    Attributes:
        processes: Number of processes.
        grace: Seconds that a cancelled program has to end by itself.
    """

    kind: ClassVar[str] = "local"
    processes: int = 1
    grace: float = 10.0

    def check_settings(self) -> None:
        """As `Target.check_settings`."""
        super().check_settings()
        _options(self, ["-m", "pyreactant.runs.worker"], None)

    def plan(self, record: Record) -> str:
        """As `Target.plan`."""
        options = command_line(self, leave_out=["processes", "grace"])
        grace = f"--grace={seconds_word(self.grace)}"
        run = ["pyreactant", "run", f"--processes={self.processes}", grace]
        return shlex.join([*run, *options, f"--out={record.run}", "--", *record.command()])

    def start(self, record: Record) -> None:
        """As `Target.start`."""
        detach(record, lock_of(record), of_login())

    def status(self, record: Record) -> Status:
        """As `Target.status`."""
        return kept_status(record)

    def cancel(self, record: Record, timeout: float | None = None) -> Status:
        """As `Target.cancel`."""
        limit = self.grace + 20 if timeout is None else timeout
        return cancel_kept(record, limit, force=True)


def keep(record: Record) -> Status:
    """Supervise the run of a job until its end."""
    target = Local(**record.settings)
    record.write_status(Status("starting"))
    install(record)
    with running_once(record):
        from ..supervisor import supervise  # asyncio and ssl, which other places do not need

        code = supervise(_options(target, record.command(), record.run))
    return ended(record, code)


def kept_status(record: Record) -> Status:
    """How a job stands whose keeper is a process of the submitting machine."""
    status = record.status()
    if status.ended:
        return status
    if record.host != os.uname().nodename:
        return replace(status, reason=f"its keeper is on {record.host}; ask there")
    if record.is_kept():
        if not status.reason and is_full(record.folder):
            why = f"the disk of {record.folder} is full; free some space"
            return replace(status, reason=why)
        return status
    if record.status().state == "requested":
        return record.write_gone("the submitting process ended before the job was started")
    return record.write_gone("its keeper was killed")


def cancel_kept(
    record: Record, limit: float, why: Callable[[], str] = lambda: "", *, force: bool = False
) -> Status:
    """Ask the keeper of a job to end it, wait for that, and kill what a killed keeper left.

    Args:
        record: The job.
        limit: Seconds to wait at most.
        why: Why it has not ended yet, which the user sees when it changes, and each minute.
        force: Whether to kill a keeper that does not end in time, or whose record cannot be read.
    """
    try:
        status = kept_status(record)
    except FileError:  # the record was removed, or is damaged: nobody sees how its keeper ends it
        if force:  # else the keeper deletes what costs money
            kill_marked(record)
        raise
    if status.ended:
        kill_marked(record)
        return status
    record.ask_to_cancel()
    if record.host != os.uname().nodename:
        return status
    deadline = time.monotonic() + limit
    repeated = Repeated()
    _signal_marked(record, signal.SIGCONT)  # a keeper that is stopped sees nothing
    if record.is_kept() and record.origin != "submit":  # whose environment has no mark
        with contextlib.suppress(OSError):
            os.kill(record.pid, signal.SIGCONT)
    while record.is_kept():
        repeated.say(why())
        if time.monotonic() > deadline:
            if force and _signal_marked(record, signal.SIGKILL):
                force = False
                deadline += _KILLED
                continue
            raise DeadlineError(
                f"the job {record.id} did not end within {limit:g} s; its keeper goes on ending it"
                + (f": {reason}" if (reason := why()) else "")
            )
        time.sleep(0.05)
    kill_marked(record)
    return kept_status(record)


def kill_marked(record: Record) -> None:
    """Kill processes of a job that outlived its keeper; all have its id in their environment.

    It looks again until none is left, at most for 5 s: one may start another while it looks.
    """
    deadline = time.monotonic() + _KILLED
    while _signal_marked(record, signal.SIGKILL) and time.monotonic() < deadline:
        time.sleep(0.02)


def _signal_marked(record: Record, number: signal.Signals) -> bool:
    """Signal the processes with the job's id in their environment; whether there are any."""
    mark = f"{JOB}={record.id}".encode()
    there = False
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), number)
                there = True
    return there


def _options(target: Local, program: list[str], folder: Path | None) -> RunOptions:
    settings = {field.name: getattr(target, field.name) for field in fields(Supervision)}
    return RunOptions(program=program, folder=folder, quiet=True, **settings)
