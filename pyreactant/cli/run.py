"""`pyreactant run` and `pyreactant slurm`: a program on every process, here or as a job of Slurm.

`run` ends all processes when one fails. `slurm` submits slurm/main.sbatch and follows its jobs.
"""

import dataclasses
import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..base.errors import ExitCode, InvalidArgumentError, PyReactantError
from .command import App, Command, Html, Overwrite, examples

if TYPE_CHECKING:
    from ..runs.supervisor import RunOptions

RUN_EXAMPLES = examples(
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
            if getattr(error, "exit_code", None) != ExitCode.USAGE:
                raise
            from ..runs.supervisor.unstarted import tell_others

            error.show()  # type: ignore[attr-defined] # a usage error of click, or of typer's own
            tell_others(InvalidArgumentError(error.format_message()))  # type: ignore[attr-defined]
            raise typer.Exit(ExitCode.USAGE) from None

    def check(self, ctx: Any) -> None:
        """As the other commands; all processes end if one is wrong."""
        from ..runs.supervisor.unstarted import others_told

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
    html: Html = None,
    overwrite: Overwrite = False,
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
    from ..runs.supervisor import RunOptions, supervise
    from ..runs.supervisor.unstarted import others_told

    with others_told():
        options = RunOptions(
            program=["-m", *program] if module else program,
            processes=processes,
            devices_per_process=devices_per_process,
            backend=backend,
            platform=platform,
            folder=out,
            html=html,
            overwrite=overwrite,
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
    from ..runs.jobs import keeper

    if not keeper.is_alone(options.processes):
        return supervise(options)
    folder = options.folder or keeper.new_folder()
    return keeper.recorded(
        lambda: supervise(dataclasses.replace(options, folder=folder)),
        origin="run",
        what=shlex.join(_typed(options))[:80],
        target="local",
        settings={"processes": options.processes or 1},
        run=folder,
    )


def _typed(options: "RunOptions") -> Sequence[str]:
    """The program of a run; that of a cross-check, which starts such runs, as its user types it."""
    words = options.program
    if list(words[:2]) != ["-m", "pyreactant.crosscheck"] or len(words) != 4:
        return words
    from ..check.request import read_request

    try:
        names = read_request(Path(words[2])).names
    except PyReactantError:
        return words  # the program itself says what is wrong
    return ["crosscheck", "--backends", options.backend or "auto", *names]


slurm = App(
    no_args_is_help=True,
    help="Jobs of slurm/main.sbatch on a Slurm cluster.",
    epilog=examples(
        "pyreactant slurm submit --account proj01 --nodes 4",
        "pyreactant slurm status 4711",
    ),
)

DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the command instead of running it.")]
Job = Annotated[str, typer.Argument(help="Job id, or ARRAY_TASK for one task of an array.")]


@slurm.command(
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
    from ..runs.supervisor import sbatch as _sbatch

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
    from ..runs.jobs.keeper import submitted_to_slurm

    def send() -> tuple[int, Path]:
        number = _sbatch.submit(command)
        named = out or os.environ.get("PYREACTANT_OUTPUT")
        return number, Path(named or f"pyreactant-runs/job-{number}").absolute()  # main.sbatch's

    what = " ".join(program or ["cross-check"])[:80]
    job = submitted_to_slurm(what, send)
    print(f"submitted job {job}; follow it with: pyreactant slurm logs {job} --follow")


@slurm.command(epilog=examples("pyreactant slurm status 4711 --json"))
def status(
    job: Job,
    as_json: Annotated[bool, typer.Option("--json", help="Print the status as JSON.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Print the state of a job, and how its runs ended."""
    from ..runs.supervisor import sbatch as _sbatch
    from ..runs.supervisor.slurm_job import job_id, show_command

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


@slurm.command(
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
    from ..runs.supervisor import sbatch as _sbatch
    from ..runs.supervisor.slurm_job import job_id, show_command

    wanted = job_id(job)
    if dry_run:
        if wanted.task is not None:
            print(show_command(wanted))  # the answer has the number that names the file
            return
        print(_sbatch.tail_command(Path(f"pyreactant-{wanted}.out"), follow))
        return
    command = _sbatch.logs_command(wanted, run, process, follow)
    os.execvp(command.argv[0], list(command.argv))  # noqa: S606 - without a shell


@slurm.command(epilog=examples("pyreactant slurm cancel 4711", "pyreactant slurm cancel 4711_2"))
def cancel(job: Job, dry_run: DryRun = False) -> None:
    """Cancel a job; its programs get SIGTERM first, and can save.

    The id of an array cancels all of its tasks.
    """
    from ..runs.supervisor import slurm_job as _slurm_job

    wanted = _slurm_job.job_id(job)
    if dry_run:
        print(_slurm_job.cancel_command(wanted))
        return
    print(_slurm_job.cancel(wanted))


def _texts(values: Mapping[str, object]) -> dict[str, str | None]:
    return {key: None if value is None else str(value) for key, value in values.items()}
