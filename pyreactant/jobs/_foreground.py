"""Runs in the foreground, listed as jobs: `pyreactant run` and `tpu run` are their own keepers."""

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .._errors import PyReactantError
from ._call import JOB
from ._keeper import cancelled_by_file, ended
from ._record import Record, Status, create, release
from ._submit import say


def recorded(
    work: Callable[[], int],
    *,
    origin: str,
    what: str,
    target: str,
    settings: Mapping[str, Any],
    run: Path,
    more: Mapping[str, Any] | None = None,
) -> int:
    """Do the work of a command that keeps its job itself, with a record for `pyreactant jobs`.

    Args:
        work: Runs the job; returns its exit code.
        origin: The command, such as "run".
        what: What runs, in a few words.
        target: Kind of the target.
        settings: Settings of the target.
        run: Folder in which the work writes report.json.
        more: What else the target needs.

    Returns:
        The exit code; a record that cannot be written does not change it.
    """
    given = {"run": str(run.absolute()), **(more or {})}
    try:
        record = create(what, target, settings, origin=origin, more=given)
    except PyReactantError as error:
        say(f"`pyreactant jobs` will not list this run: {error}")
        return work()
    os.environ[JOB] = record.id  # for its programs
    try:
        record.write_status(Status("running"))
        with cancelled_by_file(record):
            code = work()
        _write_end(record, _end_of(record, code))
        return code
    except PyReactantError as error:
        _write_end(record, Status("failed", str(error), error.exit_code))
        raise
    except KeyboardInterrupt:
        _write_end(record, Status("cancelled", "interrupted", 130))
        raise
    finally:
        release(record)


def submitted_to_slurm(what: str, submit: Callable[[], tuple[int, Path]]) -> int:
    """Submit a job of `slurm/main.sbatch`, with a record for `pyreactant jobs`.

    Args:
        what: What runs, in a few words.
        submit: Submits; returns Slurm's number and the job's output folder.

    Returns:
        Slurm's number.
    """
    try:
        record = create(what, "slurm", {}, origin="slurm submit")
    except PyReactantError as error:
        say(f"`pyreactant jobs` will not list this job: {error}")
        return submit()[0]
    try:
        number, run = submit()
        record.write_handle({"slurm": number, "run": str(run)})
        return number
    except PyReactantError as error:
        _write_end(record, Status("failed", f"not started: {error}", error.exit_code))
        raise
    finally:
        release(record)


_RANKS = (
    "PYREACTANT_PROCESS_INDEX",
    "SLURM_PROCID",
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "PMIX_RANK",
    "TPU_WORKER_ID",
)
"""Variables with which a launcher numbers the supervisors of one run."""


def is_alone(processes: int | None) -> bool:
    """Whether a run is a job of its own, not a part of another one or one of several supervisors.

    Args:
        processes: Number of processes that it starts here; None for what a launcher says.
    """
    if os.environ.get(JOB) or os.environ.get("SLURM_STEP_ID"):
        return False
    return processes is not None or not any(name in os.environ for name in _RANKS)


def new_folder() -> Path:
    """A folder for a run without --out."""
    stamp = time.strftime("%Y-%m-%dT%H%M%S", time.gmtime())
    return Path("pyreactant-runs", f"{stamp}-{os.urandom(2).hex()}")


def _end_of(record: Record, code: int) -> Status:
    if code == 130 or record.cancelling:
        return Status("cancelled", "interrupted", 130)
    return ended(record, code)


def _write_end(record: Record, status: Status) -> None:
    with contextlib.suppress(OSError):  # the state folder's disk is full: the run's end counts
        record.write_status(status)
