"""A Slurm cluster, from a login node; the batch script is the keeper.

The record lies in the user's state folder, which the nodes must share with the login node.
"""

import contextlib
import os
import secrets
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from ...base.child import output_of
from ...base.errors import (
    DeadlineError,
    ExitCode,
    InvalidArgumentError,
    PyReactantError,
    argument,
)
from ...base.settings import JOB
from ...base.words import is_out_of_memory, slurm_error
from ...process.group.coordinator import SECRET_FILE
from ...process.group.group import env_int
from ..call import of_login
from ..keeper import (
    VAGUE,
    ended,
    finish,
    install,
    interrupted_when,
    removal_of,
    running_once,
)
from ..record import (
    CANCELLED,
    Record,
    Status,
    load,
    lock_of,
    private_file,
    written,
)
from ..spec import MIN_PROCESSES, command_line, option
from ..supervisor.cause import EXIT_CODES
from ..supervisor.report import RunReport
from ..supervisor.state import exit_text
from .slurm_jobs import (
    NAMED,
    TIME,
    Command,
    JobId,
    QueueEntry,
    check_configuration,
    check_installed,
    check_once,
    check_possible,
    check_reached,
    end,
    job_fields,
    number_of,
    queue,
    slurms_time,
    waits_for,
)
from .target import Target

ASKED = {
    "nodes": "nodes",
    "tasks_per_node": "ntasks-per-node",
    "gpus_per_node": "gpus-per-node",
    "cpus_per_task": "cpus-per-task",
    "account": "account",
    "partition": "partition",
    "constraint": "constraint",
    "time": "time",
}
"""Options of sbatch, by the field that sets each."""

_LIMIT = 120.0
"""Seconds within which a cancelled job must be gone; Slurm's KillWait is 30 s by default."""
_WAITING = (
    "PENDING",
    "CONFIGURING",
    "POWER_UP_NODE",
    "REQUEUED",
    "REQUEUE_FED",
    "REQUEUE_HOLD",
    "RESV_DEL_HOLD",
    "SPECIAL_EXIT",  # requeued and held: it waits for `scontrol release`
    "SUSPENDED",
    "RESIZING",
)
_RUNNING = ("RUNNING", "COMPLETING", "STAGE_OUT", "SIGNALING", "STOPPED")
_WARNINGS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)
"""Signals that only warn a run, as for the supervisor."""
_WAIT = 15.0
"""Seconds that srun waits for the other tasks: after the end of one, or of the run."""


def _end(cause: str, why: str) -> Status:
    state = "preempted" if cause == "preempted" else "failed"
    return Status(state, f"{cause}: {why}", EXIT_CODES[cause], cause=cause)


_BY_SLURM = {
    "CANCELLED": Status("cancelled", "cancelled in Slurm", ExitCode.INTERRUPTED),
    "TIMEOUT": _end("timeout", "the job reached its time limit in Slurm"),
    "DEADLINE": _end("timeout", "the job reached its deadline in Slurm"),
    "OUT_OF_MEMORY": _end("out of memory", "Slurm ended the job"),
    "NODE_FAIL": _end("lost", "a node of the job failed"),
    "BOOT_FAIL": _end("lost", "a node of the job did not boot"),
    "PREEMPTED": _end("preempted", "Slurm gave the nodes to another job"),
    "LAUNCH_FAILED": _end("lost", "Slurm could not start the job on its nodes"),
    "RECONFIG_FAIL": _end("lost", "Slurm could not configure a node of the job"),
    "REVOKED": _end("lost", "another cluster of the federation has the job"),
}
"""How a job ended that Slurm itself ended, by the state that Slurm shows."""

_BY_REASON = {"NodeDown": _BY_SLURM["NODE_FAIL"], "TimeLimit": _BY_SLURM["TIMEOUT"]}
"""The same by Slurm's reason, which shows while Slurm still ends the job."""


@dataclass(frozen=True, kw_only=True)
class Slurm(Target):
    """A batch job on a Slurm cluster; `Processes` has what every place has.

    Attributes:
        nodes: Number of nodes.
        tasks_per_node: Number of processes on each node.
        gpus_per_node: GPUs of each node.
        cpus_per_task: CPUs of each process.
        account: Account; None for the default, or SBATCH_ACCOUNT.
        partition: Partition.
        constraint: Required node features, such as "gpu".
        time: Time limit, such as "2h" or "01:00:00"; a number alone is minutes, as for sbatch.
        min_processes: With how many processes the run goes on if a node is lost; None ends it.
            `max_restarts` then counts these restarts, too.
        options: Further options of sbatch, such as "--exclusive".
    """

    kind: ClassVar[str] = "slurm"
    least: ClassVar[Mapping[str, int]] = {
        **Target.least,
        **dict.fromkeys(("nodes", "tasks_per_node", "gpus_per_node", "cpus_per_task"), 1),
    }
    forms: ClassVar[Mapping[str, tuple[str, str]]] = {"time": TIME}
    nodes: int = option(1, "Number of nodes.", "Devices")
    tasks_per_node: int = option(1, "Number of processes per node.", "Slurm")
    gpus_per_node: int | None = option(None, "GPUs of each node.", "Devices")
    cpus_per_task: int | None = option(None, "CPUs of each process.", "Slurm")
    account: str | None = option(None, "Slurm account.", "Slurm")
    partition: str | None = option(None, "Slurm partition.", "Slurm")
    constraint: str | None = option(None, "Required node features, such as gpu.", "Slurm")
    time: str | None = option(None, "Time limit, such as 2h or 01:00:00.", "Slurm")
    min_processes: int | None = option(*MIN_PROCESSES)
    options: tuple[str, ...] = option(
        (),
        "A further option of sbatch, such as --exclusive; repeatable.",
        "Slurm",
        name="--sbatch",
    )

    def __post_init__(self) -> None:
        if isinstance(self.options, list):  # of JSON
            object.__setattr__(self, "options", tuple(self.options))
        object.__setattr__(self, "time", slurms_time(self.time))

    def check_settings(self) -> None:
        """As `Target.check_settings`."""
        super().check_settings()
        least, count = self.min_processes, self.nodes * self.tasks_per_node
        if least is not None and not (1 <= least <= count and self.max_restarts):
            raise InvalidArgumentError(
                f"{argument('min_processes')} must be 1 to {count}, the number of processes, and "
                f"needs {argument('max_restarts', 1)} or more; got {least} with "
                f"{argument('max_restarts', self.max_restarts)}"
            )
        check_once(self.asked(), self.options)
        check_possible(self.options)

    def check(self) -> None:
        """As `Target.check`."""
        self.check_settings()
        check_configuration()
        for tool in ("sbatch", "squeue", "scontrol", "scancel"):
            check_installed(tool)

    def plan(self, record: Record) -> str:
        """As `Target.plan`."""
        return f"{shlex.join(self._sbatch(record))}\n\n{self._script(record)}"

    def start(self, record: Record) -> None:
        """As `Target.start`: the job's name follows from the record's id."""
        with written(record.folder), private_file(record.folder / "job.sbatch") as file:
            file.write(self._script(record).encode())
        with private_file(record.folder / "keeper.log"):
            pass  # Slurm would make it readable for others
        ran = output_of(
            self._sbatch(record),
            env={**of_login("SBATCH_", "SLURM_CONF"), JOB: record.id},
            cwd=record.folder,
            pass_fds=[lock_of(record)],  # sbatch goes on if this process is killed
        )
        check_reached(ran)
        if ran.returncode:
            raise InvalidArgumentError(f"sbatch refused the job: {ran.stderr.strip()}")
        record.write_handle({"slurm": number_of(ran.stdout)})

    def status(self, record: Record) -> Status:
        """As `Target.status`."""
        status = record.status()
        if status.ended:
            return status
        entry = _entry(record)
        if entry is None and record.is_kept():
            return status  # sbatch runs now
        # The last answer of squeue may be older than the job.
        state = entry.state if entry is not None else _fields(record).get("JobState", "")
        if state in _WAITING:
            reason = _fields(record).get("Reason", "") if entry is None else entry.reason
            return Status("queued", waits_for(state, reason))
        if state in _RUNNING:
            running = status.state == "running"
            # Whatever its keeper noted about the end, Slurm may know better when the job has ended.
            return replace(status, exit_code=None, cause="") if running else Status("starting")
        return _after(record, state)

    def cancel(self, record: Record, timeout: float | None = None) -> Status:
        """As `Target.cancel`."""
        if (status := self.status(record)).ended:
            return status
        record.ask_to_cancel()
        limit = _LIMIT if timeout is None else timeout
        deadline = time.monotonic() + limit
        while (number := _number(record)) is None and record.is_kept():
            if time.monotonic() > deadline:
                raise DeadlineError(f"sbatch of the job {record.id} has not ended in {limit:g} s")
            time.sleep(0.1)  # sbatch runs now
        if number is not None:
            end(number)
            while (state := job_fields(JobId(number)).get("JobState")) in (*_WAITING, *_RUNNING):
                if time.monotonic() > deadline:
                    raise DeadlineError(
                        f"Slurm has not ended job {number} within {limit:g} s: it is {state}; see "
                        f"scontrol show job {number}"
                    )
                time.sleep(0.2)
        return record.write_status(_retell(record, CANCELLED))

    def asked(self) -> dict[str, object]:
        """What is asked of sbatch, by its names of options."""
        values = {name: getattr(self, field) for field, name in ASKED.items()}
        return {name: value for name, value in values.items() if value is not None}

    def _sbatch(self, record: Record) -> list[str]:
        return [
            "sbatch",
            "--parsable",
            f"--job-name={_name(record)}",
            *(f"--{name}={value}" for name, value in self.asked().items()),
            "--requeue" if self.max_restarts else "--no-requeue",
            *(["--no-kill"] if self.min_processes else []),
            "--signal=USR1@90",
            "--open-mode=append",
            f"--chdir={record.folder}",
            f"--output={record.folder}/keeper.log".replace("%", "%%"),  # sbatch replaces %j
            *self.options,
            f"{record.folder}/job.sbatch",
        ]

    def _script(self, record: Record) -> str:
        python = shlex.quote(sys.executable) if record.created else "python"
        return _SCRIPT.format(id=record.id, python=python, folder=shlex.quote(str(record.folder)))

    def step(self, record: Record) -> list[str]:
        """The command that starts the supervisors, one for each process."""
        options = ["--out", str(record.run), "--start-timeout", "300", "--grace", "20"]
        # A node that is cut off never reports the end of its task; with --wait srun ends without.
        srun, leave_out = ["srun", "--kill-on-bad-exit=1", f"--wait={_WAIT:g}"], ["max_restarts"]
        if self.min_processes:  # else max_restarts are Slurm's requeues only
            srun, leave_out = ["srun", "--no-kill", "--kill-on-bad-exit=0", "--wait=0"], []
        options += command_line(self, leave_out)
        run = [sys.executable, "-m", "pyreactant", "run", "--quiet", *options]
        return [*srun, *run, "--", *record.command()]


_SCRIPT = """\
#!/bin/bash
# The keeper of the job {id}: it starts the processes, and notes how they end.
trap '' USR1 USR2 ALRM # they only warn
# gRPC would connect to the coordinator through a web proxy, and hang.
unset http_proxy https_proxy all_proxy no_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY
unset LD_PRELOAD # Julia does not start with some libraries
export SRUN_CPUS_PER_TASK=${{SLURM_CPUS_PER_TASK:-1}} # since Slurm 22.05 srun does not inherit it
exec {python} -m pyreactant.runs.places.slurm {folder}
"""


def main() -> None:
    """Keep a job, as its batch script."""
    os.umask(0o077)
    record = load(Path(sys.argv[1]))
    # scancel asks the programs to end; this process notes how they did. A signal that comes before
    # there are programs has nobody to tell. What is ignored would be so in the programs, too.
    for number in (signal.SIGTERM, *_WARNINGS):
        signal.signal(number, lambda *_: None)
    status = finish(record, lambda: keep(record))
    # Slurm shows it, and starts what depends on a success (--dependency=afterok) only after a 0.
    sys.exit(ExitCode.FAILED if status.exit_code is None else status.exit_code)


def keep(record: Record) -> Status:
    """Run the step of a job on the nodes of its allocation.

    Returns:
        How it ended; not ended if only Slurm can say that.
    """
    number = int(os.environ["SLURM_JOB_ID"])
    record.write_handle({"slurm": number})
    if record.cancelling:
        raise KeyboardInterrupt
    record.write_status(Status("starting"))
    install(record)
    secret = record.folder / "secret"
    with private_file(secret) as file:
        file.write(secrets.token_hex(32).encode())
    try:
        with (
            running_once(record),
            removal_of(record) as removed,
            interrupted_when(removed),
        ):
            ran = _run_step(record, {**os.environ, SECRET_FILE: str(secret)})
    finally:
        secret.unlink(missing_ok=True)
    report = record.report()
    if report.get("cause") == "preempted" and not record.cancelling:
        _requeue(Slurm(**record.settings), number)
    if not report:
        return replace(ran, state="running")
    if report["cause"] in VAGUE:
        # Slurm knows who sent a signal, or that a node failed, but says all of it when this process
        # has ended: to `status`.
        code = int(report["exit_code"])
        if by_slurm := _BY_REASON.get(job_fields(JobId(number)).get("Reason", "")):
            _retell(record, by_slurm)
            code = by_slurm.exit_code or code
        return Status("running", "its processes have ended", code)
    return ended(record, int(report["exit_code"]))


def _run_step(record: Record, environment: Mapping[str, str]) -> Status:
    """Run the step, and pass signals on to it.

    Returns:
        How it ended if there is no report, and if Slurm has nothing else to say.
    """
    log = record.folder / "keeper.log"
    before = log.stat().st_size  # an earlier start of a job that was requeued wrote this
    target, older = Slurm(**record.settings), record.report()
    step = subprocess.Popen(
        target.step(record),
        env=environment,
        cwd=record.folder,
        stdin=subprocess.DEVNULL,
    )

    def over() -> bool:
        return target.min_processes is not None and record.report() not in ({}, older)

    asked = threading.Event()
    for number in _WARNINGS:
        signal.signal(number, lambda number, _: step.send_signal(number))
    signal.signal(signal.SIGTERM, lambda *_: asked.set())
    try:
        code = _wait(step, asked, over)
    except BaseException:
        step.terminate()
        raise
    for number in (signal.SIGTERM, *_WARNINGS):
        signal.signal(number, lambda *_: None)
    with log.open(errors="replace") as file:
        file.seek(before)
        error = slurm_error(file.read())
    # If Slurm itself ended a task, srun ends with 0, or with 128 and a number.
    if code in EXIT_CODES.values() and not error:
        return ended(record, code)
    cause = "out of memory" if is_out_of_memory(error) else "lost"
    why = error or f"srun {'was' if code < 0 else 'ended with'} {exit_text(code)}"
    return _end(cause, f"its processes ended without a report: {why}; see {log}")


def _wait(step: "subprocess.Popen[bytes]", asked: threading.Event, over: Callable[[], bool]) -> int:
    """Wait for srun, and tell the programs if this batch script is asked to end.

    srun waits for the task of a node that was cut off, and never learns of its end if the node
    comes back. So it is killed some seconds after the run's report, the last that a run does.

    Args:
        step: srun.
        asked: Whether SIGTERM came.
        over: Whether the run is over, if it may have gone on without a node.

    Returns:
        The exit code of srun.
    """
    deadline = float("inf")
    while time.monotonic() < deadline:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return step.wait(0.5)
        if asked.is_set():
            asked.clear()
            _pass_on_term(int(os.environ["SLURM_JOB_ID"]))
        if deadline == float("inf") and over():
            deadline = time.monotonic() + _WAIT
    _note("the run is over, but srun waits for a task, as on a node that was cut off; it is killed")
    step.kill()
    return step.wait()


def _pass_on_term(number: int) -> None:
    """Pass SIGTERM on to the programs, unless Slurm ends the job: then it has told them itself."""
    try:
        if job_fields(JobId(number)).get("JobState") == "RUNNING":
            _note("the batch script got SIGTERM, and passes it on")
            Command(["scancel", "--signal=TERM", str(number)]).run()
    except PyReactantError as error:
        _note(f"SIGTERM was not passed on to the programs: {error}")


def _note(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - into keeper.log


def _requeue(target: Slurm, number: int) -> None:
    """Let Slurm start the job again: its programs saved and stopped before the time limit."""
    restart = env_int("SLURM_RESTART_COUNT") or 0
    if restart >= target.max_restarts:
        return
    _note(f"preempted: requeue {restart + 1} of {target.max_restarts}")
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if not Command(["scontrol", "requeue", str(number)]).outcome().returncode:
        time.sleep(_LIMIT)  # Slurm ends this script during the sleep


def _retell(record: Record, by_slurm: Status) -> Status:
    """Let the report of the run say what Slurm did, of which its processes saw a signal only.

    Returns:
        How the job ended.
    """
    report = RunReport.of(record.report())
    cause = "interrupted" if by_slurm.state == "cancelled" else by_slurm.cause
    if report is not None and report.cause in VAGUE and report.cause != cause:
        why = by_slurm.reason.removeprefix(f"{cause}: ")
        report.retold(cause, why).write(Path(report.folder))
    return by_slurm


def _after(record: Record, state: str) -> Status:
    """How a job ended that Slurm runs no more; what Slurm itself did to it decides."""
    noted = record.status()
    for _ in range(10 if state in ("COMPLETED", "FAILED") else 0):
        # A shared file system may show the last state late.
        if noted.ended or noted.exit_code is not None:
            break
        time.sleep(0.2)
        noted = record.status()
    if noted.ended:
        return noted
    if record.cancelling:
        return record.write_status(_retell(record, CANCELLED))
    report = record.report()
    if not report and state == "COMPLETED" and record.origin != "submit":
        return record.write_status(Status("done", "", ExitCode.DONE))  # its runs have a report each
    cause = report.get("cause", "")
    vague = cause in VAGUE
    if (by_slurm := _BY_SLURM.get(state)) and (vague or not report or cause != by_slurm.cause):
        return record.write_status(_retell(record, by_slurm))
    if record.origin == "crosscheck" and (verdict := _by_verdict(record)):
        return record.write_status(verdict)
    if report and not ((vague or cause == "done") and _killed(record)):
        return record.write_status(ended(record, int(report["exit_code"])))
    fields = _fields(record)
    if not report and fields.get("Reason") == "JobLaunchFailure":
        files = ", ".join(fields.get(name, "") for name in ("WorkDir", "StdIn", "StdOut", "StdErr"))
        why = (
            f"Slurm could not start the batch script on {fields.get('BatchHost') or 'its node'} "
            f"(JobLaunchFailure); it must be able to open there: {files}"
        )
        return record.write_status(_end("environment", why))
    if killed := _killed(record):
        why = f"the batch script was {killed}"
        return record.write_status(Status("lost", why, ExitCode.LOST, cause="lost"))
    if state == "COMPLETED":
        return record.write_status(ended(record, ExitCode.DONE))
    if noted.exit_code is not None:
        return record.write_status(replace(noted, state="failed" if noted.exit_code else "done"))
    if _number(record) is None:
        why = "the submitting process ended before Slurm had the job"
    else:
        log = record.folder / "keeper.log"
        why = f"the batch script left no report (Slurm: {state or 'forgotten'}); see {log}"
    return record.write_status(Status("lost", why, ExitCode.LOST))


def _by_verdict(record: Record) -> Status | None:
    """How a cross-check ended: with its verdict, which the reports of its runs do not have."""
    fields = _fields(record)
    number, _, by_signal = fields.get("ExitCode", "").partition(":")
    if not number.isdecimal() or by_signal != "0":
        return None
    code = int(number)
    if not code:
        return Status("done", "", ExitCode.DONE)
    if record.report().get("exit_code") == code:
        return ended(record, code)
    why = f"the cross-check ended with exit code {code}; see {fields.get('StdOut')}"
    return Status("failed", why, code)


def _name(record: Record) -> str:
    return f"{NAMED}{record.id}"


def _entry(record: Record, *, fresh: bool = False) -> QueueEntry | None:
    """The job in Slurm's queue: by its number or, if sbatch's answer was lost, by its name."""
    number = record.handle().get("slurm")
    for entry in queue(fresh=fresh):
        if entry.number == number if number is not None else entry.name == _name(record):
            return entry
    return None


def _number(record: Record) -> int | None:
    """Slurm's number of a job; None if Slurm never had it."""
    if (number := record.handle().get("slurm")) is not None:
        return int(number)
    entry = _entry(record, fresh=True)
    return None if entry is None else entry.number


def _fields(record: Record) -> dict[str, str]:
    """What Slurm knows of a job that squeue may show no more; {} if Slurm forgot it."""
    number = _number(record)
    return {} if number is None else job_fields(JobId(number))


def _killed(record: Record) -> str:
    """By which signal the batch script ended, so that its step got SIGTERM; "" if by none."""
    number = _fields(record).get("ExitCode", "").partition(":")[2]
    return exit_text(-int(number)) if number.isdecimal() and int(number) else ""


if __name__ == "__main__":  # as the batch script
    main()
