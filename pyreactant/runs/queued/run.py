"""Run a job: create slices, run each runtime, fetch results, delete the slices, check results."""

import dataclasses
import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.counted import counted
from ...base.errors import ExitCode, FileError, PyReactantError, code_of_signal
from ..supervisor import RunReport
from ..supervisor.state import utc
from .deletion import Deleter
from .job import Check, Job, Listener, Phase, check_size
from .journal import Journal
from .lifecycle import Lease
from .request import CloudError, PreemptedError, Worker
from .signals import Interrupted, cleaned_up
from .workers import REQUEST, WorkerError, check_program, on_workers

if TYPE_CHECKING:
    from .client import Client


def run_job(
    job: Job, client: "Client", journal: Journal, listener: Listener, check: Check | None = None
) -> RunReport:
    """Run a job; the slices are deleted however it ends, unless they are kept.

    Args:
        check: How the results are checked; for a job without a program, and only for that.

    Returns:
        The report, which is also written to ``job.out``.

    Raises:
        FileError, InvalidArgumentError, RequirementError: The job cannot start; nothing was
            requested.
    """
    assert (check is None) == bool(job.program), "a job has a program or a check"
    check_size(job)
    check_program(job.program, job.copies)
    job.settings.ssh.check()
    try:
        job.out.mkdir(parents=True)
    except FileExistsError:
        raise FileError(f"the folder {str(job.out)!r} exists; choose another with --out") from None
    except OSError as error:
        raise FileError(
            f"the folder {str(job.out)!r} cannot be created ({error.strerror})"
        ) from None
    restarts = job.settings.max_restarts
    if restarts:
        listener.tell(f"with {_restarts(restarts)}, at most {job.most()}")
    deleter = Deleter(client, journal, listener.tell, job.deletion)
    for attempt in range(restarts + 1):
        folder = job.out / (f"attempt-{attempt}" if attempt else "")
        folder.mkdir(exist_ok=True)
        lease = Lease(deleter, job.request, secrets.token_hex(8), kept=job.settings.kept)
        report = _attempt(job, check, lease, folder, listener)
        left = restarts - attempt
        if report.cause != "preempted" or not left:
            break
        listener.tell(f"{report.summary}; trying again ({_restarts(left)} left)")
    report = dataclasses.replace(report, folder=str(job.out))
    report.write(job.out)
    return report


def _restarts(count: int) -> str:
    return counted(count, "restart")


def _attempt(
    job: Job, check: Check | None, lease: Lease, folder: Path, listener: Listener
) -> RunReport:
    undeleted = False

    def close() -> None:
        nonlocal undeleted
        undeleted = True
        try:
            listener.enter(Phase.DELETING)
        finally:
            lease.close()
        undeleted = False

    started, began = utc(), time.monotonic()
    first_error: dict[str, Any] | None = None
    report: RunReport | None = None
    try:
        with cleaned_up(close, listener.tell):
            listener.enter(Phase.QUEUED)
            lease.create()
            workers = lease.wait(job.settings.wait)
            listener.enter(Phase.STARTING)
            listener.tell(f"{job.request.name} is ACTIVE with {counted(len(workers), 'VM')}")
            request = None
            if check is not None:
                request = folder / REQUEST
                check.write_request(job, request)
            report = on_workers(job, workers, lease, folder, listener, request)
    except (PyReactantError, Interrupted) as caught:
        error = caught
        if isinstance(caught, WorkerError):
            first_error = {
                "process": caught.process,
                "host": str(caught.worker),
                "log_tail": caught.tail,
            }
    else:  # the check comes after the deletion, so that the slices do not cost meanwhile
        if report.exit_code or check is None:
            return report
        return _checked(job, check, workers, folder, report)
    return RunReport(
        cause=_cause(error),
        exit_code=_code(error),
        summary=str(error) + (_before(error, report) if undeleted else ""),
        first_error=first_error,
        processes=(),
        seconds=round(time.monotonic() - began, 3),
        started=started,
        folder=str(folder),
        command=list(job.program),
    )


def _before(error: BaseException, report: RunReport | None) -> str:
    """How the run had ended before a deletion that failed, for the end of its message."""
    if report is not None:
        return f"; before that: {report.summary or 'the program succeeded'}"
    before = error.__context__
    return f"; before that: {before}" if isinstance(before, PyReactantError | Interrupted) else ""


def _code(error: PyReactantError | Interrupted) -> int:
    return code_of_signal(error.number) if isinstance(error, Interrupted) else error.exit_code


def _cause(error: PyReactantError | Interrupted) -> str:
    if isinstance(error, Interrupted):
        return "interrupted"
    if isinstance(error, PreemptedError):
        return "preempted"
    if isinstance(error, CloudError):
        return "cloud"
    return _CAUSES.get(error.exit_code, "cloud")


_CAUSES: Mapping[int, str] = {
    ExitCode.FAILED: "user",
    ExitCode.RENDEZVOUS: "rendezvous",
    ExitCode.LOST: "lost",
    ExitCode.TIMEOUT: "timeout",
}


def _checked(
    job: Job, check: Check, workers: Sequence[Worker], folder: Path, report: RunReport
) -> RunReport:
    """Check the results of all VMs and compare the runtimes.

    Returns:
        `report` with the verdict as its summary; a mismatch has exit code 5.
    """
    try:
        for backend in job.backends:
            _gather(backend, workers, folder)
        runs = [folder / "results" / backend for backend in job.backends]
        code, verdict = check.judge(runs, folder)
    except PyReactantError as error:
        return dataclasses.replace(
            report,
            cause="user",
            exit_code=error.exit_code,
            summary=f"the results cannot be checked: {error}",
        )
    if not code:
        return dataclasses.replace(report, summary=verdict)
    cause = "mismatch" if code == ExitCode.MISMATCH else "user"
    return dataclasses.replace(report, cause=cause, exit_code=code, summary=verdict)


def _gather(backend: str, workers: Sequence[Worker], folder: Path) -> None:
    """Move the records of every process into one folder; VMs share no file system."""
    merged = folder / "results" / backend
    merged.mkdir(parents=True, exist_ok=True)
    for worker in workers:
        own = folder / f"{worker.node}-worker-{worker.index}" / "results" / backend
        try:
            for file in sorted(own.iterdir()):
                shutil.move(file, merged / file.name)
        except OSError as error:
            raise FileError(f"{worker} left no results of {backend} ({error.strerror})") from None
    shutil.copy(folder / f"report-{backend}.json", merged / "report.json")
