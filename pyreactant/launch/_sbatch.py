"""Slurm jobs of slurm/main.sbatch: build and run the commands that a user would type."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .._errors import FileError, InvalidArgumentError
from ._slurm_job import Command, JobId, job_fields, raw_id

_COMMENT = "pyreactant:"


def batch_folder() -> Path:
    """The folder of main.sbatch: in the checkout, or in the installed package.

    Raises:
        FileError: main.sbatch is in neither.
    """
    package = Path(__file__).resolve().parent.parent
    for folder in (package.parent / "slurm", package / "_slurm"):
        if (folder / "main.sbatch").exists():
            return folder
    raise FileError(
        f"slurm/main.sbatch is neither beside nor in {package}; install pyreactant again"
    )


def submit_command(
    program: Sequence[str],
    options: Mapping[str, str | None],
    settings: Mapping[str, str | None],
    more: Sequence[str] = (),
) -> Command:
    """The ``sbatch`` command for a program, or for the matmul if none is given.

    Args:
        program: The program, as for ``pyreactant run``.
        options: Options of sbatch by long name; None keeps the value in main.sbatch.
        settings: ``PYREACTANT_*`` variables for main.sbatch, by the rest of their names.
        more: Further options of sbatch, passed unchanged, such as "--gpus-per-node=4".

    Raises:
        InvalidArgumentError: A further option does not start with "-".
    """
    wrong = [text for text in more if not text.startswith("-")]
    if wrong:
        raise InvalidArgumentError(f"options of sbatch must start with -, got {wrong[0]!r}")
    variables = {f"PYREACTANT_{k.upper()}": v for k, v in settings.items() if v is not None}
    output = variables.get("PYREACTANT_OUTPUT")
    if output is not None:
        variables["PYREACTANT_OUTPUT"] = output = str(Path(output).absolute())
    chosen = [f"--{k.replace('_', '-')}={v}" for k, v in options.items() if v is not None]
    comment = [] if output is None else [f"--comment={_COMMENT}{output}"]
    script = batch_folder() / "main.sbatch"
    if script.is_relative_to(Path.cwd()):
        script = script.relative_to(Path.cwd())
    argv = ["sbatch", "--parsable", *chosen, *comment, *more, str(script), *program]
    return Command(argv, variables)


def submit(command: Command) -> int:
    """Submit a job and return its id."""
    return int(command.run().strip().split(";")[0])


def output_folder(number: int, fields: Mapping[str, str]) -> Path:
    """The output folder of the job with this raw id."""
    comment = fields.get("Comment", "")
    if comment.startswith(_COMMENT):
        return Path(comment.removeprefix(_COMMENT))
    return Path(fields.get("WorkDir", "."), f"pyreactant-job-{number}")


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
