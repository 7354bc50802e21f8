"""Run a job: create slices, run each runtime, fetch results, delete the slices, check results."""

import dataclasses
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._errors import FileError, MismatchError, PyReactantError
from ..launch import RunReport
from ..launch._report import utc
from ._job import Job, check_size
from ._journal import Journal
from ._lifecycle import Lease
from ._resource import CloudError, PreemptedError, Worker
from ._signals import Interrupted, cleaned_up
from ._workers import WorkerError, check_program, on_workers

if TYPE_CHECKING:
    from ._client import Client


def run_job(
    job: Job,
    client: "Client",
    journal: Journal,
    *,
    tell: Callable[[str], None],
    show: Callable[[str], None],
) -> RunReport:
    """Run a job; the slices are deleted however it ends, unless `job.kept`.

    Args:
        job: What to run.
        client: Client of the API.
        journal: Journal that records the slices.
        tell: Prints a message for the user.
        show: Prints a line of output, prefixed with the worker's name.

    Returns:
        The report, which is also written to ``job.out``.

    Raises:
        FileError, InvalidArgumentError, RequirementError: The job cannot start; nothing was
            requested.
    """
    check_size(job)
    check_program(job.program, job.copies)
    job.ssh.check()
    try:
        job.out.mkdir(parents=True)
    except FileExistsError:
        raise FileError(f"the folder {str(job.out)!r} exists; choose another with --out") from None
    except OSError as error:
        raise FileError(
            f"the folder {str(job.out)!r} cannot be created ({error.strerror})"
        ) from None
    for attempt in range(job.retries + 1):
        folder = job.out / (f"attempt-{attempt}" if attempt else "")
        folder.mkdir(exist_ok=True)
        run = secrets.token_hex(8)
        lease = Lease(
            client=client, request=job.request, run=run, journal=journal, tell=tell, kept=job.kept
        )
        report = _attempt(job, lease, folder, show)
        left = job.retries - attempt
        if report.cause != "preempted" or not left:
            break
        tell(f"{report.summary}; trying again ({left} {'retries' if left > 1 else 'retry'} left)")
    report = dataclasses.replace(report, folder=str(job.out))
    report.write(job.out)
    return report


def _attempt(job: Job, lease: Lease, folder: Path, show: Callable[[str], None]) -> RunReport:
    started, began = utc(), time.monotonic()
    first_error: dict[str, Any] | None = None
    try:
        with cleaned_up(lease.close, lease.tell):
            lease.create()
            workers = lease.wait(job.wait)
            lease.tell(f"{job.request.name} is ACTIVE with {len(workers)} VMs")
            report = on_workers(
                job, workers, lease.run, folder, check=lease.check, tell=lease.tell, show=show
            )
    except (PyReactantError, Interrupted) as caught:
        error = caught
        if isinstance(caught, WorkerError):
            first_error = {
                "process": caught.process,
                "host": str(caught.worker),
                "log_tail": caught.tail,
            }
    else:  # the check comes after the deletion, so that the slices do not cost meanwhile
        return report if report.exit_code or job.program else _checked(job, workers, folder, report)
    return RunReport(
        cause=_cause(error),
        exit_code=_code(error),
        summary=str(error),
        first_error=first_error,
        processes=(),
        seconds=round(time.monotonic() - began, 3),
        started=started,
        folder=str(folder),
        command=list(job.program),
    )


def _code(error: PyReactantError | Interrupted) -> int:
    return 128 + error.number if isinstance(error, Interrupted) else error.exit_code


def _cause(error: PyReactantError | Interrupted) -> str:
    if isinstance(error, Interrupted):
        return "interrupted"
    if isinstance(error, PreemptedError):
        return "preempted"
    if isinstance(error, CloudError):
        return "cloud"
    return {1: "user", 4: "rendezvous", 6: "lost", 7: "timeout"}.get(_code(error), "cloud")


def _checked(job: Job, workers: Sequence[Worker], folder: Path, report: RunReport) -> RunReport:
    """Check the results of all VMs and compare the runtimes.

    Returns:
        `report` with the verdict as its summary; a mismatch has exit code 5.
    """
    from .._pages.page import can_render
    from ..crosscheck._run import compare

    try:
        for backend in job.backends:
            _gather(backend, workers, folder)
        found = compare(*(folder / "results" / backend for backend in job.backends))
        found.to_json(folder / "crosscheck.json")
    except PyReactantError as error:
        return dataclasses.replace(
            report,
            cause="user",
            exit_code=error.exit_code,
            summary=f"the results cannot be checked: {error}",
        )
    if can_render():  # crosscheck.json has the same content as the page
        found.to_html(folder / "crosscheck.html")
    if found.passed:
        return dataclasses.replace(report, summary=found.verdict)
    code = found.exit_code
    cause = "mismatch" if code == MismatchError.exit_code else "user"
    return dataclasses.replace(report, cause=cause, exit_code=code, summary=found.verdict)


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
