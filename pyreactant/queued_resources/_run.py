"""A whole job: create the slices, run each runtime in turn, fetch results, delete the slices."""

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
from ._job import Job
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
    tell: Callable[[str], None],
    show: Callable[[str], None],
) -> RunReport:
    """Do all of it; the slices are deleted however it ends, unless `job.kept`.

    Args:
        job: What to do.
        client: The API.
        journal: Where what was asked for is noted.
        tell: Says a sentence of ours to the user.
        show: Gets each line of a worker's output, with its name.

    Returns:
        The report, which is in ``job.out`` too.

    Raises:
        FileError, InvalidArgumentError, RequirementError: Before anything was asked for.
    """
    check_program(job.program, job.copies)
    job.way.check()
    try:
        job.out.mkdir(parents=True)
    except FileExistsError:
        raise FileError(f"the folder {str(job.out)!r} exists; name another with --out") from None
    except OSError as error:
        raise FileError(f"the folder {str(job.out)!r} cannot be made ({error.strerror})") from None
    for attempt in range(job.retries + 1):
        folder = job.out / (f"attempt-{attempt}" if attempt else "")
        folder.mkdir(exist_ok=True)
        report = _attempt(job, client, journal, folder, tell, show)
        left = job.retries - attempt
        if report.cause != "preempted" or not left:
            break
        tell(f"{report.summary}; beginning again ({left} {'times' if left > 1 else 'time'} left)")
    report = dataclasses.replace(report, folder=str(job.out))
    report.write(job.out)
    return report


def _attempt(
    job: Job,
    client: "Client",
    journal: Journal,
    folder: Path,
    tell: Callable[[str], None],
    show: Callable[[str], None],
) -> RunReport:
    run = secrets.token_hex(8)
    lease = Lease(client, job.request, run, journal, tell, kept=job.kept)
    started, began = utc(), time.monotonic()
    worker: dict[str, Any] | None = None
    error: BaseException | None = None
    found: RunReport | None = None
    try:
        with cleaned_up(lease.close, tell):
            lease.create()
            workers = lease.wait(job.wait)
            tell(f"{job.request.name} is ACTIVE with {len(workers)} VMs")
            found = on_workers(job, workers, run, folder, lease.check, tell, show)
    except WorkerError as wrong:
        error, worker = (
            wrong,
            {"process": wrong.process, "host": str(wrong.worker), "log_tail": wrong.tail},
        )
    except (PyReactantError, Interrupted) as wrong:
        error = wrong
    if error is None and found is not None:  # the slices are gone: this costs no more
        return found if found.exit_code or job.program else verdict(job, workers, folder, found)
    assert error is not None
    code = 128 + error.number if isinstance(error, Interrupted) else _code(error)
    return RunReport(
        cause=_cause(error),
        exit_code=code,
        summary=str(error),
        first_error=worker,
        processes=(),
        seconds=round(time.monotonic() - began, 3),
        started=started,
        folder=str(folder),
        command=list(job.program),
    )


def _code(error: BaseException) -> int:
    return int(getattr(error, "exit_code", 1))


def _cause(error: BaseException) -> str:
    if isinstance(error, Interrupted):
        return "interrupted"
    if isinstance(error, PreemptedError):
        return "preempted"
    if isinstance(error, CloudError):
        return "cloud"
    return {1: "user", 4: "rendezvous", 6: "lost", 7: "timeout"}.get(_code(error), "cloud")


def verdict(job: Job, workers: Sequence[Worker], folder: Path, report: RunReport) -> RunReport:
    """Put together what each VM wrote, check it, and compare the runtimes.

    Returns:
        `report`, with the verdict as its summary; a mismatch has exit code 5.
    """
    from ..crosscheck._report.svg import check_matplotlib
    from ..crosscheck._run import compare

    try:
        for backend in job.backends:
            _gather(backend, workers, folder)
        found = compare(*(folder / "results" / backend for backend in job.backends))
        found.to_json(folder / "crosscheck.json")
    except PyReactantError as error:
        return dataclasses.replace(
            report, cause="user", exit_code=error.exit_code, summary=f"no verdict: {error}"
        )
    try:
        check_matplotlib()
    except PyReactantError:
        pass  # the page is a help for reading; all of it is in crosscheck.json, too
    else:
        found.to_html(folder / "crosscheck.html")
    if found.passed:
        return dataclasses.replace(report, summary=found.verdict)
    code = found.exit_code
    cause = "mismatch" if code == MismatchError.exit_code else "user"
    return dataclasses.replace(report, cause=cause, exit_code=code, summary=found.verdict)


def _gather(backend: str, workers: Sequence[Worker], folder: Path) -> None:
    """VMs share no file system: each has written the records of its own process."""
    together = folder / "results" / backend
    together.mkdir(parents=True, exist_ok=True)
    for worker in workers:
        theirs = folder / f"{worker.node}-worker-{worker.index}" / "results" / backend
        try:
            for file in sorted(theirs.iterdir()):
                shutil.move(file, together / file.name)
        except OSError as error:
            raise FileError(f"{worker} left no results of {backend} ({error.strerror})") from None
    report = folder / f"report-{backend}.json"
    shutil.copy(report, together / "report.json")
