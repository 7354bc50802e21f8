"""`pyreactant run`: start a program on every process, and end all of them when one fails."""

import dataclasses
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._errors import InvalidArgumentError
from ._command import Command, examples

if TYPE_CHECKING:
    from ..launch import RunOptions

EXAMPLES = examples(
    "pyreactant run --processes 2 --devices-per-process 4 -- train.py --steps 9",
    "srun pyreactant run --out logs -- -m package.train",
    "pyreactant run -n 2 -- julia train.jl",
)


class RunCommand(Command):
    """The command with its usage errors, which end the other processes of the run, too."""

    def make_context(self, *arguments: Any, **more: Any) -> Any:
        """Parse the command line."""
        try:
            return super().make_context(*arguments, **more)
        except Exception as error:
            if getattr(error, "exit_code", None) != InvalidArgumentError.exit_code:
                raise
            from ..launch._unstarted import tell_others

            error.show()  # type: ignore[attr-defined] # a usage error of click, or of typer's own
            tell_others(InvalidArgumentError(error.format_message()))  # type: ignore[attr-defined]
            raise typer.Exit(InvalidArgumentError.exit_code) from None

    def check(self, ctx: Any) -> None:
        """As the other commands; all processes end if one is wrong."""
        from ..launch._unstarted import others_told

        with others_told():
            super().check(ctx)


def run(
    program: Annotated[
        list[str],
        typer.Argument(
            metavar="-- PROGRAM [ARGUMENTS]",
            help="Python script, -m MODULE, or any other command; then its arguments.",
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
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "--folder",
            help="Folder for logs and report, new or empty.",
            show_default="in pyreactant-runs",
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write the report as a page to this file, too.")
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
        float,
        typer.Option(help="Seconds without a pulse or progress until a process counts as stalled."),
    ] = 300.0,
    end_stalled: Annotated[
        bool,
        typer.Option(
            "--end-stalled", help="End the run if a process makes no progress; else report it only."
        ),
    ] = False,
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
    tensorboard: Annotated[
        bool,
        typer.Option("--tensorboard", help="Write TensorBoard event files of the metrics, too."),
    ] = False,
    allow_different_environments: Annotated[
        bool,
        typer.Option(
            "--allow-different-environments",
            help="Allow different versions and settings on the processes.",
        ),
    ] = False,
    no_mtls: Annotated[
        bool,
        typer.Option(
            "--no-mtls", help="Make no certificates: JAX's coordinator accepts whoever reaches it."
        ),
    ] = False,
) -> None:
    """Run a program on every process; end all if one fails.

    On one machine, set the number of processes with --processes. With srun, mpirun or ssh, start
    this command once per process and omit --processes: each supervisor finds out its process
    index. Logs and the report are in the run's folder.
    """
    from ..launch import RunOptions, supervise
    from ..launch._unstarted import others_told

    with others_told():
        options = RunOptions(
            program=["-m", *program] if module else program,
            processes=processes,
            devices_per_process=devices_per_process,
            backend=backend,
            platform=platform,
            folder=out,
            html=html,
            all_output=all_output,
            quiet=quiet,
            start_timeout=start_timeout,
            stall_timeout=stall_timeout,
            end_stalled=end_stalled,
            heartbeat_timeout=heartbeat_timeout,
            grace=grace,
            timeout=timeout,
            max_restarts=max_restarts,
            tensorboard=tensorboard,
            allow_different_environments=allow_different_environments,
            no_mtls=no_mtls,
        )
    raise typer.Exit(_listed(options, supervise))


def _listed(options: "RunOptions", supervise: Callable[["RunOptions"], int]) -> int:
    """Supervise the run, with a record for `pyreactant jobs` if it is a job of its own."""
    from ..jobs import _keeper

    if not _keeper.is_alone(options.processes):
        return supervise(options)
    folder = options.folder or _keeper.new_folder()
    return _keeper.recorded(
        lambda: supervise(dataclasses.replace(options, folder=folder)),
        origin="run",
        what=shlex.join(options.program)[:80],
        target="local",
        settings={"processes": options.processes or 1},
        run=folder,
    )
