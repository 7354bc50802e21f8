"""A submitted job: its state, logs, value and end."""

import codecs
import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.errors import (
    DeadlineError,
    ExitCode,
    FileError,
    InvalidArgumentError,
    RemoteError,
    RequirementError,
    argument,
)
from ..base.files import is_full
from ..base.say import Repeated, say
from ..base.steps import step
from . import targets, values
from .record import Record, Status, Unanswered
from .store import find

if TYPE_CHECKING:
    from .supervisor.metrics import Metric

_POLL, _SLOWEST = 0.05, 0.5
_PATIENCE = 120.0
"""Seconds for which a controller may be silent while somebody waits."""
_PATIENCE_IF_GONE = 10.0
"""The same where nothing listens any more; it may be started again."""


@dataclass(frozen=True)
class Job:
    """One job. Any process of the same user can have it: `Job.find(id)`.

    Attributes:
        record: Its record on disk.

    Examples:
        >>> pr.Job.find(job.id).status().exit_code
        0
    """

    record: Record

    @classmethod
    def find(cls, name: str) -> "Job":
        """The job of that id; the beginning or the end of an id is enough if only one job has it.

        Raises:
            FileError: There is no such job, it belongs to another user, or its folder was moved.
            InvalidArgumentError: Several jobs have such an id.
        """
        return cls(find(name))

    @property
    def id(self) -> str:
        """Its id, such as "20261122-204500-3f9a"."""
        return self.record.id

    @property
    def folder(self) -> Path:
        """Its folder."""
        return self.record.folder

    @property
    def target(self) -> targets.Target:
        """Where it runs."""
        return targets.make(self.record.target, self.record.settings)

    def status(self) -> Status:
        """How it stands: its `state`, `reason` and, once it has ended, its `exit_code`."""
        return self.target.status(self.record)

    def wait(self, timeout: float | None = None) -> Status:
        """Wait until it has ended; Ctrl-C ends the waiting, not the job.

        Args:
            timeout: Seconds to wait at most; None for no limit.

        Raises:
            DeadlineError: It has not ended in time. It goes on.
            RemoteError: The place where it runs does not answer any more.
        """
        ask = _Patient(self)
        for _ in _pauses(self.id, timeout):
            if (status := ask.status()).ended:
                return status
        raise AssertionError("the pauses end only with an error")

    def logs(self, process: int = 0, *, follow: bool = False) -> Iterator[str]:
        """The output of one process, in pieces of text, without Gloo's lines about connections.

        Args:
            process: Index of the process.
            follow: Whether to go on with what is added until the job has ended.

        Raises:
            InvalidArgumentError: The index is negative.
            FileError: The job has ended, and the process has no log.
        """
        from .supervisor.output import Own

        if process < 0:
            raise InvalidArgumentError(f"{argument('process')} must be 0 or more, got {process}")
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        own, read, before = Own(), 0, None
        ask = _Patient(self)
        for _ in _pauses(self.id, None):
            ended = not follow or ask.status().ended
            path = self.target.logs(self.record, process)
            if path != before:  # Slurm has started the job again
                read, before = 0, path
            with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
                file.seek(read)
                while data := file.read(1 << 16):
                    read += len(data)
                    yield own.take(decoder.decode(data))
            if ended:
                break
        if read:
            # A last character or line may be cut short.
            yield own.take(decoder.decode(b"", final=True), final=True)
        elif not path.exists() and self.status().ended:
            why = self.log_error(process) or self._why()
            raise FileError(f"process {process} of the job {self.id} has no log: {why}")

    def log_error(self, process: int) -> str:
        """Why the log of one process is not complete; "" if it is, or nothing is known."""
        for row in self.record.report().get("processes", ()):
            if row.get("index") == process and row.get("log_error"):
                return str(row["log_error"])
        if is_full(self.record.folder):
            return f"the disk of {self.record.folder} is full; free some space"
        return ""

    def metrics(self) -> "list[Metric]":
        """The numbers that the program has logged so far with `pyreactant.log`, by step.

        Those of a TPU job come at its end.

        Raises:
            FileError: They cannot be read.
        """
        from .supervisor.metrics import read_metrics

        return read_metrics(self.record.run)

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the end, and return the value of process 0; None for a program.

        Args:
            timeout: Seconds to wait at most; None for no limit.

        Raises:
            RemoteError: The job failed; it has the kind, process, host and remote traceback.
            DeadlineError: It has not ended in time. It goes on.
            FileError: The value is lost or does not fit on the disk.
        """
        self.check(timeout)
        if not self.record.call().get("name"):
            return None
        value = self.record.out / "value"
        if not value.exists():
            raise FileError(
                f"the job {self.id} is done, but left no value: its process 0 ended before the "
                "function returned, for instance by os._exit(0), or the value was removed"
            )
        return values.read(value)

    def check(self, timeout: float | None = None) -> None:
        """Wait for the end, and raise if the job failed; as `result`, without reading the value."""
        status = self.wait(timeout)
        try:
            self.target.fetch(self.record)
        except (RequirementError, InvalidArgumentError):
            if status.state == "done":
                raise  # else the failure says more
        for note in self.record.report().get("notes", ()) if status.state == "done" else ():
            say(str(note))
        kept = status.state == "lost" and (self.record.out / "value").exists()
        if status.state != "done" and not kept:  # a value is there only if it is whole
            raise failure(self.record, status)

    def cancel(self, timeout: float | None = None) -> Status:
        """End it and wait until nothing of it runs or costs anything; an ended job stays as it is.

        Args:
            timeout: Seconds to wait at most; None for the target's own limit, which is 16 minutes
                on TPU.

        Raises:
            DeadlineError: It has not ended in time; its keeper goes on ending it.
            CloudError: Slices of it may still cost money; the error has the command to try.
        """
        return self.target.cancel(self.record, timeout)

    def _why(self) -> str:
        status = self.status()
        return f"it is {status.state}" + (f" ({status.reason})" if status.reason else "")

    def __repr__(self) -> str:
        return f"Job({self.id!r}, {self.record.what!r} on {self.record.target})"


class _Patient:
    """Asks for the status again and again, also while a place does not answer for a while."""

    def __init__(self, job: Job) -> None:
        self._job, self._answered, self._repeated = job, time.monotonic(), Repeated()

    def status(self) -> Status:
        """As `Job.status`; the last known one if the question fails for less than two minutes.

        Raises:
            RemoteError: It fails for longer, or nothing listens any more where the job runs.
        """
        try:
            status = self._job.status()
        except (RequirementError, InvalidArgumentError):
            if time.monotonic() - self._answered > _PATIENCE:
                raise
            return self._job.record.status()
        if isinstance(status, Unanswered):
            self._repeated.say(status.reason)
            silent = time.monotonic() - self._answered
            if silent > (_PATIENCE_IF_GONE if status.gone else _PATIENCE):
                raise self._lost(status)
            return status
        self._answered = time.monotonic()
        if not status.ended:
            why = f" ({status.reason})" if status.reason else ""
            step(f"waiting for job {self._job.id}, which is {status.state}{why}")
            self._repeated.say("; ".join(map(str, self._job.record.slices_left())))
        return status

    def _lost(self, status: Unanswered) -> RemoteError:
        job = self._job
        return RemoteError(
            f"job {job.id} on {job.record.target}: lost: {status.reason}; if it comes back, the "
            f"job may go on (pyreactant jobs attach {job.id}); if not, note its end with: "
            f"pyreactant jobs cancel {job.id}",
            kind="lost",
            exit_code=ExitCode.LOST,
        )


def failure(record: Record, status: Status) -> RemoteError:
    """The error of a job that did not end well."""
    code = status.exit_code if status.exit_code is not None else ExitCode.FAILED
    name = f"job {record.id} on {record.target}"
    report = record.report()
    first: Mapping[str, Any] = report.get("first_error") or {}
    # Slurm and Ray may know more than the report, and a cross-check fails by its verdict.
    by_place = status.cause in _CAUSES and status.cause != report.get("cause")
    well = report.get("cause", "done") == "done"
    if status.state in ("cancelled", "lost") or well or by_place:
        kind = status.cause if by_place else _KIND.get(code, status.state)
        why = _printable(f"{status.state}: {status.reason}")
        return RemoteError(f"{name}: {why}", kind=kind, exit_code=code)
    raised = first.get("exception") if report["cause"] == "user" else None
    return RemoteError(
        f"{name}: {_printable(report['summary'])}",
        kind=raised or report["cause"],
        exit_code=code,
        process=first.get("process"),
        host=first.get("host"),
        traceback=_printable(first.get("traceback") or first.get("log_tail") or ""),
        others=_others(report, first.get("process")),
    )


_KIND: Mapping[int, str] = {
    ExitCode.MISSING: "environment",
    ExitCode.RENDEZVOUS: "rendezvous",
    ExitCode.LOST: "lost",
    ExitCode.TIMEOUT: "timeout",
    ExitCode.CLOUD: "cloud",
}
_CAUSES = {*_KIND.values(), "out of memory", "preempted"}


def _others(report: Mapping[str, Any], first: int | None) -> list[dict[str, Any]]:
    """The other processes that raised, by time."""
    errors = [
        {
            "process": row["index"],
            "host": row.get("host"),
            "kind": row["error"]["exception"],
            "message": _printable(row["error"]["message"]),
            "traceback": _printable(row["error"]["traceback"]),
            "time": row["error"].get("time", ""),
        }
        for row in report["processes"]
        if row.get("error") and row["index"] != first
    ]
    return sorted(errors, key=lambda row: row["time"])


def _printable(text: str) -> str:
    """Text that every stream takes: a lone surrogate, as of a file's name, as an escape."""
    return text.encode("utf-8", "backslashreplace").decode()


def _pauses(job: str, timeout: float | None) -> Iterator[None]:
    """Pauses between looks at a job, which grow; the first look is at once.

    Raises:
        DeadlineError: The time is over.
    """
    if timeout is not None and not timeout >= 0:
        raise InvalidArgumentError(f"{argument('timeout')} must be seconds, got {timeout}")
    began = time.monotonic()
    pause = _POLL
    while True:
        yield
        left = None if timeout is None else began + timeout - time.monotonic()
        if left is not None and left <= 0:
            raise DeadlineError(
                f"the job {job} has not ended within {timeout:g} s; it goes on: wait longer, or "
                f"end it with: pyreactant jobs cancel {job}"
            )
        time.sleep(pause if left is None else min(pause, left))
        pause = min(pause * 1.1, _SLOWEST)
