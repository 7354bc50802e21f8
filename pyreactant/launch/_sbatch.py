"""Slurm jobs of slurm/main.sbatch: build and run the commands that a user would type."""

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .._errors import FileError, InvalidArgumentError, RequirementError

_COMMENT = "pyreactant:"


@dataclass(frozen=True, slots=True)
class Command:
    """An argument list, and the variables to add to the environment."""

    argv: Sequence[str]
    settings: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """The command as a line for a shell."""
        settings = [f"{key}={shlex.quote(value)}" for key, value in self.settings.items()]
        return " ".join([*settings, shlex.join(self.argv)])

    def run(self) -> str:
        """Run the command and return its standard output.

        Raises:
            RequirementError: The program is not installed.
            InvalidArgumentError: Slurm refuses the command; its own message is included.
        """
        if shutil.which(self.argv[0]) is None:
            raise RequirementError(
                f"{self.argv[0]} is not installed on this machine; run this command on a login "
                "node of the cluster"
            )
        done = subprocess.run(
            self.argv,
            env={**os.environ, **self.settings},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise InvalidArgumentError(f"{self}\nfailed: {(done.stderr or done.stdout).strip()}")
        return done.stdout


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


def show_command(job: int) -> Command:
    """The command that prints a job's fields."""
    return Command(["scontrol", "--oneliner", "show", "job", str(job)])


def cancel_command(job: int) -> Command:
    """The command that ends a job: SIGTERM first, so that programs can save."""
    return Command(["scancel", str(job)])


def job_fields(job: int) -> dict[str, str]:
    """The fields of a job in Slurm; empty once Slurm has forgotten the job (MinJobAge)."""
    try:
        text = show_command(job).run()
    except InvalidArgumentError as error:
        if "Invalid job id" in str(error):
            return {}
        raise
    fields: dict[str, str] = {}
    key = ""
    for word in text.split(" "):
        name, equals, value = word.partition("=")
        if equals and name and name[0].isupper():
            key, fields[name] = name, value
        elif key:
            fields[key] += f" {word}"  # the value has a space, as a path may
    return {name: value.strip() for name, value in fields.items()}


def output_folder(job: int, fields: Mapping[str, str]) -> Path:
    """The output folder of a job."""
    comment = fields.get("Comment", "")
    if comment.startswith(_COMMENT):
        return Path(comment.removeprefix(_COMMENT))
    return Path(fields.get("WorkDir", "."), f"pyreactant-job-{job}")


def reports(folder: Path) -> dict[str, dict[str, Any]]:
    """The reports of a job's runs, by the path of the run's folder in the job's folder."""
    found = {}
    for path in sorted(folder.glob("**/report.json")):
        try:
            found[str(path.parent.relative_to(folder))] = json.loads(path.read_text())
        except (OSError, ValueError):
            continue
    return found


def status(job: int) -> dict[str, Any]:
    """State of a job, and how its runs ended.

    Raises:
        FileError: Slurm does not know the job, and its output folder does not exist.
    """
    fields = job_fields(job)
    folder = output_folder(job, fields)
    if not fields and not folder.exists():
        raise FileError(
            f"Slurm does not know job {job} (any more), and the folder {folder} does not exist; "
            "run this in the folder from which the job was submitted"
        )
    runs = {
        name: {key: report.get(key) for key in ("cause", "exit_code", "summary", "seconds")}
        for name, report in reports(folder).items()
    }
    return {
        "job": job,
        "state": fields.get("JobState", "unknown to Slurm"),
        "reason": fields.get("Reason"),
        "nodes": fields.get("NodeList"),
        "restarts": int(fields.get("Restarts") or 0),
        "folder": str(folder),
        "runs": runs,
    }


def logs_command(job: int, run: str | None, process: int | None, follow: bool) -> Command:
    """The ``tail`` command for a job's output, or for the log of one process.

    Raises:
        FileError: The log does not exist, or several match; the message lists the logs.
    """
    fields = job_fields(job)
    if process is None:
        path = Path(fields.get("StdOut") or f"pyreactant-{job}.out")
    else:
        folder = output_folder(job, fields)
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
