"""`pyreactant jobs`: look at runs that are jobs, from any shell, and end them."""

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..arrays.text import hanging, width_of
from ..base.counted import counted
from ..base.errors import ExitCode, FileError, InvalidArgumentError, RemoteError, RequirementError
from ..base.say import say
from .command import App, AsJson, Beside, duration, examples

if TYPE_CHECKING:
    from ..runs.job import Job
    from ..runs.places.slurm_jobs import JobId
    from ..runs.record import Record, Status

app = App(
    name="jobs",
    no_args_is_help=True,
    help="Jobs on this machine, Slurm, TPU slices, Ray and Kubernetes.",
    epilog=examples(
        "pyreactant jobs list",
        "pyreactant jobs logs 3f9a --follow",
        "pyreactant jobs cancel 4711_2",
    ),
)
Id = Annotated[str, typer.Argument(metavar="ID", help="Id of a job, or the end of one.")]
IdOrNumber = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="Id of a job, or the end of one; or Slurm's number, or NUMBER_INDEX for one task of "
        "an array.",
    ),
]


SHOWN = 20
"""Ended jobs that `jobs list` shows without --all."""


@app.command(
    "list", epilog=examples("pyreactant jobs list --state failed", "pyreactant jobs list --json")
)
def list_jobs(
    every: Annotated[
        bool, typer.Option("--all", help=f"List all jobs, not only the last {SHOWN} that ended.")
    ] = False,
    state: Annotated[
        str | None, typer.Option(help="List only jobs in this state, such as running or failed.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the jobs that run and the last ones that ended, the latest last.

    They include runs in the foreground and cross-checks at a place; --json has all. Ends with 8 if
    slices of a job may cost money although it has ended, or although their deletion is refused.
    """
    from ..runs import store
    from ..runs.record import STATES

    if state not in (None, *STATES):
        raise InvalidArgumentError(f"--state must be one of {', '.join(STATES)}, got {state!r}")
    rows = list(store.rows())
    records = [record for _, record, _ in rows if record is not None]
    wanted = [row for row in rows if state in (None, row[2].state)]
    if as_json:
        print(json.dumps([store.as_json(*row) for row in wanted]))
    elif wanted:
        _print_rows(wanted, len(wanted) if every else SHOWN)
    else:
        print("there are no jobs" if state is None else f"there are no jobs in state {state}")
    end_if_left(*records)


def _line(text: str) -> str:
    """A text in one line; a program of ``-c`` may have many."""
    return " ".join(text.split())


def _print_rows(rows: "Sequence[tuple[str, Record | None, Status]]", most: int) -> None:
    ended = [row[0] for row in rows if row[2].ended]
    hidden = {*ended[: max(0, len(ended) - most)]}
    rows = [row for row in rows if row[0] not in hidden]
    width, columns = max(len(row[0]) for row in rows), width_of(sys.stdout)
    print(f"{'job':<{width}}  {'state':<9}  {'age':>7}  {'place':<6} what")
    for name, record, status in rows:
        what = f"{record.target:<6} {_line(record.what)}" if record else "?"
        age = _ago(record.created) if record else ""
        shown = status.reason and (not status.ended or record is None or record.slices_left())
        reason = f"  ({_line(status.reason)})" if shown else ""
        print(hanging(f"{name:<{width}}  {status.state:<9}  {age:>7}  ", what + reason, columns))
    if hidden:
        jobs = counted(len(hidden), "earlier job has", "earlier jobs have")
        say(f"{jobs} ended, too; --all lists them")


@app.command(epilog=examples("pyreactant jobs status 3f9a --json", "pyreactant jobs status 4711"))
def status(job_id: IdOrNumber, as_json: AsJson = False) -> None:
    """Print the state of a job.

    Ends with 8 if slices of it may cost money although it has ended, or although their deletion is
    refused.
    """
    from ..runs import store

    if (number := _in_slurm(job_id)) is not None:
        _print_in_slurm(number, as_json)
        return
    record = store.find(job_id)
    current = store.status_of(record)
    if as_json:
        print(json.dumps(store.as_json(record.id, record, current), indent=2))
    else:
        _print_status(record, current)
    end_if_left(record)


@app.command(
    epilog=examples(
        "pyreactant jobs logs 3f9a --process 1 -f",
        "pyreactant jobs logs 4711 --process 3 --run jax",
    )
)
def logs(
    job_id: IdOrNumber,
    process: Annotated[
        int | None,
        typer.Option(help="Index of the process.", show_default="0; of a number, its output"),
        Beside(enables="--run"),
    ] = None,
    run: Annotated[
        str | None, typer.Option(help="With a number: run of the process, such as jax.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")
    ] = False,
    metrics: Annotated[
        bool,
        typer.Option("--metrics", help="Print the numbers that the program has logged."),
        Beside(excludes="--process"),
    ] = False,
) -> None:
    """Print the output of one process, or its metrics."""
    from ..runs.job import Job

    if not metrics and (number := _in_slurm(job_id)) is not None:
        from ..runs.places.slurm_jobs import log

        path = str(log(number, run, process))
        options = ["--lines=+1", *(["--follow=name"] if follow else [])]
        os.execvp("tail", ["tail", *options, path])  # noqa: S606, S607 - without a shell
    if run is not None:
        raise InvalidArgumentError(f"--run is for a number of Slurm, and {job_id} is a job's id")
    job = Job.find(job_id)
    if metrics:
        _print_metrics(job, follow)
        return
    printed = False
    for text in job.logs(process or 0, follow=follow):
        _write(text)
        printed = printed or bool(text)
    if error := job.log_error(process or 0):
        print(f"pyreactant: the log of process {process or 0} is cut: {error}", file=sys.stderr)
    elif not printed:
        print(f"pyreactant: process {process or 0} has printed nothing", file=sys.stderr)


@app.command(epilog=examples("pyreactant jobs result 3f9a --json"))
def result(
    job_id: Id,
    timeout: Annotated[float | None, duration(help="How long to wait at most.")] = None,
    as_json: AsJson = False,
) -> None:
    """Wait for the end, and print the value.

    Ends with the run's exit code.
    """
    from ..runs.job import Job
    from .console import working

    job = Job.find(job_id)
    try:
        with working(f"waiting for job {job.id}"):
            value = job.result(timeout)
    except RemoteError as error:
        fail(error, as_json, job.record)
    if as_json:
        print(json.dumps({"state": "done", "exit_code": ExitCode.DONE, "value": _tree(job)}))
    elif value is not None:
        sys.set_int_max_str_digits(0)  # a limit against the input of strangers
        print(repr(value))
    end_if_left(job.record, say=True)


@app.command(epilog=examples("pyreactant jobs attach 3f9a"))
def attach(job_id: Id) -> None:
    """Show the output of process 0 until the end.

    Ends with the run's exit code.

    Ctrl-C leaves the job running.
    """
    from ..runs.job import Job

    job = Job.find(job_id)
    try:
        follow_to_end(job)
    except KeyboardInterrupt:
        text = f"the job {job.id} goes on; end it with: pyreactant jobs cancel {job.id}"
        print(f"interrupted: {text}", file=sys.stderr)
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def follow_to_end(job: "Job", *, stay: bool = False) -> None:
    """Show the output of process 0 until the end of a job, and end with its exit code.

    Args:
        job: The job.
        stay: Whether to wait for the end although nobody reads the output any more.
    """
    from ..runs.submit import show
    from .console import working

    read = True
    try:
        try:
            show(job, working(f"waiting for job {job.id}"))
        except BrokenPipeError:
            if not stay:
                raise
            read = False
        job.check()
    except RemoteError as error:
        fail(error, False, job.record, above=read)
    end_if_left(job.record, say=True)
    if not read:
        raise typer.Exit(ExitCode.UNREAD)


@app.command(epilog=examples("pyreactant jobs cancel 3f9a", "pyreactant jobs cancel 4711_2"))
def cancel(
    job_id: IdOrNumber,
    timeout: Annotated[
        float | None,
        duration(help="How long to wait at most.", show_default="16m on tpu"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """End a job, and wait until it costs nothing any more.

    Ends with 8 if slices of it may still cost money.
    """
    from ..runs import store
    from ..runs.job import Job
    from .console import working

    if (number := _in_slurm(job_id)) is not None:
        from ..runs.places.slurm_jobs import cancel as cancel_number

        said = cancel_number(number)
        print(json.dumps({"job": str(number), "text": said}) if as_json else said)
        return
    job = Job.find(job_id)
    with working(f"ending job {job.id}"):
        ended = job.cancel(timeout)
    if as_json:
        print(json.dumps(store.as_json(job.id, job.record, ended)))
    else:
        _print_status(job.record, ended)


@app.command(
    epilog=examples("pyreactant jobs clean --older-than 30d", "pyreactant jobs clean 3f9a")
)
def clean(
    jobs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]...", help="Ids of ended jobs."),
        Beside(excludes="--older-than"),
    ] = None,
    older_than: Annotated[
        float, duration(help="Without ids: time since the end.", bare="d")
    ] = 604800.0,  # 7 days
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be removed; remove nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Remove records, logs and values of ended jobs.

    The record of a job whose slices may still cost money stays, and the exit code is 8. A damaged
    job is removed if its id is given.
    """
    from ..runs import store

    if jobs:
        folders = dict.fromkeys(store.folder_of(name) for name in jobs)
        removed = [(folder.name, store.remove(folder, dry_run=dry_run)) for folder in folders]
    else:
        removed = [(r.id, r.what) for r in store.clean(older_than, dry_run=dry_run)]
    if as_json:
        print(json.dumps([name for name, _ in removed]))
    else:
        for name, what in removed:
            print(f"{'would remove' if dry_run else 'removed'} {name}  {what}")
        if not removed:
            print("no job to remove")
    if not jobs:
        records = [record for _, record, _ in store.rows() if record is not None]
        end_if_left(*records, say=True)


@app.command(epilog=examples("pyreactant jobs adopt --on kubernetes 3f9a"))
def adopt(
    job_id: Annotated[
        str, typer.Argument(metavar="NAME", help="Id of the job, the end of it, or its JobSet.")
    ],
    on: Annotated[str, typer.Option(help="Where the job runs: kubernetes.")],
    context: Annotated[
        str | None,
        typer.Option(help="Context of the kubeconfig.", show_default="the current one"),
    ] = None,
    namespace: Annotated[
        str | None, typer.Option(help="Namespace.", show_default="of the context")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Take over a job that another shell has submitted, also on another machine.

    The other commands then know it here, too.
    """
    from ..runs import store
    from ..runs.places.kubernetes.adopt import adopt as adopted

    if on != "kubernetes":
        raise InvalidArgumentError(
            f"--on must be kubernetes, whose cluster keeps the jobs itself, got {on!r}"
        )
    record = adopted(job_id, context, namespace)
    current = store.status_of(record)
    if as_json:
        print(json.dumps(store.as_json(record.id, record, current)))
    else:
        _print_status(record, current)


def _in_slurm(name: str) -> "JobId | None":
    """The number of a job in Slurm, unless a run of `pyreactant run` has this id or number.

    Raises:
        InvalidArgumentError: It is a number with more than one task; the message has the reason.
    """
    from ..runs import store
    from ..runs.places.slurm_jobs import job_fields, job_id

    if not re.match(r"[0-9]+([_+.].*)?$", name):
        return None
    try:
        record = store.find(name)
    except FileError:
        if shutil.which("scontrol") is None:
            return None  # the error of the id says more
        number = job_id(name)
        try:
            job_fields(number)
        except RequirementError as why:
            raise RequirementError(f"no run of pyreactant has the id {name}, and {why}") from None
        return number
    except InvalidArgumentError:
        return job_id(name)
    is_number = str(record.handle().get("slurm")) == name
    return job_id(name) if is_number and record.origin != "submit" else None


def _print_in_slurm(number: "JobId", as_json: bool) -> None:
    """Print the state of a job in Slurm, and how its runs ended."""
    from ..runs.places.slurm_jobs import status as status_of

    job = status_of(number)
    if as_json:
        print(json.dumps(job, indent=2))
        return
    where = f" on {job['nodes']}" if job["nodes"] not in (None, "", "(null)") else ""
    reason = f" ({job['reason']})" if job["reason"] not in (None, "", "None") else ""
    print(
        f"job {number}: {job['state']}{reason}{where}, restarted {counted(job['restarts'], 'time')}"
    )
    for name, run in job["runs"].items():
        print(f"  {name}: {run['cause']} (exit code {run['exit_code']}): {run['summary']}")
    folder = job["folder"]
    absent = "" if folder is None or Path(folder).exists() else " (does not exist)"
    print(f"  folder: {folder or 'known when the job starts'}{absent}")


def end_if_left(*records: "Record", say: bool = False) -> None:
    """End with 8 if slices of jobs may cost money that nothing uses and nobody wants to keep.

    Args:
        records: The jobs.
        say: Whether to print what is left, on standard error.
    """
    left = [slices for record in records for slices in record.slices_left()]
    if say:
        for slices in left:
            print(f"pyreactant: {slices}", file=sys.stderr)
    if any(not slices.kept for slices in left):
        raise typer.Exit(ExitCode.CLOUD)


def fail(error: RemoteError, as_json: bool, record: "Record", *, above: bool = False) -> None:
    """Print why a job failed and what it left, and end with its exit code.

    Args:
        above: Whether the output of process 0 has been printed; what is in it is not printed again.
    """
    last = error.traceback.rstrip().splitlines()[-1:]
    printed = (record.report().get("first_error") or {}).get("log_tail") or ""
    above = above and error.process == 0 and {*last} <= {*printed.splitlines()}
    if as_json:
        print(
            json.dumps(
                {
                    "exit_code": error.exit_code,
                    "kind": error.kind,
                    "message": str(error),
                    "process": error.process,
                    "host": error.host,
                    "traceback": error.traceback,
                    "others": list(error.others),
                }
            )
        )
    else:
        if error.traceback and not above:
            print(error.traceback.rstrip(), file=sys.stderr)
        print(f"error: {error}", file=sys.stderr)
    for slices in record.slices_left():
        print(f"pyreactant: {slices}", file=sys.stderr)
    raise typer.Exit(error.exit_code)


def _print_status(record: "Record", status: "Status") -> None:
    code = "" if status.exit_code is None else f", exit code {status.exit_code}"
    print(f"{record.id}: {status.state}{code}")
    if status.reason:
        print(f"  {status.reason}")
    print(f"  {_line(record.what)} on {record.target}, submitted {_ago(record.created)} ago")
    print(f"  logs and report: {record.run}")


def _print_metrics(job: "Job", follow: bool) -> None:
    """One line for each name and step, as they come; another one for a later value."""
    printed: dict[tuple[int, str], str] = {}
    while True:
        ended = not follow or job.status().ended
        for metric in job.metrics():
            value = f"{metric.value:g}"
            if printed.get((metric.step, metric.name)) != value:
                printed[metric.step, metric.name] = value
                print(f"step {metric.step}: {metric.name} = {value}", flush=True)
        if ended:
            return
        time.sleep(0.2)


def _tree(job: "Job") -> Any:
    """The value as JSON, in which an array is the path of its .npy file."""
    folder = job.record.out / "value"
    if not folder.exists():
        return None
    tree = json.loads((folder / "tree.json").read_bytes())["tree"]

    def named(part: Any) -> Any:
        if isinstance(part, list):
            return [named(item) for item in part]
        if not isinstance(part, dict):
            return part
        if "$array" in part:
            return {**part, "$array": str(folder / f"{part['$array']}.npy")}
        return {key: named(item) for key, item in part.items()}

    return named(tree)


def _ago(at: float) -> str:
    seconds = max(0.0, time.time() - at)
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
