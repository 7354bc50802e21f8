"""The cross-check on slices: what every VM runs, and the verdict on what came back."""

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .._errors import FileError, MismatchError, PyReactantError
from ..launch import RunReport
from ._resource import Worker

if TYPE_CHECKING:
    from ._job import Job

_REQUEST = "request.json"


def write_request(job: "Job", folder: Path) -> Path:
    """The request for the sharded matmul, alike for all runtimes; the file."""
    from ..crosscheck._request import Request
    from ..crosscheck._request import write_request as write

    file = folder / _REQUEST
    write(Request(("matmul",), size=job.size), file)
    return file


def member(backend: str) -> list[str]:
    """The program of each process, for ``pyreactant run`` in the workers' folder "code"."""
    return ["-m", "pyreactant.crosscheck", f"../{_REQUEST}", f"../results/{backend}"]


def verdict(job: "Job", workers: Sequence[Worker], folder: Path, report: RunReport) -> RunReport:
    """Put together what each VM wrote, check it, and compare the runtimes.

    Returns:
        `report`, with the verdict as its summary; a mismatch has exit code 5.
    """
    from ..crosscheck._run import compare
    from ..crosscheck._svg import check_matplotlib

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
