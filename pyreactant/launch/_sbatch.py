"""Slurm jobs around slurm/main.sbatch: the commands that a user would type, made and run."""

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
    """An argument list, and what it needs in its environment beyond ours."""

    argv: Sequence[str]
    settings: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """As one would type it."""
        settings = [f"{key}={shlex.quote(value)}" for key, value in self.settings.items()]
        return " ".join([*settings, shlex.join(self.argv)])

    def run(self) -> str:
        """Its standard output.

        Raises:
            RequirementError: The program is not here.
            InvalidArgumentError: Slurm refuses; its own words are in the message.
        """
        if shutil.which(self.argv[0]) is None:
            raise RequirementError(
                f"{self.argv[0]} is not on this machine; run this on a login node of the cluster"
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
    """The folder with main.sbatch: of the checkout, or within the installed package.

    Raises:
        FileError: It is in neither.
    """
    package = Path(__file__).resolve().parent.parent
    for folder in (package.parent / "slurm", package / "_slurm"):
        if (folder / "main.sbatch").exists():
            return folder
    raise FileError(f"slurm/main.sbatch is neither beside nor in {package}; install it again")


def submit_command(
    program: Sequence[str],
    options: Mapping[str, str | None],
    settings: Mapping[str, str | None],
    more: Sequence[str] = (),
) -> Command:
    """``sbatch`` for a program, or for the matmul where there is none.

    Args:
        program: As for ``pyreactant run``.
        options: Of sbatch, by their long names; None leaves main.sbatch's own.
        settings: ``PYREACTANT_*`` for main.sbatch, by the rest of the name.
        more: Further options of sbatch as they stand, such as "--gpus-per-node=4".
    """
    wrong = [text for text in more if not text.startswith("-")]
    if wrong:
        raise InvalidArgumentError(f"options of sbatch start with -, got {wrong[0]!r}")
    said = {f"PYREACTANT_{k.upper()}": v for k, v in settings.items() if v is not None}
    output = said.get("PYREACTANT_OUTPUT")
    if output is not None:
        said["PYREACTANT_OUTPUT"] = output = str(Path(output).absolute())
    chosen = [f"--{k.replace('_', '-')}={v}" for k, v in options.items() if v is not None]
    comment = [] if output is None else [f"--comment={_COMMENT}{output}"]
    script = batch_folder() / "main.sbatch"
    if script.is_relative_to(Path.cwd()):
        script = script.relative_to(Path.cwd())
    return Command(["sbatch", "--parsable", *chosen, *comment, *more, str(script), *program], said)


def submit(command: Command) -> int:
    """Submit; the job's number."""
    return int(command.run().strip().split(";")[0])


def show_command(job: int) -> Command:
    """What asks Slurm for a job."""
    return Command(["scontrol", "--oneliner", "show", "job", str(job)])


def cancel_command(job: int) -> Command:
    """What ends a job: SIGTERM first, so that programs can save."""
    return Command(["scancel", str(job)])


def job_fields(job: int) -> dict[str, str]:
    """What Slurm still knows of a job; nothing once it has forgotten it (MinJobAge)."""
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
            fields[key] += f" {word}"  # paths may have spaces
    return {name: value.strip() for name, value in fields.items()}


def output_folder(job: int, fields: Mapping[str, str]) -> Path:
    """Where a job writes."""
    comment = fields.get("Comment", "")
    if comment.startswith(_COMMENT):
        return Path(comment.removeprefix(_COMMENT))
    return Path(fields.get("WorkDir", "."), f"pyreactant-job-{job}")


def reports(folder: Path) -> dict[str, dict[str, Any]]:
    """The reports of a job's runs, by their folder's name below the job's."""
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
        FileError: Neither Slurm nor a folder here knows the job.
    """
    fields = job_fields(job)
    folder = output_folder(job, fields)
    if not fields and not folder.exists():
        raise FileError(
            f"Slurm knows no job {job} (any more), and there is no folder {folder} here; look "
            "in the folder from which it was submitted"
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
    """``tail`` on the job's output, or on a process's log.

    Raises:
        FileError: There is no such log, with those that there are.
    """
    fields = job_fields(job)
    if process is None:
        path = Path(fields.get("StdOut") or f"pyreactant-{job}.out")
    else:
        folder = output_folder(job, fields)
        found = sorted(folder.glob(f"**/process-{process}.log"))
        chosen = [p for p in found if run is None or str(p.parent.relative_to(folder)) == run]
        if len(chosen) != 1:
            there = ", ".join(str(p.parent.relative_to(folder)) for p in found) or "none"
            raise FileError(
                f"process {process} of job {job} has {len(chosen)} logs"
                f"{f' in run {run}' if run else ''}, one is needed; choose with --run (there are: "
                f"{there})"
            )
        path = chosen[0]
    if not path.exists():
        raise FileError(f"job {job} has written no {path} yet")
    return tail_command(path, follow)


def tail_command(path: Path, follow: bool) -> Command:
    """What prints a file, and goes on as it grows."""
    return Command(["tail", "--lines=+1", *(["--follow=name"] if follow else []), str(path)])
