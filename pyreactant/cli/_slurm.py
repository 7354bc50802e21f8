"""`pyreactant slurm`: submit slurm/main.sbatch, and look after its jobs."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Jobs of slurm/main.sbatch on a Slurm cluster.")

DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the command, and do nothing.")]
Job = Annotated[int, typer.Argument(help="The job's number.")]


@app.command(context_settings={"allow_interspersed_args": False})
def submit(
    program: Annotated[
        list[str] | None, typer.Argument(metavar="[-- SCRIPT [ARGUMENTS]]", help="Else the matmul.")
    ] = None,
    account: Annotated[str | None, typer.Option(help="Slurm account.")] = None,
    partition: Annotated[str | None, typer.Option(help="Partition.")] = None,
    constraint: Annotated[str | None, typer.Option(help="Features of nodes, as gpu.")] = None,
    nodes: Annotated[int | None, typer.Option(help="Nodes.")] = None,
    tasks_per_node: Annotated[int | None, typer.Option(help="Processes on each node.")] = None,
    cpus_per_task: Annotated[int | None, typer.Option(help="CPUs of each process.")] = None,
    time: Annotated[str | None, typer.Option(help="Time limit, as 01:00:00.")] = None,
    backends: Annotated[str | None, typer.Option(help="Runtimes, as jax,reactant.")] = None,
    programs: Annotated[str | None, typer.Option(help="Cross-checked, as 'matmul fft'.")] = None,
    platform: Annotated[str | None, typer.Option(help="cpu, gpu or tpu.")] = None,
    size: Annotated[int | None, typer.Option(help="Of the matmul.")] = None,
    mesh: Annotated[str | None, typer.Option(help="Of the matmul, as x=2,y=4.")] = None,
    spec: Annotated[str | None, typer.Option(help="Of the matmul, as x,y.")] = None,
    dtype: Annotated[str | None, typer.Option(help="Of the matmul.")] = None,
    output: Annotated[Path | None, typer.Option(help="Folder of the job.")] = None,
    max_requeues: Annotated[int | None, typer.Option(help="Goes on after the time limit.")] = None,
    sbatch: Annotated[
        list[str] | None, typer.Option(help="A further option of sbatch, as --gpus-per-node=4.")
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Submit a program, or the sharded matmul, as a batch job."""
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
        "output": output,
        "max_requeues": max_requeues,
    }
    command = _sbatch.submit_command(program or [], _texts(options), _texts(settings), sbatch or [])
    if dry_run:
        print(command)
        return
    job = _sbatch.submit(command)
    print(f"submitted job {job}; follow it with: pyreactant slurm logs {job} --follow")


@app.command()
def status(
    job: Job,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Say how a job stands, and how its runs ended."""
    from ..launch import _sbatch

    if dry_run:
        print(_sbatch.show_command(job))
        return
    found = _sbatch.status(job)
    if as_json:
        print(json.dumps(found, indent=2))
        return
    where = f" on {found['nodes']}" if found["nodes"] not in (None, "", "(null)") else ""
    print(f"job {job}: {found['state']}{where}, restarted {found['restarts']} times")
    for name, run in found["runs"].items():
        print(f"  {name}: {run['cause']} (exit code {run['exit_code']}): {run['summary']}")
    print(f"  folder: {found['folder']}")


@app.command()
def logs(
    job: Job,
    process: Annotated[int | None, typer.Option(help="Of one process alone.")] = None,
    run: Annotated[str | None, typer.Option(help="Which run, as jax.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as it grows.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Print a job's output."""
    from ..launch import _sbatch

    if dry_run:
        print(_sbatch.tail_command(Path(f"pyreactant-{job}.out"), follow))
        return
    command = _sbatch.logs_command(job, run, process, follow)
    os.execvp(command.argv[0], list(command.argv))  # noqa: S606 - no shell is wanted


@app.command()
def cancel(job: Job, dry_run: DryRun = False) -> None:
    """End a job; its programs get SIGTERM first, and can save."""
    from ..launch import _sbatch

    command = _sbatch.cancel_command(job)
    if dry_run:
        print(command)
        return
    command.run()
    print(f"cancelled job {job}")


def _texts(values: Mapping[str, object]) -> dict[str, str | None]:
    return {key: None if value is None else str(value) for key, value in values.items()}
