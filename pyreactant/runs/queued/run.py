"""Run a job: create slices, run each runtime, fetch results, delete the slices, check results.

Or start a Ray cluster on the VMs of new slices, for `pyreactant tpu create --ray`.
"""

import dataclasses
import secrets
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.errors import ExitCode, FileError, PyReactantError, code_of_signal
from ...base.files import state_folder, writing
from ..supervisor import RunReport
from ..supervisor.state import utc
from .deletion import Interrupted, cleaned_up
from .job import Check, Job, Phase, check_size
from .journal import Journal
from .lifecycle import Lease
from .reach import SshOptions
from .request import CloudError, PreemptedError, Request, Worker
from .workers import RAY_CLIENT_PORT, REQUEST, WorkerError, check_program, on_workers, start_ray

if TYPE_CHECKING:
    from .client import Client


def run_job(
    job: Job,
    client: "Client",
    journal: Journal,
    *,
    check: Check | None = None,
    tell: Callable[[str], None],
    show: Callable[[str], None],
    enter: Callable[[Phase], None] = lambda _: None,
) -> RunReport:
    """Run a job; the slices are deleted however it ends, unless `job.kept`.

    Args:
        job: What to run.
        client: Client of the API.
        journal: Journal that records the slices.
        check: How the results are checked; for a job without a program, and only for that.
        tell: Prints a message for the user.
        show: Prints a line of output, prefixed with the worker's name.
        enter: Is told which phase begins.

    Returns:
        The report, which is also written to ``job.out``.

    Raises:
        FileError, InvalidArgumentError, RequirementError: The job cannot start; nothing was
            requested.
    """
    assert (check is None) == bool(job.program), "a job has a program or a check"
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
    if job.max_restarts:
        tell(f"with {job.max_restarts} {_restarts(job.max_restarts)}, at most {job.most()}")
    for attempt in range(job.max_restarts + 1):
        folder = job.out / (f"attempt-{attempt}" if attempt else "")
        folder.mkdir(exist_ok=True)
        run = secrets.token_hex(8)
        lease = Lease(
            client=client,
            request=job.request,
            run=run,
            journal=journal,
            tell=tell,
            kept=job.kept,
            deletion=job.deletion,
        )
        report = _attempt(job, check, lease, folder, show, enter)
        left = job.max_restarts - attempt
        if report.cause != "preempted" or not left:
            break
        tell(f"{report.summary}; trying again ({left} {_restarts(left)} left)")
    report = dataclasses.replace(report, folder=str(job.out))
    report.write(job.out)
    return report


def _restarts(count: int) -> str:
    return "restart" if count == 1 else "restarts"


def _attempt(
    job: Job,
    check: Check | None,
    lease: Lease,
    folder: Path,
    show: Callable[[str], None],
    enter: Callable[[Phase], None],
) -> RunReport:
    undeleted = False

    def close() -> None:
        nonlocal undeleted
        undeleted = True
        try:
            enter(Phase.DELETING)
        finally:
            lease.close()
        undeleted = False

    started, began = utc(), time.monotonic()
    first_error: dict[str, Any] | None = None
    report: RunReport | None = None
    try:
        with cleaned_up(close, lease.tell):
            enter(Phase.QUEUED)
            lease.create()
            workers = lease.wait(job.wait)
            enter(Phase.STARTING)
            lease.tell(f"{job.request.name} is ACTIVE with {len(workers)} VMs")
            request = None
            if check is not None:
                request = folder / REQUEST
                check.write_request(job, request)
            report = on_workers(
                job,
                workers,
                lease.run,
                folder,
                request,
                check=lease.check,
                tell=lease.tell,
                show=show,
                enter=enter,
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


def start_cluster(
    request: Request,
    ssh: SshOptions,
    python: str | None,
    workers: Sequence[Worker],
    *,
    check: Callable[[], None],
    tell: Callable[[str], None],
) -> str:
    """Start a cluster whose token only this user has.

    Args:
        request: The slices.
        ssh: How the VMs are reached.
        python: Interpreter on the VMs that has Ray; None installs one.
        workers: The VMs of the ACTIVE slices.
        check: Raises if the slices are gone.
        tell: Prints a message for the user.

    Returns:
        What to do to use the cluster, as lines of text.

    Raises:
        PyReactantError: A step failed on a VM.
        RequirementError: The token cannot be written.
    """
    token = secrets.token_hex(32)
    file = state_folder() / "ray" / f"{request.project}-{request.zone}-{request.name}.token"
    with writing(file, "set XDG_STATE_HOME to a folder that you can write"):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        file.touch(mode=0o600)
        file.write_text(token)
    with tempfile.TemporaryDirectory(prefix="pyreactant-ray-") as folder:
        job = Job(request=request, out=Path(folder), backends=("jax",), ssh=ssh, python=python)
        address = start_ray(job, workers, Path(folder), token, check=check, tell=tell)
    forward = f"-L{RAY_CLIENT_PORT}:{workers[0].internal}:{RAY_CLIENT_PORT}"
    slices = (
        f"--name {request.name} --project {request.project} --zone {request.zone} "
        f"--topology {request.accelerator_type}"
    )
    return "\n".join(
        [
            f"Ray runs at {address} in the slices' network. From this machine, keep a tunnel open:",
            f"  pyreactant tpu ssh {slices} --ssh-flag={forward}",
            "and in the shell of the driver:",
            "  export RAY_AUTH_MODE=token",
            f"  export RAY_AUTH_TOKEN_PATH={shlex.quote(str(file))}",
            f"  export RAY_ADDRESS=ray://127.0.0.1:{RAY_CLIENT_PORT}",
        ]
    )
