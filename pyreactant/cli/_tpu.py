"""`pyreactant tpu`: queued resources of Cloud TPU, from the request to the last deletion."""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._errors import InvalidArgumentError, RequirementError

if TYPE_CHECKING:
    from ..queued_resources._client import Client
    from ..queued_resources._request import Request

app = typer.Typer(no_args_is_help=True, help="Queued resources of Cloud TPU.")

Name = Annotated[str | None, typer.Option(help="Its id.", show_default="$QR_ID")]
Project = Annotated[str | None, typer.Option(help="Who pays.", show_default="$PROJECT")]
Zone = Annotated[str | None, typer.Option(help="Where.", show_default="$ZONE")]
Kind = Annotated[str | None, typer.Option(help="As v6e-16.", show_default="$ACCELERATOR_TYPE")]
Slices = Annotated[int | None, typer.Option(help="How many.", show_default="$SLICE_COUNT or 1")]
Runtime = Annotated[str | None, typer.Option(help="TPU VM image.", show_default="$RUNTIME_VERSION")]
Provisioning = Annotated[str, typer.Option(help="on-demand, spot or reserved.")]
ValidFor = Annotated[float | None, typer.Option(help="Hours it may wait in the queue.")]
Lifetime = Annotated[float, typer.Option(help="Hours after which it deletes itself in any case.")]
Network = Annotated[str | None, typer.Option(help="Network.")]
Subnetwork = Annotated[str | None, typer.Option(help="Subnetwork.")]
Internal = Annotated[
    bool, typer.Option("--internal-ips", help="No addresses of the internet for the VMs.")
]
Transport = Annotated[str, typer.Option(help="Of Google's client: rest or grpc.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]
WorkerNumber = Annotated[int, typer.Option(help="Which VM, from 0; its process index.")]
Reach = Annotated[str, typer.Option(help="Workers by gcloud's key and settings, or by ssh.")]
User = Annotated[str | None, typer.Option(help="User on the workers.")]
SshFlag = Annotated[list[str] | None, typer.Option(help="Of ssh, as --ssh-flag=-p22.")]
Wait = Annotated[float, typer.Option("--wait", help="Seconds for it to become ACTIVE.")]


@app.command()
def create(
    name: Name = None,
    project: Project = None,
    zone: Zone = None,
    accelerator_type: Kind = None,
    slice_count: Slices = None,
    runtime_version: Runtime = None,
    provisioning: Provisioning = "on-demand",
    valid_for: ValidFor = None,
    lifetime: Lifetime = 6.0,
    network: Network = None,
    subnetwork: Subnetwork = None,
    internal_ips: Internal = False,
    wait_for: Wait = 3600.0,
    transport: Transport = "rest",
) -> None:
    """Ask for slices, wait for them, and keep them until their lifetime is over."""
    from ..queued_resources._journal import Journal
    from ..queued_resources._lifecycle import Lease
    from ..queued_resources._request import cost_of_forgetting
    from ..queued_resources._signals import Interrupted, cleaned_up

    request = _request(
        name,
        project,
        zone,
        accelerator_type,
        slice_count,
        runtime_version,
        provisioning=provisioning,
        valid_for=valid_for and valid_for * 3600,
        lifetime=lifetime * 3600,
        network=network,
        subnetwork=subnetwork,
        internal_ips=internal_ips,
    )
    lease = Lease(_client(transport), request, os.urandom(8).hex(), Journal(), _tell)
    try:
        with cleaned_up(lease.close, _tell):
            lease.create()
            workers = lease.wait(wait_for)
            lease.keep()
    except Interrupted as end:
        _tell(f"ended by {end}")
        raise typer.Exit(128 + end.number) from None
    _tell(
        f"{request.name} is ACTIVE with {len(workers)} VMs, and is kept: "
        f"{cost_of_forgetting(request.topology, request.lifetime)}; delete it with: "
        f"pyreactant tpu delete --name {request.name} --project {request.project} "
        f"--zone {request.zone}"
    )


@app.command("wait")
def wait_until_active(
    name: Name = None,
    project: Project = None,
    zone: Zone = None,
    timeout: Annotated[float, typer.Option(help="Seconds.")] = 3600.0,
    transport: Transport = "rest",
) -> None:
    """Wait until a queued resource is ACTIVE; it is not deleted if it never is."""
    from ..queued_resources._lifecycle import wait_for

    wait_for(_client(transport), _path(name, project, zone), timeout, _tell)


@app.command()
def status(
    name: Name = None,
    project: Project = None,
    zone: Zone = None,
    as_json: AsJson = False,
    transport: Transport = "rest",
) -> None:
    """Say how a queued resource stands."""
    from ..queued_resources._resource import CloudError

    path = _path(name, project, zone)
    found = _client(transport).get(path)
    if found is None:
        raise CloudError(f"there is no queued resource {path}")
    _show([found], as_json)


@app.command("list")
def list_resources(
    project: Project = None,
    zone: Zone = None,
    as_json: AsJson = False,
    transport: Transport = "rest",
) -> None:
    """List the queued resources of a project and zone; * marks those that pyreactant made."""
    _show(_client(transport).resources(_parent(project, zone)), as_json)


@app.command()
def delete(
    name: Name = None,
    project: Project = None,
    zone: Zone = None,
    timeout: Annotated[float, typer.Option(help="Seconds.")] = 900.0,
    transport: Transport = "rest",
) -> None:
    """Delete a queued resource that pyreactant made, and wait until it is gone."""
    from ..queued_resources._gc import delete_ours
    from ..queued_resources._journal import Journal

    delete_ours(_client(transport), Journal(), _path(name, project, zone), _tell, timeout)


@app.command()
def gc(
    project: Project = None,
    zone: Zone = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be deleted.")] = False,
    as_json: AsJson = False,
    transport: Transport = "rest",
) -> None:
    """Delete what launchers of this machine left behind that were killed.

    With a project and zone, also what other machines left there and whose lifetime is over.
    """
    from ..queued_resources._gc import collect
    from ..queued_resources._journal import Journal

    both = (project or os.environ.get("PROJECT"), zone or os.environ.get("ZONE"))
    parents = [_parent(*both)] if all(both) else []
    found = collect(_client(transport), Journal(), _tell, parents=parents, dry_run=dry_run)
    if as_json:
        print(json.dumps([{"name": f.name, "action": f.action, "text": f.text} for f in found]))
    else:
        for finding in found:
            print(f"{finding.action}: {finding.name}: {finding.text}")
        if not found:
            print("nothing was left behind")
    if any(finding.action == "failed" for finding in found):
        raise typer.Exit(8)


@app.command(context_settings={"allow_interspersed_args": False})
def run(
    program: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- SCRIPT [ARGUMENTS]]", help="Else the sharded matmul."),
    ] = None,
    name: Name = None,
    project: Project = None,
    zone: Zone = None,
    accelerator_type: Kind = None,
    slice_count: Slices = None,
    runtime_version: Runtime = None,
    provisioning: Provisioning = "on-demand",
    valid_for: ValidFor = None,
    lifetime: Lifetime = 6.0,
    network: Network = None,
    subnetwork: Subnetwork = None,
    internal_ips: Internal = False,
    backends: Annotated[str | None, typer.Option(help="Runtimes in turn, as jax,reactant.")] = None,
    size: Annotated[int, typer.Option(help="Of the matmul.")] = 4096,
    out: Annotated[Path | None, typer.Option(help="Folder for logs, results, report.")] = None,
    copy: Annotated[
        list[Path] | None, typer.Option(help="A file or folder that the program needs.")
    ] = None,
    wait_for: Wait = 3600.0,
    reach_timeout: Annotated[float, typer.Option(help="Seconds for the VMs to answer.")] = 300.0,
    timeout: Annotated[float | None, typer.Option(help="Seconds for each runtime's run.")] = None,
    stall_timeout: Annotated[
        float, typer.Option(help="Seconds without a pulse before a program is given up.")
    ] = 300.0,
    retries: Annotated[int, typer.Option(help="New slices after a preemption.")] = 0,
    keep: Annotated[bool, typer.Option("--keep", help="Do not delete the slices.")] = False,
    reach: Reach = "gcloud",
    user: User = None,
    ssh_flag: SshFlag = None,
    python: Annotated[
        str | None, typer.Option(help="A Python that the workers have, with all that is needed.")
    ] = None,
    platform: Annotated[str, typer.Option(help="What the runtimes must find there.")] = "tpu",
    devices_per_process: Annotated[int, typer.Option(help="With --platform cpu.")] = 0,
    transport: Transport = "rest",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan; do nothing.")] = False,
) -> None:
    """Make slices, run each runtime on all of their VMs, bring the results back, delete the slices.

    They are deleted on success, failure, Ctrl-C, SIGTERM, SIGHUP; after SIGKILL by `pyreactant tpu
    gc`, and by themselves when their lifetime is over.
    """
    from ..queued_resources._job import Job, plan_text
    from ..queued_resources._journal import Journal
    from ..queued_resources._reach import Way
    from ..queued_resources._run import run_job

    request = _request(
        name,
        project,
        zone,
        accelerator_type,
        slice_count,
        runtime_version,
        provisioning=provisioning,
        valid_for=valid_for and valid_for * 3600,
        lifetime=lifetime * 3600,
        network=network,
        subnetwork=subnetwork,
        internal_ips=internal_ips,
    )
    more: dict[str, Any] = {} if backends is None else {"backends": backends.split(",")}
    job = Job(
        request=request,
        out=out or Path(f"pyreactant-{request.name}"),
        program=program or (),
        way=Way(reach, user, tuple(ssh_flag or ())),
        copies=copy or (),
        python=python,
        platform=platform,
        devices=devices_per_process,
        size=size,
        wait=wait_for,
        reach=reach_timeout,
        timeout=timeout,
        stall=stall_timeout,
        retries=retries,
        kept=keep,
        **more,
    )
    if dry_run:
        print(plan_text(job))
        return
    report = run_job(job, _client(transport), Journal(), _tell, print)
    print(report.to_text(), end="")
    raise typer.Exit(report.exit_code)


@app.command(context_settings={"allow_interspersed_args": False})
def ssh(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND]", help="Else a shell.")
    ] = None,
    name: Name = None,
    project: Project = None,
    zone: Zone = None,
    accelerator_type: Kind = None,
    slice_count: Slices = None,
    runtime_version: Runtime = None,
    internal_ips: Internal = False,
    worker: WorkerNumber = 0,
    reach: Reach = "gcloud",
    user: User = None,
    ssh_flag: SshFlag = None,
    transport: Transport = "rest",
) -> None:
    """A shell or a command on one VM of slices that are ACTIVE."""
    from ..queued_resources._reach import Way, command_on

    request = _request(
        name,
        project,
        zone,
        accelerator_type,
        slice_count,
        runtime_version,
        internal_ips=internal_ips,
    )
    way = Way(reach, user, tuple(ssh_flag or ()))
    way.check()
    argv = command_on(
        _client(transport), request, way, worker, command or (), terminal=sys.stdin.isatty()
    )
    os.execvp(argv[0], argv)  # noqa: S606 - no shell is wanted


@app.command()
def logs(
    name: Name = None,
    project: Project = None,
    zone: Zone = None,
    accelerator_type: Kind = None,
    slice_count: Slices = None,
    runtime_version: Runtime = None,
    internal_ips: Internal = False,
    worker: WorkerNumber = 0,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as it grows.")] = False,
    reach: Reach = "gcloud",
    user: User = None,
    ssh_flag: SshFlag = None,
    transport: Transport = "rest",
) -> None:
    """Print what a VM's program has printed so far; after a run all logs are in its folder."""
    tail = "exec tail -n +1 ${1:+-F} pyreactant-*/runs/*/process-*.log"
    ssh(
        ["bash", "-c", tail, "_", *(["follow"] if follow else [])],
        name,
        project,
        zone,
        accelerator_type,
        slice_count,
        runtime_version,
        internal_ips,
        worker,
        reach,
        user,
        ssh_flag,
        transport,
    )


def _request(
    name: str | None,
    project: str | None,
    zone: str | None,
    kind: str | None,
    count: int | None,
    runtime: str | None,
    **more: Any,
) -> "Request":
    from ..queued_resources._request import from_environment

    said = {
        "QR_ID": name,
        "PROJECT": project,
        "ZONE": zone,
        "ACCELERATOR_TYPE": kind,
        "SLICE_COUNT": None if count is None else str(count),
        "RUNTIME_VERSION": runtime,
    }
    environ = {**os.environ, **{key: value for key, value in said.items() if value is not None}}
    return from_environment(environ, **more)


def _parent(project: str | None, zone: str | None) -> str:
    from ..queued_resources._request import check_form

    found = {
        "PROJECT": project or os.environ.get("PROJECT"),
        "ZONE": zone or os.environ.get("ZONE"),
    }
    for label, value in found.items():
        if not value:
            raise InvalidArgumentError(f"say --{label.lower()}, or set {label}")
        check_form(label, value)
    return f"projects/{found['PROJECT']}/locations/{found['ZONE']}"


def _path(name: str | None, project: str | None, zone: str | None) -> str:
    from ..queued_resources._request import check_form

    found = name or os.environ.get("QR_ID")
    if not found:
        raise InvalidArgumentError("say --name, or set QR_ID")
    check_form("QR_ID", found)
    return f"{_parent(project, zone)}/queuedResources/{found}"


def _client(transport: str) -> "Client":
    try:
        from ..queued_resources._client import Client
    except ImportError as error:
        raise RequirementError(
            f"Google's client for Cloud TPU cannot be imported ({error}); install it with: "
            "python -m pip install 'pyreactant[tpu]'"
        ) from error
    return Client(transport=transport)


def _show(found: Any, as_json: bool) -> None:
    if as_json:
        rows = [
            {
                "name": r.path,
                "state": r.state,
                "reason": r.reason,
                "run": r.run,
                "created": r.created and r.created.isoformat(),
                "lifetime": r.lifetime,
            }
            for r in found
        ]
        print(json.dumps(rows, indent=2))
        return
    for r in found:
        mark = "*" if r.run else " "
        print(f"{mark} {r.name}  {r.state}  {r.created or ''}  {r.reason}".rstrip())


def _tell(text: str) -> None:
    print(f"pyreactant: {text}", file=sys.stderr, flush=True)
