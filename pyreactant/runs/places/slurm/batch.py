"""Slurm jobs of slurm/main.sbatch: build and run the commands that a user would type."""

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ....arrays.dtypes import as_dtype
from ....arrays.runtimes.known import check_backend, check_platform
from ....arrays.text import parse_mesh, parse_spec
from ....base.errors import FileError, InvalidArgumentError
from ...supervisor.options import RUNS
from ...supervisor.program import check_program, find_program
from .controller import Command, JobId, job_fields, raw_id

_COMMENT = "pyreactant:"


def batch_folder() -> Path:
    """The folder of main.sbatch: in the checkout, or in the installed package.

    Raises:
        FileError: main.sbatch is in neither.
    """
    package = Path(__file__).resolve().parents[3]
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
        InvalidArgumentError: A further option does not start with "-", a runtime or platform is
            unknown, or a number, mesh, spec or element type cannot be read.
        FileError: The script does not exist.
    """
    _check(program, options, settings)
    wrong = [text for text in more if not text.startswith("-")]
    if wrong:
        raise InvalidArgumentError(f"options of sbatch must start with -, got {wrong[0]!r}")
    variables = {f"PYREACTANT_{k.upper()}": v for k, v in settings.items() if v is not None}
    for name in re.split("[, ]+", variables.get("PYREACTANT_BACKENDS", "jax").strip(", ")):
        check_backend(name)
    output = variables.get("PYREACTANT_OUTPUT")
    if output is not None:
        variables["PYREACTANT_OUTPUT"] = output = str(Path(output).absolute())
    script = batch_folder() / "main.sbatch"
    variables |= _python(script)
    chosen = [f"--{k.replace('_', '-')}={v}" for k, v in options.items() if v is not None]
    _check_once(options, more)
    comment = [] if output is None else [f"--comment={_COMMENT}{output}"]
    if script.is_relative_to(Path.cwd()):
        script = script.relative_to(Path.cwd())
    export = _export(variables, more)
    argv = ["sbatch", "--parsable", *chosen, *comment, *more, *export, str(script), *program]
    return Command(argv, variables)


def _check(
    program: Sequence[str], options: Mapping[str, str | None], settings: Mapping[str, str | None]
) -> None:
    """Check here what main.sbatch would find wrong only after waiting in the queue."""
    numbers = {
        "--nodes": options.get("nodes"),
        "--tasks-per-node": options.get("ntasks_per_node"),
        "--cpus-per-task": options.get("cpus_per_task"),
        "--size": settings.get("size"),
    }
    for name, value in numbers.items():
        if value is not None and int(value) < 1:
            raise InvalidArgumentError(f"{name} must be 1 or more, got {value}")
    if (platform := settings.get("platform")) is not None:
        check_platform(platform)
    if (mesh := settings.get("mesh")) is not None:
        parse_mesh(mesh)
    if (spec := settings.get("spec")) is not None:
        parse_spec(spec)
    if (dtype := settings.get("dtype")) is not None:
        as_dtype(dtype)
    if program and (found := find_program(program)).kind == "python":
        check_program(found, program)


_LETTERS = {
    "-A": "--account",
    "-C": "--constraint",
    "-N": "--nodes",
    "-c": "--cpus-per-task",
    "-p": "--partition",
    "-t": "--time",
}


def _check_once(options: Mapping[str, str | None], more: Sequence[str]) -> None:
    """Refuse an option of sbatch that is given twice, since sbatch would take the last one."""
    given = {f"--{name.replace('_', '-')}" for name, value in options.items() if value is not None}
    for word in more:
        name = word.partition("=")[0] if word.startswith("--") else _LETTERS.get(word[:2], word)
        if name in given:
            own = name.replace("--ntasks-per-node", "--tasks-per-node")
            raise InvalidArgumentError(f"give {own} or --sbatch={word}, not both")


def _python(script: Path) -> dict[str, str]:
    """The variable that names this Python, if main.sbatch would not find it by itself.

    Its shell is a login shell, whose PATH is not that of this process.
    """
    found = script.parent.parent / ".venv" / "bin"
    if os.environ.get("PYREACTANT_PYTHON") or Path(sys.executable).parent == found:
        return {}
    return {"PYREACTANT_PYTHON": sys.executable}


def _export(variables: Mapping[str, str], more: Sequence[str]) -> list[str]:
    """The option that exports the variables to a job which does not get this whole environment.

    That is so with --export among the options of sbatch, or with SBATCH_EXPORT.
    """
    chosen = [text.removeprefix("--export=") for text in more if text.startswith("--export=")]
    names = (chosen or [os.environ.get("SBATCH_EXPORT", "ALL")])[-1].split(",")
    if not variables or "ALL" in names:
        return []
    kept = [name for name in names if name and name not in ("NONE", "NIL")]
    return [f"--export={','.join([*kept, *variables])}"]


def submit(command: Command) -> int:
    """Submit a job and return its id."""
    return int(command.run().strip().split(";")[0])


def output_folder(number: int, fields: Mapping[str, str]) -> Path:
    """The output folder of the job with this raw id."""
    comment = fields.get("Comment", "")
    if comment.startswith(_COMMENT):
        task = fields.get("ArrayTaskId", "")  # such as 0-2 for those that wait
        return Path(comment.removeprefix(_COMMENT), task if task.isdigit() else "")
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
