"""A whole job: slices made, code copied, runtimes run in turn, results fetched, slices deleted."""

import dataclasses
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._errors import FileError, InvalidArgumentError, PyReactantError
from .._runtime import BACKENDS
from ..launch import RunReport
from ..launch._report import utc
from ._code import check_program
from ._errors import CloudError, PreemptedError
from ._journal import Journal
from ._lifecycle import Lease
from ._reach import Way
from ._request import Request
from ._signals import Interrupted, cleaned_up
from ._verdict import verdict
from ._workers import WorkerError, on_workers

if TYPE_CHECKING:
    from ._client import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to run on which slices; times are in seconds.

    Attributes:
        request: The slices.
        out: Folder for logs, results and report; must not exist.
        program: For ``pyreactant run``; () for the sharded matmul.
        backends: Runtimes, one after the other.
        way: How workers are reached.
        copies: Files and folders that the program needs, below the working directory.
        python: An interpreter that is on the workers already, with all that is needed; None
            installs one.
        platform: What the runtimes must find.
        devices: CPU devices of each process where `platform` is "cpu"; 0 else.
        size: Of the matmul.
        wait: For the slices to become ACTIVE.
        reach: For their VMs to answer.
        install: For the installation.
        timeout: For each runtime's run; None for none.
        stall: For a program that gives no sign of life to be given up.
        retries: How often to begin again after a preemption.
        kept: Whether the slices are kept.
    """

    request: Request
    out: Path
    program: Sequence[str] = ()
    backends: Sequence[str] = tuple(BACKENDS)
    way: Way = field(default_factory=Way)
    copies: Sequence[Path] = ()
    python: str | None = None
    platform: str = "tpu"
    devices: int = 0
    size: int = 4096
    wait: float = 3600.0
    reach: float = 300.0
    install: float = 2400.0
    timeout: float | None = None
    stall: float = 300.0
    retries: int = 0
    kept: bool = False

    def __post_init__(self) -> None:
        unknown = [name for name in self.backends if name not in BACKENDS]
        if unknown or not self.backends:
            raise InvalidArgumentError(
                f"unknown backend {unknown[0]!r}; known are: {', '.join(BACKENDS)}"
                if unknown
                else "name at least one backend"
            )
        for name, least in (("retries", 0), ("size", 1), ("devices", 0)):
            number = getattr(self, name)
            if number < least:
                raise InvalidArgumentError(f"{name} must be {least} or more, got {number}")
        for name in ("wait", "reach", "install", "timeout", "stall"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InvalidArgumentError(f"{name} must be positive seconds, got {value:g}")


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
