"""What Slurm says about a job, and how a job is ended."""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ....base.errors import FileError, InvalidArgumentError, RequirementError
from ....base.words import has_ended

_NO_CONTROLLER = (
    "Unable to contact slurm controller",
    "Could not establish a configuration source",
    "Unable to process configuration file",
)

COMMENT = "pyreactant:"
"""In a job's comment, the beginning of what names its output folder."""


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
            RequirementError: As `outcome`.
            InvalidArgumentError: Slurm refuses the command; its own message is included.
        """
        done = self.outcome()
        if done.returncode:
            raise InvalidArgumentError(f"{self}\nfailed: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def outcome(self) -> subprocess.CompletedProcess[str]:
        """Run the command, whatever its exit status.

        Raises:
            RequirementError: The program is not installed, or Slurm's controller does not answer.
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
        check_reached(done)
        return done


def check_reached(done: subprocess.CompletedProcess[str]) -> None:
    """Check that a command of Slurm that has ended has reached Slurm's controller.

    Raises:
        RequirementError: It has not; the message has its last line.
    """
    said = f"{done.stderr}{done.stdout}".strip()
    if done.returncode and any(words in said for words in _NO_CONTROLLER):
        raise RequirementError(
            f"{done.args[0]} does not reach Slurm's controller: {said.splitlines()[-1]}; check "
            "with scontrol ping that it runs, and run this command on a login node of the cluster"
        )


_LETTERS = {
    "-A": "--account",
    "-C": "--constraint",
    "-N": "--nodes",
    "-c": "--cpus-per-task",
    "-p": "--partition",
    "-t": "--time",
}


def check_once(asked: Mapping[str, object], more: Sequence[str]) -> None:
    """Check further options of sbatch: sbatch would take the last one of two.

    Args:
        asked: Options of sbatch by long name, with their values.
        more: Further options as words.

    Raises:
        InvalidArgumentError: A word is no option, or says what is asked already.
    """
    wrong = [word for word in more if not word.startswith("-")]
    if wrong:
        raise InvalidArgumentError(f"options of sbatch must start with -, got {wrong[0]!r}")
    given = {f"--{name}" for name in asked}
    for word in more:
        name = word.partition("=")[0] if word.startswith("--") else _LETTERS.get(word[:2], word)
        if name in given:
            own = name.replace("--ntasks-per-node", "--tasks-per-node")
            raise InvalidArgumentError(f"give {own} or --sbatch={word}, not both")


@dataclass(frozen=True, slots=True)
class JobId:
    """The id of a job, or of one task of an array.

    Attributes:
        number: The id that sbatch printed.
        task: Index of the task in the job's array; None for a job.
    """

    number: int
    task: int | None = None

    def __str__(self) -> str:
        """As Slurm's commands take it."""
        return str(self.number) if self.task is None else f"{self.number}_{self.task}"


def job_id(text: str) -> JobId:
    """The id that a user wrote, such as "4711" or "4711_2".

    Raises:
        InvalidArgumentError: It is not the id of one job; the message has the reason.
    """
    if re.fullmatch("[0-9]+(_[0-9]+)?", text):
        number, _, task = text.partition("_")
        return JobId(int(number), int(task) if task else None)
    first = (re.match("[0-9]+", text) or [""])[0]
    rest = text.removeprefix(first)
    reason = "it is not a number"
    if first and rest.startswith("_"):
        reason = f"it names several tasks of an array, or none; name one, such as {first}_1"
    elif first and rest.startswith("+"):
        reason = (
            "it is a component of a heterogeneous job, in which slurm/main.sbatch does not run; "
            "use scontrol and scancel"
        )
    elif first and rest.startswith("."):
        reason = f"it is a step; name its job, {first}"
    raise InvalidArgumentError(
        f"a job id must be a number, or number_index for one task of an array, got {text!r}: "
        f"{reason}"
    )


def show_command(job: JobId) -> Command:
    """The command that prints a job's fields."""
    return Command(["scontrol", "--oneliner", "show", "job", str(job)])


def cancel_command(job: JobId) -> Command:
    """The command that ends a job: SIGTERM first, so that programs can save.

    Without --verbose, scancel says nothing about a job that it does not know, and succeeds.
    """
    return Command(["scancel", "--verbose", str(job)])


def job_fields(job: JobId) -> dict[str, str]:
    """The fields of a job in Slurm; empty once Slurm has forgotten the job (MinJobAge)."""
    done = show_command(job).outcome()
    said = f"{done.stderr}{done.stdout}".strip()
    if done.returncode:
        if "Invalid job id" in said or "not found" in said:
            return {}
        raise InvalidArgumentError(f"{show_command(job)}\nfailed: {said}")
    # For the id of an array, Slurm prints a line for each task.
    records = [_fields(line) for line in done.stdout.splitlines()]
    return next((record for record in records if _is_about(record, job)), {})


def _fields(line: str) -> dict[str, str]:
    """The fields in a line of scontrol."""
    fields: dict[str, str] = {}
    key = ""
    for word in line.split(" "):
        name, equals, value = word.partition("=")
        if equals and name and name[0].isupper():
            key, fields[name] = name, value
        elif key:
            fields[key] += f" {word}"  # the value has a space, as a path may
    return {name: value.strip() for name, value in fields.items()}


def _is_about(fields: Mapping[str, str], job: JobId) -> bool:
    if job.task is None:
        return fields.get("JobId") == str(job.number)
    array, task = fields.get("ArrayJobId"), fields.get("ArrayTaskId")
    return (array, task) == (str(job.number), str(job.task))


def raw_id(job: JobId, fields: Mapping[str, str]) -> int | None:
    """The number that names a job's files (%j); None for a task of an array before it starts.

    Raises:
        FileError: Slurm does not know the task, so its number is unknown.
    """
    if job.task is None:
        return job.number
    if not fields:
        raise FileError(
            f"Slurm does not know job {job} (any more), and only Slurm knows the number that names "
            f"its files; find it with sacct --jobs={job} --format=JobID,JobIDRaw and pass it"
        )
    if fields.get("JobState") == "PENDING" and fields.get("Restarts", "0") == "0":
        return None  # until then Slurm shows the number of the array
    return int(fields["JobId"])


def cancel(job: JobId) -> str:
    """End a job.

    Returns:
        What happened, for the user.

    Raises:
        InvalidArgumentError: Slurm does not know the job, or refuses to end it.
    """
    fields = job_fields(job)
    if not fields:
        raise InvalidArgumentError(
            f"Slurm does not know job {job} (any more), and nothing was cancelled; squeue --me "
            "lists your jobs"
        )
    done = cancel_command(job).outcome()
    errors = [line for line in done.stderr.splitlines() if "error:" in line]
    if errors and all(map(has_ended, errors)):
        return f"job {job} has ended or is ending ({fields.get('JobState')}); nothing was cancelled"
    if errors or done.returncode:
        said = "\n".join(errors) or (done.stderr or done.stdout).strip()
        raise InvalidArgumentError(f"Slurm did not cancel job {job}: {said}")
    whole = job.task is None and fields.get("ArrayJobId") == str(job.number)
    state = job_fields(job).get("JobState", "gone")
    return f"cancelled job {job}{', every task of its array' if whole else ''}: it is {state}"
