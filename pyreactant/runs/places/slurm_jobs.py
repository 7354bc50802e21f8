"""What Slurm says about a job, with or without a record, and how a job is ended."""

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ...base.child import output_of
from ...base.duration import parse_duration
from ...base.errors import FileError, InvalidArgumentError, RequirementError
from ...base.files import replacing
from ...base.words import has_ended, without_controller
from ..record import jobs_folder, private_file
from ..supervisor.options import RUNS

NAMED = "pyreactant-"
"""The beginning of the name of a job with a record; its id follows."""

COMMENT = "pyreactant:"
"""In a job's comment, the beginning of what names its output folder."""

INTERVAL = 2.0
"""Seconds between two questions to the controller, by all processes of this user together."""


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

    def outcome(self, timeout: float | None = None) -> subprocess.CompletedProcess[str]:
        """Run the command, whatever its exit status.

        Raises:
            RequirementError: The program is not installed, or Slurm's controller does not answer.
        """
        check_configuration()
        check_installed(self.argv[0])
        try:
            done = output_of(self.argv, env={**os.environ, **self.settings}, timeout=timeout)
        except subprocess.TimeoutExpired:
            raise RequirementError("Slurm's controller does not answer; try again later") from None
        check_reached(done)
        return done


def check_installed(tool: str) -> None:
    """Check that a command of Slurm is there.

    Raises:
        RequirementError: It is not installed.
    """
    if shutil.which(tool) is None:
        raise RequirementError(
            f"{tool} is not installed on this machine; run this command on a login node of the "
            "cluster: ssh LOGIN_NODE"
        )


def check_configuration() -> None:
    """Check that Slurm's configuration file is there; without it sbatch tries again for a minute.

    Raises:
        RequirementError: `SLURM_CONF` names a file that cannot be read.
    """
    name = os.environ.get("SLURM_CONF")
    if not name:
        return
    try:
        with Path(name).open("rb"):
            pass
    except OSError as error:
        raise RequirementError(
            f"SLURM_CONF must name the configuration file of Slurm, but {name!r} cannot be read "
            f"({error.strerror}); correct or unset the variable, or run this command on a login "
            "node of the cluster"
        ) from None


def check_reached(done: subprocess.CompletedProcess[str]) -> None:
    """Check that a command of Slurm that has ended has reached Slurm's controller.

    Raises:
        RequirementError: It has not; the message has what it said of that.
    """
    if done.returncode and (why := without_controller(f"{done.stderr}{done.stdout}")):
        raise RequirementError(
            f"{done.args[0]} does not reach Slurm's controller: {why}; check with scontrol "
            "ping that it runs, and run this command on a login node of the cluster"
        )


_ARRAY = "one run is not an array; start one run for each task"
_SUBMITS_NOTHING = "with it sbatch submits no job; use --dry-run, or sbatch itself"
_REFUSED = {
    "--help": _SUBMITS_NOTHING,
    "--usage": _SUBMITS_NOTHING,
    "--version": _SUBMITS_NOTHING,
    "--test-only": _SUBMITS_NOTHING,
    "--quiet": "with it sbatch does not say the number of the job",
    "--wait": "with it sbatch does not return before the job's end",
    "--wrap": "the script is pyreactant's",
    "--clusters": "jobs are looked for on this cluster; run this on a login node of that one",
}
"""Options of sbatch that no job of pyreactant can have, and why."""

_LETTERS = {
    "A": "--account",
    "C": "--constraint",
    "M": "--clusters",
    "N": "--nodes",
    "Q": "--quiet",
    "V": "--version",
    "W": "--wait",
    "a": "--array",
    "c": "--cpus-per-task",
    "h": "--help",
    "p": "--partition",
    "t": "--time",
    "u": "--usage",
}
_OTHER_FLAGS = "HIkOPsv"
"""Further letters without a value, which may stand before another one in a word."""

_OTHER_NAMES = ("--gpus", "--ntasks")
"""Options of their own, which are the beginnings of others."""

_VARIABLES = {
    "SBATCH_WAIT": "--wait",
    "SBATCH_CLUSTERS": "--clusters",
    "SBATCH_ARRAY_INX": "--array",
}


def check_possible(more: Sequence[str], *, array: bool = False) -> None:
    """Check that further options of sbatch, and its variables, leave a job that can be followed.

    Args:
        more: Further options as words.
        array: Whether the job may be an array.

    Raises:
        InvalidArgumentError: One of them does not.
    """
    refused = _REFUSED if array else {**_REFUSED, "--array": _ARRAY}
    for word in more:
        for name in _options_in(word, refused):
            raise InvalidArgumentError(f"--sbatch={word} cannot be used: {refused[name]}")
    for variable, name in _VARIABLES.items():
        if os.environ.get(variable) and name in refused:
            raise InvalidArgumentError(
                f"{variable}={os.environ[variable]} cannot be used: {refused[name]}; unset it"
            )


def _options_in(word: str, names: Iterable[str]) -> list[str]:
    """Which of some options a word is; sbatch takes the beginning of a name for the name."""
    given = word.partition("=")[0]
    if not word.startswith("--"):
        given = _LETTERS.get(word[1:].lstrip(_OTHER_FLAGS)[:1], "")
    if len(given) <= 2 or given in _OTHER_NAMES:
        return []
    return [name for name in names if name.startswith(given)]


def number_of(printed: str) -> int:
    """The number of the job that ``sbatch --parsable`` has printed.

    Raises:
        InvalidArgumentError: It printed something else.
    """
    number = printed.strip().partition(";")[0]
    if not number.isdecimal():
        raise InvalidArgumentError(
            f"sbatch must print the number of a job, got {printed.strip()!r}; see the options of "
            "sbatch, and squeue --me for what was submitted"
        )
    return int(number)


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
    for word in more:
        for name in _options_in(word, [f"--{name}" for name in asked]):
            own = name.replace("--ntasks-per-node", "--tasks-per-node")
            raise InvalidArgumentError(f"give {own} or --sbatch={word}, not both")


def slurms_time(text: str | None) -> str | None:
    """A time limit as sbatch takes it: of a duration with units, such as "90m", "01:30:00"."""
    if text is None or not re.search("[dhms]$", text):
        return text
    try:
        seconds = round(parse_duration(text))
    except ValueError:  # `Target.check_settings` refuses it
        return text
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


TIME = (
    r"(?i)\d+|\d+:\d+(:\d+)?|\d+-\d+(:\d+){0,2}|infinite|unlimited",
    "minutes, a duration such as 2h, HH:MM:SS or days-HH:MM:SS",
)
"""The forms of a time limit that sbatch's manual names, as a pattern and in words."""


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


def job_fields(job: JobId) -> dict[str, str]:
    """The fields of a job in Slurm; empty once Slurm has forgotten the job (MinJobAge)."""
    command = Command(["scontrol", "--oneliner", "show", "job", str(job)])
    done = command.outcome()
    said = f"{done.stderr}{done.stdout}".strip()
    if done.returncode:
        if "Invalid job id" in said or "not found" in said:
            return {}
        first, _, _ = said.partition("\n")
        raise InvalidArgumentError(f"{command} failed: {first}")
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


def end(number: int | JobId) -> subprocess.CompletedProcess[str]:
    """Tell Slurm to end a job: SIGTERM first, so that programs can save.

    Without --verbose, scancel says nothing about a job that it does not know, and succeeds.
    """
    return Command(["scancel", "--verbose", str(number)]).outcome()


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
    done = end(job)
    errors = [line for line in done.stderr.splitlines() if "error:" in line]
    if errors and all(map(has_ended, errors)):
        return f"job {job} has ended or is ending ({fields.get('JobState')}); nothing was cancelled"
    if errors or done.returncode:
        said = "\n".join(errors) or (done.stderr or done.stdout).strip()
        raise InvalidArgumentError(f"Slurm did not cancel job {job}: {said}")
    whole = job.task is None and fields.get("ArrayJobId") == str(job.number)
    state = job_fields(job).get("JobState", "gone")
    return f"cancelled job {job}{', every task of its array' if whole else ''}: it is {state}"


class QueueEntry(NamedTuple):
    """One job in Slurm: its number, name, state, and why it waits."""

    number: int
    name: str
    state: str
    reason: str


def queue(*, fresh: bool = False) -> list[QueueEntry]:
    """The jobs of this user that Slurm knows, asked at most every `INTERVAL` seconds.

    Args:
        fresh: Whether to ask even if the last answer is young.

    Raises:
        RequirementError: squeue is absent, or the controller does not answer.
    """
    file = jobs_folder() / ".slurm.json"
    if not fresh:
        try:
            saved = json.loads(file.read_bytes())
            if 0 <= time.time() - saved["at"] < INTERVAL:
                return [QueueEntry(*entry) for entry in saved["rows"]]
        except (OSError, ValueError, KeyError, TypeError):
            pass  # nobody has asked, or another version did
    entries = _ask()
    with (
        contextlib.suppress(OSError),  # a full disk hides no job
        replacing(file) as partial,
        private_file(partial) as opened,
    ):
        opened.write(json.dumps({"at": time.time(), "rows": entries}).encode())
    return entries


def waits_for(state: str, reason: str) -> str:
    """What a job that does not run waits for: Slurm's reason, and its state if that says more."""
    words = [] if state == "PENDING" else [state.lower().replace("_", " ")]
    return ": ".join([*words, *([reason] if reason not in ("", "None") else [])])


def _ask() -> list[QueueEntry]:
    argv = ["squeue", "--me", "--noheader", "--states=all", "--format=%A|%T|%r|%j"]
    done = Command(argv).outcome(timeout=30)
    if done.returncode:
        raise RequirementError(f"Slurm's controller does not answer: {done.stderr.strip()}")
    entries = []
    for line in done.stdout.splitlines():
        number, state, reason, name = line.split("|", 3)
        entries.append(QueueEntry(int(number), name, state, "" if reason == "None" else reason))
    return entries


def output_folder(number: int, fields: Mapping[str, str]) -> Path:
    """The output folder of the job with this raw id."""
    base = Path(fields.get("WorkDir", "."))
    if fields.get("JobName") == f"{NAMED}{base.name}":  # of `run --on slurm`
        return base / "run"
    comment = fields.get("Comment", "")
    if comment.startswith(COMMENT):
        task = fields.get("ArrayTaskId", "")  # such as 0-2 for those that wait
        return Path(comment.removeprefix(COMMENT), task if task.isdigit() else "")
    older = base / f"pyreactant-job-{number}"  # of a job that an older version submitted
    return older if older.exists() else base / RUNS / f"job-{number}"


def reports(folder: Path, number: int) -> dict[str, dict[str, Any]]:
    """The reports of a job's runs, by the path of the run's folder in the job's folder.

    Another job may have written into this folder, too; versions before 0.2 do not note which.
    """
    by_run = {}
    for path in sorted(folder.glob("**/report.json")):
        try:
            report = json.loads(path.read_text())
        except (OSError, ValueError):
            continue
        # The report of a cross-check, beside those of its runs, has no cause.
        if "cause" in report and report.get("job", str(number)) == str(number):
            by_run[str(path.parent.relative_to(folder))] = report
    return by_run


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
        for name, report in (reports(folder, number) if folder and number else {}).items()
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


def log(job: JobId, run: str | None, process: int | None) -> Path:
    """The file with a job's output, or with that of one process.

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
        logs = sorted(folder.glob(f"**/process-{process}.log"))
        chosen = [p for p in logs if run is None or str(p.parent.relative_to(folder)) == run]
        if len(chosen) != 1:
            runs = ", ".join(str(p.parent.relative_to(folder)) for p in logs) or "none"
            raise FileError(
                f"process {process} of job {job} must have one log, but has {len(chosen)}"
                f"{f' in run {run}' if run else ''}; choose a run with --run (runs with logs: "
                f"{runs})"
            )
        path = chosen[0]
    if not path.exists():
        raise FileError(f"job {job} has not written {path} yet; try again once it runs")
    return path
