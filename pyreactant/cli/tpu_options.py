"""Options that commands of `pyreactant tpu` share: dataclasses with one field for each option."""

import contextlib
import dataclasses
import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..base.errors import InvalidArgumentError, RequirementError
from .command import KEYWORDS

if TYPE_CHECKING:
    from ..runs.queued.client import Client
    from ..runs.queued.job import Job
    from ..runs.queued.reach import SshOptions
    from ..runs.queued.request import Request

Transport = Annotated[str, typer.Option(help="Protocol of Google's client: rest or grpc.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Timeout = Annotated[float, typer.Option(help="Seconds to wait at most.")]
Wait = Annotated[float, typer.Option("--wait", help="Seconds for the slices to become ACTIVE.")]

PATIENCE = 120.0
"""Seconds for which a command asks Cloud TPU again if there is no answer."""

options = dataclasses.dataclass(kw_only=True, eq=False, repr=False)


@options
class Location:
    """Project and zone."""

    project: Annotated[
        str | None, typer.Option(help="GCP project that is billed.", show_default="$PROJECT")
    ] = None
    zone: Annotated[
        str | None, typer.Option(help="Zone, such as asia-northeast1-b.", show_default="$ZONE")
    ] = None

    def parent(self) -> str:
        """Full name of project and zone."""
        project = _required("PROJECT", self.project)
        return f"projects/{project}/locations/{_required('ZONE', self.zone)}"


@options
class ResourceName(Location):
    """One queued resource."""

    name: Annotated[
        str | None, typer.Option(help="Id of the queued resource.", show_default="$QR_ID")
    ] = None

    def path(self) -> str:
        """Full name of the queued resource."""
        name = _required("QR_ID", self.name)
        return f"{self.parent()}/queuedResources/{name}"


@options
class Slices(ResourceName):
    """Slices of one queued resource."""

    topology: Annotated[
        str | None,
        typer.Option(
            "--topology",
            "--accelerator-type",
            help="Slice, such as v6e-16.",
            show_default="$ACCELERATOR_TYPE",
        ),
    ] = None
    slices: Annotated[
        int | None,
        typer.Option(
            "--slices",
            "--slice-count",
            help="Number of slices.",
            show_default="$SLICE_COUNT or 1",
        ),
    ] = None
    internal_ips: Annotated[
        bool, typer.Option("--internal-ips", help="Give the VMs no public IP addresses.")
    ] = False

    def request(self) -> "Request":
        """The validated request; the image of slices that exist does not matter."""
        return self._request(runtime_version="")

    def _request(self, runtime_version: str | None = None, **more: Any) -> "Request":
        from ..runs.queued.request import REQUIRED, from_environment

        given = {
            "QR_ID": self.name,
            "PROJECT": self.project,
            "ZONE": self.zone,
            "ACCELERATOR_TYPE": self.topology,
            "SLICE_COUNT": None if self.slices is None else str(self.slices),
            "RUNTIME_VERSION": runtime_version,
        }
        environ = {**os.environ, **{key: text for key, text in given.items() if text is not None}}
        absent = [key for key in REQUIRED if not environ.get(key)]
        if absent:
            options = ", ".join(KEYWORDS[key] for key in absent)
            raise InvalidArgumentError(f"give {options}, or set {', '.join(absent)}")
        return from_environment(environ, internal_ips=self.internal_ips, **more)


@options
class NewSlices(Slices):
    """Slices to create."""

    runtime_version: Annotated[
        str | None,
        typer.Option(help="TPU VM image.", show_default="$RUNTIME_VERSION or the slice's own"),
    ] = None
    provisioning: Annotated[str, typer.Option(help="on-demand, spot or reserved.")] = "on-demand"
    valid_for: Annotated[
        float | None,
        typer.Option(
            help="Hours that the request may wait in the queue.", show_default="as long as --wait"
        ),
    ] = None
    lifetime: Annotated[
        float, typer.Option(help="Hours after which the VMs delete the slices.")
    ] = 6.0
    network: Annotated[str | None, typer.Option(help="Network of the VMs.")] = None
    subnetwork: Annotated[str | None, typer.Option(help="Subnetwork of the VMs.")] = None

    def new_request(self, wait: float) -> "Request":
        """The validated request.

        It leaves the queue by itself, even if this machine is lost, when nobody waits for it.

        Args:
            wait: Seconds for which the command waits for ACTIVE.
        """
        from ..runs.queued.request import LONGEST, SHORTEST

        valid_for = min(max(wait, SHORTEST), LONGEST)
        return self._request(
            self.runtime_version,
            provisioning=self.provisioning,
            valid_for=valid_for if self.valid_for is None else self.valid_for * 3600,
            lifetime=self.lifetime * 3600,
            network=self.network,
            subnetwork=self.subnetwork,
        )


@options
class SshAccess:
    """How workers are reached."""

    reach: Annotated[str, typer.Option(help="gcloud (its key and settings) or ssh (your own).")] = (
        "gcloud"
    )
    user: Annotated[str | None, typer.Option(help="User on the workers.")] = None
    ssh_flag: Annotated[
        list[str] | None, typer.Option(help="Further flag of ssh, such as --ssh-flag=-p22.")
    ] = None

    def options(self) -> "SshOptions":
        """The validated options."""
        from ..runs.queued.reach import SshOptions

        return SshOptions(self.reach, self.user, tuple(self.ssh_flag or ()))


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
        from ..runs.queued.job import Job, check_size

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


def flat(command: Callable[..., None]) -> Callable[..., None]:
    """A command with one option for each field of its dataclass parameters."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[type, list[str]]] = {}
    for parameter in inspect.signature(command).parameters.values():
        kind = parameter.annotation
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            fields = inspect.signature(kind).parameters
            groups[parameter.name] = kind, list(fields)
            parameters += fields.values()
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def flattened(**values: Any) -> None:
        grouped = {
            name: kind(**{field: values.pop(field) for field in fields})
            for name, (kind, fields) in groups.items()
        }
        command(**grouped, **values)

    flattened.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return flattened


def examples(*commands: str) -> str:
    """The end of a command's help: commands without "pyreactant tpu", broken into lines by hand."""
    return "\n".join(["\b", "Examples:", *(f"  pyreactant tpu {command}" for command in commands)])


def connect(transport: str, *, patience: float = PATIENCE) -> "Client":
    """The client of the API.

    Args:
        transport: "rest" or "grpc".
        patience: Seconds for which a call is retried.
    """
    try:
        from ..runs.queued.client import Client
    except ImportError as error:
        raise RequirementError(
            f"Google's client for Cloud TPU cannot be imported ({error}); install it with: "
            "python -m pip install 'pyreactant[tpu]'"
        ) from error
    return Client(transport=transport, patience=patience, tell=tell)


def tell(text: str) -> None:
    """Print a message for the user."""
    print(f"pyreactant: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def telling(what: str) -> Iterator[Callable[[str], None]]:
    """`tell`; on a terminal with a line below that has the last message and the time.

    A file or a pipe has the messages already.
    """
    from .console import working

    if not sys.stderr.isatty():
        yield tell
        return
    with working(what) as update:

        def both(text: str) -> None:
            tell(text)
            update(text)

        yield both


def _required(variable: str, given: str | None) -> str:
    from ..runs.queued.request import check_form

    value = given or os.environ.get(variable)
    if not value:
        raise InvalidArgumentError(f"give {KEYWORDS[variable]}, or set {variable}")
    check_form(variable, value)
    return value
