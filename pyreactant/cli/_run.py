"""`pyreactant run`: start a program on every process, and end all of them when one fails."""

from pathlib import Path
from typing import Annotated

import typer


def run(
    program: Annotated[
        list[str], typer.Argument(metavar="-- SCRIPT [ARGUMENTS]", help="Or -- -m MODULE.")
    ],
    module: Annotated[
        bool, typer.Option("-m", help="The program is a module, as with python -m.")
    ] = False,
    processes: Annotated[
        int | None, typer.Option("--processes", "-n", help="Processes on this machine.")
    ] = None,
    devices_per_process: Annotated[
        int | None, typer.Option(help="CPU devices, or GPUs, of each process.")
    ] = None,
    backend: Annotated[str | None, typer.Option(help="Runtime.", show_default="jax")] = None,
    platform: Annotated[str | None, typer.Option(help="cpu, gpu or tpu.")] = None,
    folder: Annotated[
        Path | None, typer.Option(help="For logs and report.", show_default="in pyreactant-runs")
    ] = None,
    all_output: Annotated[
        bool, typer.Option("--all-output", help="Show every process's output, not 0's alone.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing of the phases.")] = False,
    start_timeout: Annotated[float, typer.Option(help="Seconds for all to come.")] = 120.0,
    stall_timeout: Annotated[
        float, typer.Option(help="Seconds without a pulse before a process is given up.")
    ] = 300.0,
    heartbeat_timeout: Annotated[
        float, typer.Option(help="Seconds without a word before a machine is given up.")
    ] = 15.0,
    grace: Annotated[float, typer.Option(help="Seconds between SIGTERM and the kill.")] = 30.0,
    timeout: Annotated[float | None, typer.Option(help="Seconds for the whole run.")] = None,
    max_restarts: Annotated[int, typer.Option(help="Starts after a failure.")] = 0,
    allow_different_environments: Annotated[
        bool, typer.Option("--allow-different-environments", help="Do not compare versions.")
    ] = False,
) -> None:
    """Run a Python program on every process, and end all of them when one fails.

    On one machine, --processes says how many. Under srun, mpirun or ssh start it once per
    process and leave --processes away: each finds out who it is. Logs and the report of the run
    are in its folder.
    """
    from ..launch import RunOptions, supervise

    options = RunOptions(
        ["-m", *program] if module else program,
        processes,
        devices_per_process,
        backend,
        platform,
        folder,
        all_output,
        quiet,
        start_timeout,
        stall_timeout,
        heartbeat_timeout,
        grace,
        timeout,
        max_restarts,
        allow_different_environments,
    )
    raise typer.Exit(supervise(options))
