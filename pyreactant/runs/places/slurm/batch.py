"""Slurm jobs by their numbers, with or without a record: those of slurm/main.sbatch, and arrays."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ....base.errors import FileError
from ...supervisor.options import RUNS
from .controller import COMMENT, Command, JobId, job_fields, raw_id


def output_folder(number: int, fields: Mapping[str, str]) -> Path:
    """The output folder of the job with this raw id."""
    comment = fields.get("Comment", "")
    if comment.startswith(COMMENT):
        task = fields.get("ArrayTaskId", "")  # such as 0-2 for those that wait
        return Path(comment.removeprefix(COMMENT), task if task.isdigit() else "")
    base = Path(fields.get("WorkDir", "."))
    older = base / f"pyreactant-job-{number}"  # of a job that an older version submitted
    return older if older.exists() else base / RUNS / f"job-{number}"


def reports(folder: Path) -> dict[str, dict[str, Any]]:
    """The reports of a job's runs, by the path of the run's folder in the job's folder."""
    found = {}
    for path in sorted(folder.glob("**/report.json")):
        try:
            found[str(path.parent.relative_to(folder))] = json.loads(path.read_text())
        except (OSError, ValueError):
            continue
    return found


def status(job: JobId) -> dict[str, Any]:
    """State of a job, and how its runs ended.

    Raises:
        FileError: Slurm does not know the job, and its output folder does not exist.
    """
    fields = job_fields(job)
    number = raw_id(job, fields)
    folder = None if number is None else output_folder(number, fields)
    if not fields and folder is not None and not folder.exists():
        raise FileError(
            f"Slurm does not know job {job} (any more), and the folder {folder} does not exist; "
            "run this in the folder from which the job was submitted"
        )
    runs = {
        name: {key: report.get(key) for key in ("cause", "exit_code", "summary", "seconds")}
        for name, report in (reports(folder) if folder else {}).items()
    }
    return {
        "job": str(job),
        "raw_id": number,
        "state": fields.get("JobState", "unknown to Slurm"),
        "reason": fields.get("Reason"),
        "nodes": fields.get("NodeList"),
        "restarts": int(fields.get("Restarts") or 0),
        "folder": None if folder is None else str(folder),
        "runs": runs,
    }


def logs_command(job: JobId, run: str | None, process: int | None, follow: bool) -> Command:
    """The ``tail`` command for a job's output, or for the log of one process.

    Raises:
        FileError: The log does not exist, or several match; the message lists the logs.
    """
    fields = job_fields(job)
    number = raw_id(job, fields)
    if number is None:
        raise FileError(f"job {job} has not started, and has no logs yet")
    if process is None:
        path = Path(fields.get("StdOut") or f"pyreactant-{number}.out")
    else:
        folder = output_folder(number, fields)
        found = sorted(folder.glob(f"**/process-{process}.log"))
        chosen = [p for p in found if run is None or str(p.parent.relative_to(folder)) == run]
        if len(chosen) != 1:
            runs = ", ".join(str(p.parent.relative_to(folder)) for p in found) or "none"
            raise FileError(
                f"process {process} of job {job} must have one log, but has {len(chosen)}"
                f"{f' in run {run}' if run else ''}; choose a run with --run (runs with logs: "
                f"{runs})"
            )
        path = chosen[0]
    if not path.exists():
        raise FileError(f"job {job} has not written {path} yet; try again once it runs")
    return tail_command(path, follow)


def tail_command(path: Path, follow: bool) -> Command:
    """The command that prints a file, and with `follow` whatever is added to it."""
    return Command(["tail", "--lines=+1", *(["--follow=name"] if follow else []), str(path)])
