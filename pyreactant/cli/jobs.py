"""`pyreactant jobs`: start jobs, and look at them from any shell."""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..arrays.text import hanging, width_of
from ..base.errors import ExitCode, InvalidArgumentError, RemoteError, argument, named
from .command import App, examples

if TYPE_CHECKING:
    from ..runs.jobs.job import Job
    from ..runs.jobs.record import Record, Status

app = App(
    no_args_is_help=True,
    help="Jobs on this machine, Slurm, TPU slices and Ray.",
    epilog=examples(
        "pyreactant jobs submit --on slurm --nodes 2 -- train.py --steps 9",
        "pyreactant jobs list",
    ),
)
Id = Annotated[str, typer.Argument(metavar="ID", help="Id of a job, or the end of one.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command(
    context_settings={"allow_interspersed_args": False},
    epilog=examples(
        "pyreactant jobs submit --processes 2 -- train.py --steps 9",
        "pyreactant jobs submit --on slurm --nodes 2 --set account=proj01 -- train.py",
        "pyreactant jobs submit --on tpu --set accelerator_type=v6e-16 --dry-run -- train.py",
    ),
)
def submit(
    program: Annotated[
        list[str],
        typer.Argument(
            metavar="-- SCRIPT [ARGUMENTS]",
            help="Script and its arguments, -m MODULE, or a function as FILE.py:NAME.",
        ),
    ],
    on: Annotated[str, typer.Option(help="Target: local, slurm, tpu or ray.")] = "local",
    processes: Annotated[
        int | None, typer.Option("--processes", "-n", help="Processes, on local.")
    ] = None,
    nodes: Annotated[int | None, typer.Option(help="Nodes, on slurm.")] = None,
    platform: Annotated[str | None, typer.Option(help="Platform, cpu, gpu or tpu.")] = None,
    devices_per_process: Annotated[
        int | None, typer.Option(help="CPU devices, or GPUs, of each process.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting of the target, such as account=proj01; repeatable."),
    ] = None,
    copy: Annotated[
        list[Path] | None, typer.Option(help="A further file or folder to copy; repeatable.")
    ] = None,
    requirements: Annotated[
        Path | None, typer.Option(help="A file for pip install -r, installed where the job runs.")
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option(help="A variable that the job gets from here; repeatable.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be asked for; start nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Start a program or a function as a job.

    It returns at once. A function is called without arguments.
    """
    from ..runs.jobs import submit as _submit
    from ..runs.jobs import targets

    given = {
        "processes": processes,
        "nodes": nodes,
        "platform": platform,
        "devices_per_process": devices_per_process,
    }
    settings = {name: value for name, value in given.items() if value is not None}
    is_function = ".py:" in program[0] and not Path(program[0]).exists()
    if is_function and len(program) > 1:
        raise InvalidArgumentError(
            f"a function is called without arguments here, got {' '.join(program[1:])}; pass them "
            "with pr.submit in Python"
        )
    what: Any = program[0] if is_function else program
    others = [name for name in targets.settings_of(on) if name not in given]
    with named({name: f"--set {name}=VALUE" for name in others}):
        parsed = targets.parse(on, set_ or [])
        for name in settings.keys() & parsed.keys():
            raise InvalidArgumentError(f"give {argument(name)} or --set {name}=VALUE, not both")
        target = targets.make(on, settings | parsed)
        if dry_run:
            plan = _submit.plan(
                what, on=target, copies=copy or (), requirements=requirements, env=env or ()
            )
            print(plan)
            return
        job = _submit.submit(
            what, on=target, copies=copy or (), requirements=requirements, env=env or ()
        )
    if as_json:
        print(json.dumps({"id": job.id, "folder": str(job.folder)}))
    else:
        print(f"submitted job {job.id}; follow it with: pyreactant jobs attach {job.id}")


@app.command("list", epilog=examples("pyreactant jobs list", "pyreactant jobs list --json"))
def list_jobs(as_json: AsJson = False) -> None:
    """List all jobs, the latest last.

    They include those of `run`, `slurm submit` and `tpu run`. Ends with 8 if slices of a job may
    cost money although it has ended, or although their deletion is refused.
    """
    from ..runs.jobs import store

    found = list(store.rows())
    records = [record for _, record, _ in found if record is not None]
    if as_json:
        print(json.dumps([store.as_json(*row) for row in found]))
    elif found:
        _print_rows(found)
    else:
        print("there are no jobs")
    _end_if_left(*records)


def _print_rows(found: "Sequence[tuple[str, Record | None, Status]]") -> None:
    from ..runs.jobs.left import left

    width, columns = max(len(row[0]) for row in found), width_of(sys.stdout)
    for name, record, status in found:
        what = f"{record.target:<6} {record.what}" if record else "?"
        age = _ago(record.created) if record else ""
        shown = status.reason and (not status.ended or record is None or left(record))
        reason = f"  ({' '.join(status.reason.split())})" if shown else ""
        print(hanging(f"{name:<{width}}  {status.state:<9}  {age:>7}  ", what + reason, columns))


@app.command(epilog=examples("pyreactant jobs status 3f9a --json"))
def status(job: Id, as_json: AsJson = False) -> None:
    """Print how a job stands.

    Ends with 8 if slices of it may cost money although it has ended, or although their deletion is
    refused.
    """
    from ..runs.jobs import store

    record = store.find(job)
    found = store.status_of(record)
    if as_json:
        print(json.dumps(store.as_json(record.id, record, found), indent=2))
    else:
        _print_status(record, found)
    _end_if_left(record)


@app.command(epilog=examples("pyreactant jobs logs 3f9a --process 1 -f"))
def logs(
    job: Id,
    process: Annotated[int, typer.Option(help="Index of the process.")] = 0,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")
    ] = False,
    metrics: Annotated[
        bool, typer.Option("--metrics", help="Print the numbers that the program has logged.")
    ] = False,
) -> None:
    """Print the output of one process, or its metrics."""
    from ..runs.jobs.job import Job

    found = Job.find(job)
    if metrics:
        _print_metrics(found, follow)
        return
    printed = False
    for text in found.logs(process, follow=follow):
        _write(text)
        printed = printed or bool(text)
    if not printed:
        print(f"pyreactant: process {process} has printed nothing", file=sys.stderr)


@app.command(epilog=examples("pyreactant jobs result 3f9a --json"))
def result(
    job: Id,
    timeout: Annotated[float | None, typer.Option(help="Seconds to wait at most.")] = None,
    as_json: AsJson = False,
) -> None:
    """Wait for the end, and print the value.

    Ends with the run's exit code.
    """
    from ..runs.jobs.job import Job
    from .console import working

    found = Job.find(job)
    try:
        with working(f"waiting for job {found.id}"):
            value = found.result(timeout)
    except RemoteError as error:
        _fail(error, as_json, found.record)
    if as_json:
        print(json.dumps({"state": "done", "exit_code": ExitCode.DONE, "value": _tree(found)}))
    elif value is not None:
        sys.set_int_max_str_digits(0)  # a limit against the input of strangers
        print(repr(value))
    _end_if_left(found.record, say=True)


@app.command(epilog=examples("pyreactant jobs attach 3f9a"))
def attach(job: Id) -> None:
    """Show the output of process 0 until the end.

    Ends with the run's exit code.

    Ctrl-C leaves the job running.
    """
    from ..runs.jobs.job import Job
    from ..runs.jobs.remote import show

    found = Job.find(job)
    try:
        show(found)
        found.check()
    except RemoteError as error:
        _fail(error, False, found.record)
    except KeyboardInterrupt:
        print(f"the job {found.id} goes on; end it with: pyreactant jobs cancel {found.id}")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    _end_if_left(found.record, say=True)


@app.command(epilog=examples("pyreactant jobs cancel 3f9a"))
def cancel(
    job: Id,
    timeout: Annotated[
        float | None,
        typer.Option(help="Seconds to wait at most.", show_default="960 on tpu"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """End a job, and wait until nothing of it costs anything.

    Ends with 8 if slices of it may still cost money.
    """
    from ..runs.jobs import store
    from ..runs.jobs.job import Job
    from .console import working

    found = Job.find(job)
    with working(f"ending job {found.id}"):
        ended = found.cancel(timeout)
    if as_json:
        print(json.dumps(store.as_json(found.id, found.record, ended)))
    else:
        _print_status(found.record, ended)


@app.command(epilog=examples("pyreactant jobs clean --older-than 30", "pyreactant jobs clean 3f9a"))
def clean(
    jobs: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Ids of ended jobs.")
    ] = None,
    older_than: Annotated[float, typer.Option(help="Without ids: days since the end.")] = 7.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be removed; remove nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Remove records, logs and values of ended jobs.

    The record of a job whose slices may still cost money stays, and the exit code is 8. A damaged
    job is removed if its id is given.
    """
    from ..runs.jobs import store

    if older_than < 0:
        raise InvalidArgumentError(f"--older-than must be 0 days or more, got {older_than:g}")
    if jobs:
        folders = dict.fromkeys(store.folder_of(name) for name in jobs)
        removed = [(folder.name, store.remove(folder, dry_run=dry_run)) for folder in folders]
    else:
        removed = [(r.id, r.what) for r in store.clean(older_than * 86400, dry_run=dry_run)]
    if as_json:
        print(json.dumps([name for name, _ in removed]))
    else:
        for name, what in removed:
            print(f"{'would remove' if dry_run else 'removed'} {name}  {what}")
        if not removed:
            print("no job to remove")
    if not jobs:
        records = [record for _, record, _ in store.rows() if record is not None]
        _end_if_left(*records, say=True)


def _end_if_left(*records: "Record", say: bool = False) -> None:
    """End with 8 if slices of jobs may cost money that nothing uses and nobody wants to keep.

    Args:
        records: The jobs.
        say: Whether to print what is left, on standard error.
    """
    from ..runs.jobs.left import left

    found = [slices for record in records for slices in left(record)]
    if say:
        for slices in found:
            print(f"pyreactant: {slices}", file=sys.stderr)
    if any(not slices.kept for slices in found):
        raise typer.Exit(ExitCode.CLOUD)


def _fail(error: RemoteError, as_json: bool, record: "Record") -> None:
    """Print why a job failed and what it left, and end with its exit code."""
    from ..runs.jobs.left import left

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
        if error.traceback:
            print(error.traceback.rstrip(), file=sys.stderr)
        print(f"error: {error}", file=sys.stderr)
    for slices in left(record):
        print(f"pyreactant: {slices}", file=sys.stderr)
    raise typer.Exit(error.exit_code)


def _print_status(record: "Record", status: "Status") -> None:
    code = "" if status.exit_code is None else f", exit code {status.exit_code}"
    print(f"{record.id}: {status.state}{code}")
    if status.reason:
        print(f"  {status.reason}")
    print(f"  {record.what} on {record.target}, submitted {_ago(record.created)} ago")
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
