"""`pyreactant tpu`: queued resources of Cloud TPU until their deletion."""

import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..base.errors import ExitCode, code_of_signal
from .command import App, Beside
from .declared import takes_settings
from .tpu_options import (
    LOCATION,
    NEW,
    PATIENCE,
    RESOURCE,
    SLICES,
    SSH,
    AsJson,
    Timeout,
    Transport,
    Wait,
    connect,
    examples,
    parent_of,
    path_of,
    request_of,
    ssh_of,
    tell,
    telling,
    with_settings,
)

if TYPE_CHECKING:
    from ..runs.queued.request import Resource

app = App(no_args_is_help=True, help="Queued resources of Cloud TPU.")

ProcessIndex = Annotated[int, typer.Option("--process", help="Process index of the VM, from 0.")]

PLACE = "--project my-project --zone asia-northeast1-b"


@app.command(
    cls=with_settings(*NEW, *SSH),
    epilog=examples(
        f"create {PLACE} \\\n      --name mine --topology v6e-16 --lifetime 2",
        f"create {PLACE} \\\n      --name mine --topology v6e-16 --ray",
    ),
)
@takes_settings
def create(
    settings: dict[str, Any],
    wait_for: Wait = 3600.0,
    ray: Annotated[
        bool,
        typer.Option("--ray", help="Start a Ray cluster on the VMs; prints its address."),
        Beside(enables="--python --reach --user --ssh-flag"),
    ] = False,
    python: Annotated[
        str | None,
        typer.Option(help="With --ray: interpreter on the VMs that has Ray and JAX."),
    ] = None,
    transport: Transport = "rest",
) -> None:
    """Create slices and wait until they are ACTIVE.

    They exist until `pyreactant tpu delete` deletes them or their lifetime is over.
    """
    from ..runs.queued.deletion import Interrupted, cleaned_up
    from ..runs.queued.journal import Journal
    from ..runs.queued.lifecycle import Lease
    from ..runs.queued.request import cost_of_forgetting
    from ..runs.queued.run import start_cluster

    request = request_of(settings, wait=wait_for)
    ssh, printed = ssh_of(settings), ""
    if ray:
        ssh.check()
    client = connect(transport)
    try:
        with telling(f"creating {request.name}") as told:
            lease = Lease(
                client=client,
                request=request,
                run=os.urandom(8).hex(),
                journal=Journal(),
                tell=told,
                to_keep=True,
            )
            with cleaned_up(lease.close, told):
                lease.create()
                workers = lease.wait(wait_for)
                if ray:
                    printed = start_cluster(
                        request, ssh, python, workers, check=lease.check, tell=told
                    )
                lease.keep()
    except Interrupted as end:
        tell(f"ended by {end}")
        raise typer.Exit(code_of_signal(end.number)) from None
    tell(
        f"{request.name} is ACTIVE with {len(workers)} VMs, and is kept: "
        f"{cost_of_forgetting(request.topology, request.lifetime)}; delete it with: "
        f"pyreactant tpu delete --name {request.name} --project {request.project} "
        f"--zone {request.zone}"
    )
    if printed:
        print(printed)


@app.command("wait", cls=with_settings(*RESOURCE), epilog=examples(f"wait --name mine {PLACE}"))
@takes_settings
def wait_until_active(
    settings: dict[str, Any], timeout: Timeout = 3600.0, transport: Transport = "rest"
) -> None:
    """Wait until a queued resource is ACTIVE.

    The command does not delete the resource, not even after a timeout.
    """
    from ..runs.queued.lifecycle import wait_for
    from .console import working

    path = path_of(settings)
    with working(f"waiting for {path.rpartition('/')[2]} to be ACTIVE"):
        wait_for(connect(transport, patience=min(timeout, PATIENCE)), path, timeout, tell)


@app.command(cls=with_settings(*RESOURCE), epilog=examples(f"status --name mine {PLACE} --json"))
@takes_settings
def status(
    settings: dict[str, Any], as_json: AsJson = False, transport: Transport = "rest"
) -> None:
    """Print the state of a queued resource.

    Ends with 8 if nothing uses it any more, or if its deletion is refused.
    """
    from ..runs.queued.journal import Journal
    from ..runs.queued.leftover import leftovers
    from ..runs.queued.request import CloudError

    path = path_of(settings)
    left = list(leftovers(Journal(), path=path))
    for slices in left:  # this needs no answer of the service
        tell(str(slices))
    found = connect(transport).get(path)
    if found is None:
        raise CloudError(f"there is no queued resource {path}")
    _print([found], as_json)
    if any(not slices.kept for slices in left):
        raise typer.Exit(ExitCode.CLOUD)


@app.command("list", cls=with_settings(*LOCATION), epilog=examples(f"list {PLACE}"))
@takes_settings
def list_resources(
    settings: dict[str, Any], as_json: AsJson = False, transport: Transport = "rest"
) -> None:
    """List the queued resources of a project and zone.

    * marks those that pyreactant created.
    """
    parent = parent_of(settings)
    _print(connect(transport).resources(parent), as_json)


@app.command(cls=with_settings(*RESOURCE), epilog=examples(f"delete --name mine {PLACE}"))
@takes_settings
def delete(
    settings: dict[str, Any], timeout: Timeout = 900.0, transport: Transport = "rest"
) -> None:
    """Delete a queued resource and wait until it is gone.

    Only resources that pyreactant created are deleted.
    """
    from ..runs.queued.gc import delete_ours
    from ..runs.queued.journal import Journal
    from .console import working

    path = path_of(settings)
    with working(f"deleting {path.rpartition('/')[2]}"):
        client = connect(transport, patience=min(timeout, PATIENCE))
        delete_ours(client, Journal(), path, tell=tell, timeout=timeout)


@app.command(cls=with_settings(*LOCATION), epilog=examples("gc", f"gc {PLACE} --dry-run"))
@takes_settings
def gc(
    settings: dict[str, Any],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be deleted; delete nothing.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Delete also what waits in the queue, if it is not known whether its launcher "
            "is alive.",
        ),
    ] = False,
    timeout: Annotated[
        float, typer.Option(help="Seconds for the deletion of each resource at most.")
    ] = 900.0,
    as_json: AsJson = False,
    transport: Transport = "rest",
) -> None:
    """Delete what killed launchers of this machine left behind.

    What a live launcher of this machine uses is left, even with --force. With a project and a
    zone, resources there that other machines created are deleted too, once their launcher is silent
    for 10 minutes or their lifetime is over. The lifetime begins when the VMs are created.

    Ends with 8 if something may cost money although nobody is known to use it.
    """
    from ..runs.queued.gc import collect
    from ..runs.queued.journal import Journal

    parents = [parent_of(settings)] if settings else []
    found = collect(
        connect(transport, patience=min(timeout, PATIENCE)),
        Journal(),
        tell,
        parents=parents,
        dry_run=dry_run,
        force=force,
        timeout=timeout,
    )
    if as_json:
        print(json.dumps([{"name": f.name, "action": f.action, "text": f.text} for f in found]))
    else:
        for finding in found:
            print(f"{finding.action}: {finding.name}: {finding.text}")
        if not found:
            print("nothing was left behind")
    if any(finding.costs for finding in found):
        raise typer.Exit(ExitCode.CLOUD)


def _print(found: "Sequence[Resource]", as_json: bool) -> None:
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


@app.command(
    context_settings={"allow_interspersed_args": False},
    cls=with_settings(*SLICES, *SSH),
    epilog=examples(f"ssh {PLACE} \\\n      --name mine --topology v6e-16 --process 3 -- uptime"),
)
@takes_settings
def ssh(
    settings: dict[str, Any],
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- COMMAND]", help="Command; without one, a shell."),
    ] = None,
    process: ProcessIndex = 0,
    transport: Transport = "rest",
) -> None:
    """Open a shell or run a command on one VM of ACTIVE slices."""
    from ..runs.queued.reach import command_on

    request, access = request_of(settings), ssh_of(settings)
    access.check()
    argv = command_on(
        connect(transport),
        request,
        access,
        process,
        command=command or (),
        terminal=sys.stdin.isatty(),
    )
    os.execvp(argv[0], argv)  # noqa: S606 - an argument list, without a shell
