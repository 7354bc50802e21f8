"""`pyreactant tpu run`, `ssh` and `logs`: programs on the VMs of slices."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ._tpu_options import (
    NewSlices,
    Slices,
    SshAccess,
    Transport,
    Wait,
    connect,
    flat,
    options,
    tell,
)

if TYPE_CHECKING:
    from ..queued_resources._job import Job
    from ..queued_resources._reach import SshOptions
    from ..queued_resources._request import Request

ProcessIndex = Annotated[
    int, typer.Option("--process", "--worker", help="Process index of the VM, from 0.")
]


@options
class Runs:
    """What to run on new slices."""

    backends: Annotated[
        str | None,
        typer.Option(help="Runtimes to run one after the other.", show_default="jax,reactant"),
    ] = None
    size: Annotated[int, typer.Option(help="Side of the matmul's square matrices.")] = 4096
    out: Annotated[
        Path | None,
        typer.Option(help="New folder for logs, results, report.", show_default="pyreactant-NAME"),
    ] = None
    copy: Annotated[
        list[Path] | None, typer.Option(help="File or folder that the program needs.")
    ] = None
    wait_for: Wait = 3600.0
    reach_timeout: Annotated[float, typer.Option(help="Seconds for the VMs to accept ssh.")] = 300.0
    timeout: Annotated[float | None, typer.Option(help="Seconds for the run of each runtime.")] = (
        None
    )
    stall_timeout: Annotated[
        float, typer.Option(help="Seconds without a heartbeat before a program is ended.")
    ] = 300.0
    retries: Annotated[int, typer.Option(help="New attempts after a preemption.")] = 0
    keep: Annotated[bool, typer.Option("--keep", help="Do not delete the slices.")] = False
    python: Annotated[
        str | None, typer.Option(help="Interpreter on the VMs that has every requirement.")
    ] = None
    platform: Annotated[
        str, typer.Option(help="Platform that the runtimes must use: tpu or cpu.")
    ] = "tpu"
    devices_per_process: Annotated[
        int, typer.Option(help="CPU devices of each process, with --platform cpu.")
    ] = 0

    def job(self, request: "Request", ssh: "SshOptions", program: Sequence[str]) -> "Job":
        """The validated job."""
        from ..queued_resources._job import Job, check_size

        more: dict[str, Any] = {}
        if self.backends is not None:
            more["backends"] = [name.strip() for name in self.backends.split(",")]
        job = Job(
            request=request,
            out=self.out or Path(f"pyreactant-{request.name}"),
            program=program,
            ssh=ssh,
            copies=self.copy or (),
            python=self.python,
            platform=self.platform,
            devices=self.devices_per_process,
            size=self.size,
            wait=self.wait_for,
            reach_timeout=self.reach_timeout,
            timeout=self.timeout,
            stall_timeout=self.stall_timeout,
            retries=self.retries,
            kept=self.keep,
            **more,
        )
        check_size(job)
        return job


@flat
def run(
    slices: NewSlices,
    runs: Runs,
    access: SshAccess,
    program: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- SCRIPT [ARGUMENTS]]", help="Program; without one, the sharded matmul."
        ),
    ] = None,
    transport: Transport = "rest",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan; do nothing.")] = False,
) -> None:
    """Run a program on new slices, and delete the slices.

    Creates the slices, runs each runtime on all of their VMs and fetches the results. The slices
    are deleted on success, failure, Ctrl-C, SIGTERM and SIGHUP. After SIGKILL, `pyreactant tpu gc`
    deletes them; otherwise they delete themselves when their lifetime is over.
    """
    from ..queued_resources._job import plan_text
    from ..queued_resources._journal import Journal
    from ..queued_resources._run import run_job

    job = runs.job(slices.new_request(runs.wait_for), access.options(), program or ())
    if dry_run:
        print(plan_text(job))
        return
    from ..jobs._keeper import recorded

    client = connect(transport)

    def work() -> int:
        report = run_job(job, client, Journal(), tell=tell, show=print)
        print(report.to_text(), end="")
        return report.exit_code

    request = job.request
    settings = {name: getattr(request, name) for name in ("accelerator_type", "project", "zone")}
    code = recorded(
        work,
        origin="tpu run",
        what=" ".join(program or ["matmul"])[:80],
        target="tpu",
        settings=settings | {"slice_count": request.slice_count, "transport": transport},
        run=job.out,
        more={"name": request.name},
    )
    raise typer.Exit(code)


@flat
def ssh(
    slices: Slices,
    access: SshAccess,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- COMMAND]", help="Command; without one, a shell."),
    ] = None,
    process: ProcessIndex = 0,
    transport: Transport = "rest",
) -> None:
    """Open a shell or run a command on one VM of ACTIVE slices."""
    _exec_ssh(slices, access, process, command or (), transport=transport)


@flat
def logs(
    slices: Slices,
    access: SshAccess,
    process: ProcessIndex = 0,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue to print new output.")
    ] = False,
    transport: Transport = "rest",
) -> None:
    """Print the output so far of the program on one VM.

    After a run, all logs are in its folder on this machine.
    """
    tail = "exec tail -n +1 ${1:+-F} pyreactant-*/runs/*/process-*.log"
    command = ["bash", "-c", tail, "_", *(["follow"] if follow else [])]
    _exec_ssh(slices, access, process, command, transport=transport)


def _exec_ssh(
    slices: Slices, access: SshAccess, process: int, command: Sequence[str], *, transport: str
) -> None:
    """Replace this process by an ssh to one VM."""
    from ..queued_resources._reach import command_on

    request, ssh = slices.request(), access.options()
    ssh.check()
    argv = command_on(
        connect(transport),
        request,
        ssh,
        process,
        command=command,
        terminal=sys.stdin.isatty(),
    )
    os.execvp(argv[0], argv)  # noqa: S606 - an argument list, without a shell
