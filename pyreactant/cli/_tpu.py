"""`pyreactant tpu`: queued resources of Cloud TPU, from the request to the deletion."""

import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ._command import App
from ._tpu_options import (
    AsJson,
    Location,
    NewSlices,
    ResourceName,
    SshAccess,
    Timeout,
    Transport,
    Wait,
    connect,
    examples,
    flat,
    tell,
    telling,
)
from ._tpu_run import logs, run, ssh

if TYPE_CHECKING:
    from ..queued_resources._request import Resource

app = App(no_args_is_help=True, help="Queued resources of Cloud TPU.")

PLACE = "--project my-project --zone asia-northeast1-b"


@app.command(
    epilog=examples(
        f"create {PLACE} \\\n      --name mine --topology v6e-16 --lifetime 2",
        f"create {PLACE} \\\n      --name mine --topology v6e-16 --ray",
    )
)
@flat
def create(
    slices: NewSlices,
    access: SshAccess,
    wait_for: Wait = 3600.0,
    ray: Annotated[
        bool, typer.Option("--ray", help="Start a Ray cluster on the VMs; prints its address.")
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
    from ..queued_resources._deletion import Interrupted, cleaned_up
    from ..queued_resources._journal import Journal
    from ..queued_resources._lifecycle import Lease
    from ..queued_resources._request import cost_of_forgetting
    from ..queued_resources._run import start_cluster

    request = slices.new_request(wait_for)
    ssh, printed = access.options(), ""
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
        raise typer.Exit(128 + end.number) from None
    tell(
        f"{request.name} is ACTIVE with {len(workers)} VMs, and is kept: "
        f"{cost_of_forgetting(request.topology, request.lifetime)}; delete it with: "
        f"pyreactant tpu delete --name {request.name} --project {request.project} "
        f"--zone {request.zone}"
    )
    if printed:
        print(printed)


@app.command("wait", epilog=examples(f"wait --name mine {PLACE}"))
@flat
def wait_until_active(
    resource: ResourceName, timeout: Timeout = 3600.0, transport: Transport = "rest"
) -> None:
    """Wait until a queued resource is ACTIVE.

    The command does not delete the resource, not even after a timeout.
    """
    from ..queued_resources._lifecycle import wait_for
    from ._console import working

    path = resource.path()
    with working(f"waiting for {path.rpartition('/')[2]} to be ACTIVE"):
        wait_for(connect(transport), path, timeout, tell)


@app.command(epilog=examples(f"status --name mine {PLACE} --json"))
@flat
def status(resource: ResourceName, as_json: AsJson = False, transport: Transport = "rest") -> None:
    """Print the state of a queued resource."""
    from ..queued_resources._request import CloudError

    path = resource.path()
    found = connect(transport).get(path)
    if found is None:
        raise CloudError(f"there is no queued resource {path}")
    _print([found], as_json)


@app.command("list", epilog=examples(f"list {PLACE}"))
@flat
def list_resources(
    location: Location, as_json: AsJson = False, transport: Transport = "rest"
) -> None:
    """List the queued resources of a project and zone.

    * marks those that pyreactant created.
    """
    parent = location.parent()
    _print(connect(transport).resources(parent), as_json)


@app.command(epilog=examples(f"delete --name mine {PLACE}"))
@flat
def delete(resource: ResourceName, timeout: Timeout = 900.0, transport: Transport = "rest") -> None:
    """Delete a queued resource and wait until it is gone.

    Only resources that pyreactant created are deleted.
    """
    from ..queued_resources._deletion import delete_ours
    from ..queued_resources._journal import Journal
    from ._console import working

    path = resource.path()
    with working(f"deleting {path.rpartition('/')[2]}"):
        delete_ours(connect(transport), Journal(), path, tell=tell, timeout=timeout)


@app.command(epilog=examples("gc", f"gc {PLACE} --dry-run"))
@flat
def gc(
    location: Location,
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
    as_json: AsJson = False,
    transport: Transport = "rest",
) -> None:
    """Delete what killed launchers of this machine left behind.

    What a live launcher of this machine uses is left, even with --force. With a project and a
    zone, resources there that other machines created are deleted too, once their launcher is silent
    for 10 minutes or their lifetime is over. The lifetime begins when the VMs are created.
    """
    from ..queued_resources._deletion import collect
    from ..queued_resources._journal import Journal

    settled = os.environ.get("PROJECT") and os.environ.get("ZONE")
    parents = [location.parent()] if location.project or location.zone or settled else []
    found = collect(
        connect(transport), Journal(), tell, parents=parents, dry_run=dry_run, force=force
    )
    if as_json:
        print(json.dumps([{"name": f.name, "action": f.action, "text": f.text} for f in found]))
    else:
        for finding in found:
            print(f"{finding.action}: {finding.name}: {finding.text}")
        if not found:
            print("nothing was left behind")
    if any(finding.action == "failed" for finding in found):
        raise typer.Exit(8)


app.command(
    context_settings={"allow_interspersed_args": False},
    epilog=examples(
        f"run {PLACE} \\\n      --name mine --topology v6e-16 --backends jax",
        "run --provisioning spot --retries 3 --copy mypackage -- train.py --steps 9",
    ),
)(run)
app.command(
    context_settings={"allow_interspersed_args": False},
    epilog=examples(f"ssh {PLACE} \\\n      --name mine --topology v6e-16 --process 3 -- uptime"),
)(ssh)
app.command(epilog=examples(f"logs {PLACE} \\\n      --name mine --topology v6e-16 --follow"))(logs)


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
