"""`pyreactant run`: start a program on every process, and end all of them when one fails."""

from pathlib import Path
from typing import Annotated

import typer

from ._examples import examples

EXAMPLES = examples(
    "pyreactant run --processes 2 --devices-per-process 4 -- train.py --steps 9",
    "srun pyreactant run --folder out -- -m package.train",
)


def run(
    program: Annotated[
        list[str],
        typer.Argument(
            metavar="-- SCRIPT [ARGUMENTS]",
            help="Script and its arguments, or -- -m MODULE [ARGUMENTS].",
        ),
    ],
    module: Annotated[
        bool, typer.Option("-m", help="The program is a module, as with python -m.")
    ] = False,
    processes: Annotated[
        int | None,
        typer.Option("--processes", "-n", help="Number of processes to start on this machine."),
    ] = None,
    devices_per_process: Annotated[
        int | None, typer.Option(help="Number of CPU devices, or GPUs, per process.")
    ] = None,
    backend: Annotated[
        str | None, typer.Option(help="Runtime, jax or reactant.", show_default="jax")
    ] = None,
    platform: Annotated[str | None, typer.Option(help="Platform, cpu, gpu or tpu.")] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            help="Folder for logs and report, new or empty.", show_default="in pyreactant-runs"
        ),
    ] = None,
    all_output: Annotated[
        bool,
        typer.Option(
            "--all-output", help="Show the output of every process, not only of process 0."
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not print progress messages.")] = False,
    start_timeout: Annotated[
        float, typer.Option(help="Seconds to wait until every process has joined.")
    ] = 120.0,
    stall_timeout: Annotated[
        float, typer.Option(help="Seconds without a pulse until a process counts as stalled.")
    ] = 300.0,
    heartbeat_timeout: Annotated[
        float, typer.Option(help="Seconds without a heartbeat until a machine counts as lost.")
    ] = 15.0,
    grace: Annotated[float, typer.Option(help="Seconds between SIGTERM and SIGKILL.")] = 30.0,
    timeout: Annotated[
        float | None, typer.Option(help="Time limit of the whole run, in seconds.")
    ] = None,
    max_restarts: Annotated[
        int, typer.Option(help="Maximum number of restarts after a failure.")
    ] = 0,
    allow_different_environments: Annotated[
        bool,
        typer.Option(
            "--allow-different-environments",
            help="Allow different versions and settings on the processes.",
        ),
    ] = False,
) -> None:
    """Run a Python program on every process, and end all of them when one fails.

    On one machine, set the number of processes with --processes. With srun, mpirun or ssh, start
    this command once per process and omit --processes: each supervisor finds out its process
    index. Logs and the report are in the run's folder.
    """
    from ..launch import RunOptions, supervise

    options = RunOptions(
        program=["-m", *program] if module else program,
        processes=processes,
        devices_per_process=devices_per_process,
        backend=backend,
        platform=platform,
        folder=folder,
        all_output=all_output,
        quiet=quiet,
        start_timeout=start_timeout,
        stall_timeout=stall_timeout,
        heartbeat_timeout=heartbeat_timeout,
        grace=grace,
        timeout=timeout,
        max_restarts=max_restarts,
        allow_different_environments=allow_different_environments,
    )
    raise typer.Exit(supervise(options))
