"""`pyreactant tpu`: queued resources of Cloud TPU until their deletion."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..base.counted import counted
from ..base.errors import ExitCode, code_of_signal
from ..base.say import say
from .command import App, AsJson, Beside, duration
from .declared import takes_settings
from .tpu_options import (
    LOCATION,
    NEW,
    PATIENCE,
    RESOURCE,
    SLICES,
    SSH,
    Timeout,
    Transport,
    Wait,
    connect,
    examples,
    parent_of,
    path_of,
    target_of,
    telling,
    with_settings,
)

if TYPE_CHECKING:
    from ..runs.queued.request import QueuedResource

app = App(name="tpu", no_args_is_help=True, help="Queued resources of Cloud TPU.")

ProcessIndex = Annotated[int, typer.Option("--process", help="Process index of the VM, from 0.")]

PLACE = "--project my-project --zone asia-northeast1-b"


@app.command(
    cls=with_settings(*NEW, *SSH),
    epilog=examples(
        f"create {PLACE} \\\n      --name mine --topology v6e-16 --lifetime 2h",
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
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print what would be created; create nothing."),
        Beside(excludes="--json"),
    ] = False,
    as_json: AsJson = False,
    transport: Transport = "rest",
) -> None:
    """Create slices and wait until they are ACTIVE.

    They exist until `pyreactant tpu delete` deletes them or their lifetime is over.
    """
    from ..runs.queued.deletion import Deleter
    from ..runs.queued.job import Job, creation_text
    from ..runs.queued.journal import Journal
    from ..runs.queued.lifecycle import Lease
    from ..runs.queued.request import cost_of_forgetting
    from ..runs.queued.signals import Interrupted, cleaned_up
    from ..runs.queued.workers import start_ray

    target = target_of(settings, wait=wait_for, python=python, transport=transport)
    target.check_settings()
    ssh = target.ssh  # checks how the VMs are reached, in a dry run, too
    request, printed = target.request(), ""
    if dry_run:
        print(*creation_text(request, wait_for), sep="\n")
        print(f"keep       until tpu delete, or their lifetime: {cost_of_forgetting(request)}")
        return
    if ray:
        ssh.check()
    client = connect(transport)
    try:
        with telling(f"creating {request.name}") as told:
            deleter = Deleter(client, Journal(), told)
            lease = Lease(deleter, request, os.urandom(8).hex(), to_keep=True)
            with cleaned_up(lease.close, told):
                lease.create()
                workers = lease.wait(wait_for)
                if ray:
                    job = Job(settings=target, request=request, out=Path())
                    printed = start_ray(job, workers, lease)
                lease.keep()
    except Interrupted as end:
        say(f"ended by {end}")
        raise typer.Exit(code_of_signal(end.number)) from None
    say(
        f"{request.name} is ACTIVE with {counted(len(workers), 'VM')}, and is kept: "
        f"{cost_of_forgetting(request)}; delete it with: "
        f"pyreactant tpu delete --name {request.name} --project {request.project} "
        f"--zone {request.zone}"
    )
    if as_json:
        row = {"name": request.path, "state": "ACTIVE", "vms": len(workers), "ray": printed or None}
        print(json.dumps(row, indent=2))
    elif printed:
        print(printed)


@app.command(
    "wait", cls=with_settings(*RESOURCE), epilog=examples(f"wait {PLACE} \\\n      --name mine")
)
@takes_settings
def wait_until_active(
    settings: dict[str, Any],
    timeout: Timeout = 3600.0,
    as_json: AsJson = False,
    transport: Transport = "rest",
) -> None:
    """Wait until a queued resource is ACTIVE.

    The command does not delete the resource, not even after a timeout.
    """
    from ..runs.queued.lifecycle import wait_for
    from .console import working

    path = path_of(settings)
    with working(f"waiting for {path.rpartition('/')[2]} to be ACTIVE"):
        wait_for(connect(transport, patience=min(timeout, PATIENCE)), path, timeout, say)
    if as_json:
        print(json.dumps({"name": path, "state": "ACTIVE"}, indent=2))


@app.command(
    cls=with_settings(*RESOURCE), epilog=examples(f"status {PLACE} \\\n      --name mine --json")
)
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
        say(str(slices))
    resource = connect(transport).get(path)
    if resource is None:
        raise CloudError(f"there is no queued resource {path}")
    _print([resource], as_json)
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


@app.command(cls=with_settings(*RESOURCE), epilog=examples(f"delete {PLACE} \\\n      --name mine"))
@takes_settings
def delete(
    settings: dict[str, Any],
    timeout: Timeout = 900.0,
    as_json: AsJson = False,
    transport: Transport = "rest",
) -> None:
    """Delete a queued resource and wait until it is gone.

    Only resources that pyreactant created are deleted.
    """
    from ..runs.queued.deletion import Deleter
    from ..runs.queued.journal import Journal
    from .console import working

    path = path_of(settings)
    with working(f"deleting {path.rpartition('/')[2]}"):
        client = connect(transport, patience=min(timeout, PATIENCE))
        Deleter(client, Journal(), say, timeout).delete_named(path)
    if as_json:
        print(json.dumps({"name": path, "deleted": True}, indent=2))


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
        float, duration(help="How long the deletion of each resource may take.")
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
    from ..runs.queued.deletion import Collector, Deleter
    from ..runs.queued.journal import Journal

    parents = [parent_of(settings)] if settings else []
    client = connect(transport, patience=min(timeout, PATIENCE))
    deleter = Deleter(client, Journal(), say, timeout)
    findings = Collector(deleter, dry_run=dry_run, force=force).collect(parents)
    if as_json:
        rows = [{"name": f.name, "action": f.action, "text": f.text} for f in findings]
        print(json.dumps(rows))
    else:
        for finding in findings:
            print(f"{finding.action}: {finding.name}: {finding.text}")
        if not findings:
            print("nothing was left behind")
    if any(finding.costs for finding in findings):
        raise typer.Exit(ExitCode.CLOUD)


def _print(resources: "Sequence[QueuedResource]", as_json: bool) -> None:
    if as_json:
        rows = [
            {
                "name": resource.path,
                "state": resource.state,
                "reason": resource.reason,
                "run": resource.run,
                "created": resource.created and resource.created.isoformat(),
                "lifetime": resource.lifetime,
            }
            for resource in resources
        ]
        print(json.dumps(rows, indent=2))
        return
    for resource in resources:
        mark = "*" if resource.run else " "
        created = resource.created or ""
        print(f"{mark} {resource.name}  {resource.state}  {created}  {resource.reason}".rstrip())


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

    target = target_of(settings)
    target.ssh.check()
    argv = command_on(
        connect(transport),
        target.request(),
        target.ssh,
        process,
        command=command or (),
        terminal=sys.stdin.isatty(),
    )
    os.execvp(argv[0], argv)  # noqa: S606 - an argument list, without a shell
