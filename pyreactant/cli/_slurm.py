"""`pyreactant slurm`: submit slurm/main.sbatch, and follow its jobs."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from ._command import App, examples

app = App(
    no_args_is_help=True,
    help="Jobs of slurm/main.sbatch on a Slurm cluster.",
    epilog=examples(
        "pyreactant slurm submit --account proj01 --nodes 4",
        "pyreactant slurm status 4711",
    ),
)

DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the command instead of running it.")]
Job = Annotated[str, typer.Argument(help="Job id, or ARRAY_TASK for one task of an array.")]


@app.command(
    context_settings={"allow_interspersed_args": False},
    epilog=examples(
        "pyreactant slurm submit --account proj01 --nodes 4 --size 16384",
        "pyreactant slurm submit --time 04:00:00 --max-requeues 5 -- train.py",
    ),
)
def submit(
    program: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- SCRIPT [ARGUMENTS]]",
            help="Script and its arguments.",
            show_default="the sharded matmul, cross-checked",
        ),
    ] = None,
    account: Annotated[str | None, typer.Option(help="Slurm account.")] = None,
    partition: Annotated[str | None, typer.Option(help="Slurm partition.")] = None,
    constraint: Annotated[
        str | None, typer.Option(help="Required node features, such as gpu.")
    ] = None,
    nodes: Annotated[int | None, typer.Option(help="Number of nodes.")] = None,
    tasks_per_node: Annotated[
        int | None, typer.Option(help="Number of processes per node.")
    ] = None,
    cpus_per_task: Annotated[int | None, typer.Option(help="Number of CPUs per process.")] = None,
    time: Annotated[str | None, typer.Option(help="Time limit, such as 01:00:00.")] = None,
    backends: Annotated[
        str | None,
        typer.Option(help="Runtimes, such as jax,reactant.", show_default="all that can start"),
    ] = None,
    programs: Annotated[
        str | None, typer.Option(help="Programs to cross-check, such as 'matmul fft'.")
    ] = None,
    platform: Annotated[str | None, typer.Option(help="Platform, cpu, gpu or tpu.")] = None,
    size: Annotated[int | None, typer.Option(help="Size of the cross-checked arrays.")] = None,
    mesh: Annotated[
        str | None, typer.Option(help="Mesh of the cross-check, such as x=2,y=4.")
    ] = None,
    spec: Annotated[
        str | None, typer.Option(help="Partition spec of the cross-check, such as x,y.")
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="Element type of the cross-check.")] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "--output", help="Folder of the job, shared by all nodes."),
    ] = None,
    max_requeues: Annotated[
        int | None, typer.Option(help="Maximum number of requeues after the time limit.")
    ] = None,
    sbatch: Annotated[
        list[str] | None,
        typer.Option(help="A further option of sbatch, such as --gpus-per-node=4; repeatable."),
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Submit a program as a batch job.

    Without a script, the job cross-checks the sharded matmul.
    """
    from ..launch import _sbatch

    options = {
        "account": account,
        "partition": partition,
        "constraint": constraint,
        "nodes": nodes,
        "ntasks_per_node": tasks_per_node,
        "cpus_per_task": cpus_per_task,
        "time": time,
    }
    settings = {
        "backends": backends,
        "programs": programs,
        "platform": platform,
        "size": size,
        "mesh": mesh,
        "spec": spec,
        "dtype": dtype,
        "output": out,
        "max_requeues": max_requeues,
    }
    command = _sbatch.submit_command(program or [], _texts(options), _texts(settings), sbatch or [])
    if dry_run:
        print(command)
        return
    from ..jobs._keeper import submitted_to_slurm

    def send() -> tuple[int, Path]:
        number = _sbatch.submit(command)
        named = out or os.environ.get("PYREACTANT_OUTPUT")
        return number, Path(named or f"pyreactant-runs/job-{number}").absolute()  # main.sbatch's

    what = " ".join(program or ["cross-check"])[:80]
    job = submitted_to_slurm(what, send)
    print(f"submitted job {job}; follow it with: pyreactant slurm logs {job} --follow")


@app.command(epilog=examples("pyreactant slurm status 4711 --json"))
def status(
    job: Job,
    as_json: Annotated[bool, typer.Option("--json", help="Print the status as JSON.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Print the state of a job, and how its runs ended."""
    from ..launch import _sbatch
    from ..launch._slurm_job import job_id, show_command

    wanted = job_id(job)
    if dry_run:
        print(show_command(wanted))
        return
    found = _sbatch.status(wanted)
    if as_json:
        print(json.dumps(found, indent=2))
        return
    where = f" on {found['nodes']}" if found["nodes"] not in (None, "", "(null)") else ""
    print(f"job {job}: {found['state']}{where}, restarted {found['restarts']} times")
    for name, run in found["runs"].items():
        print(f"  {name}: {run['cause']} (exit code {run['exit_code']}): {run['summary']}")
    print(f"  folder: {found['folder'] or 'known when the job starts'}")


@app.command(
    epilog=examples(
        "pyreactant slurm logs 4711 --follow",
        "pyreactant slurm logs 4711 --process 3 --run jax",
    )
)
def logs(
    job: Job,
    process: Annotated[
        int | None,
        typer.Option(help="Process whose log to print.", show_default="the job's output"),
    ] = None,
    run: Annotated[
        str | None, typer.Option(help="Run of the process, such as jax, if there are several.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing what is added.")
    ] = False,
    dry_run: DryRun = False,
) -> None:
    """Print the output of a job, or the log of one of its processes."""
    from ..launch import _sbatch
    from ..launch._slurm_job import job_id, show_command

    wanted = job_id(job)
    if dry_run:
        if wanted.task is not None:
            print(show_command(wanted))  # the answer has the number that names the file
            return
        print(_sbatch.tail_command(Path(f"pyreactant-{wanted}.out"), follow))
        return
    command = _sbatch.logs_command(wanted, run, process, follow)
    os.execvp(command.argv[0], list(command.argv))  # noqa: S606 - without a shell


@app.command(epilog=examples("pyreactant slurm cancel 4711", "pyreactant slurm cancel 4711_2"))
def cancel(job: Job, dry_run: DryRun = False) -> None:
    """Cancel a job; its programs get SIGTERM first, and can save.

    The id of an array cancels all of its tasks.
    """
    from ..launch import _slurm_job

    wanted = _slurm_job.job_id(job)
    if dry_run:
        print(_slurm_job.cancel_command(wanted))
        return
    print(_slurm_job.cancel(wanted))


def _texts(values: Mapping[str, object]) -> dict[str, str | None]:
    return {key: None if value is None else str(value) for key, value in values.items()}
