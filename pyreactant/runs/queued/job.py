"""What runs on which slices, as data; its checks that cost nothing, and its plan as text."""

import enum
import math
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import Protocol

from ...arrays.runtimes.known import BACKENDS
from ...base.counted import counted
from ...base.errors import InvalidArgumentError, argument
from ...base.slices.generations import GIB
from ..spec import STORE, Option, Processes, option
from .reach import SshOptions
from .request import HOUR, LONGEST, SHORTEST, SliceRequest, cost_of_forgetting


@dataclass(frozen=True, kw_only=True)
class SliceSettings(Processes):
    """Which slices to create and how to use them; `places.tpu.TPU` documents the fields."""

    accelerator_type: str = field(
        kw_only=False,
        metadata={
            "option": Option(
                "Slice of Cloud TPU, such as v6e-16.",
                "Devices",
                name="--topology",
                variable="ACCELERATOR_TYPE",
            )
        },
    )
    project: str | None = option(
        None, "GCP project that is billed.", "Cloud TPU", variable="PROJECT"
    )
    zone: str | None = option(
        None, "Zone, such as asia-northeast1-b.", "Cloud TPU", variable="ZONE"
    )
    name: str | None = option(None, "Id of the queued resource.", "Cloud TPU", variable="QR_ID")
    slice_count: int = option(
        1, "Number of slices.", "Devices", name="--slices", variable="SLICE_COUNT"
    )
    provisioning: str = option("on-demand", "on-demand, spot or reserved.", "Cloud TPU")
    spot: bool = False
    reserved: bool = False
    runtime_version: str | None = option(
        None, "TPU VM image.", "Cloud TPU", variable="RUNTIME_VERSION", shown="the slice's own"
    )
    lifetime: float = option(
        6.0, "Time after which the VMs delete the slices.", "Cloud TPU", unit="h"
    )
    valid_for: float | None = option(
        None,
        "How long the request may wait in the queue.",
        "Cloud TPU",
        unit="h",
        shown="as long as --wait",
    )
    wait: float = option(3600.0, "How long to wait for the resources.", "Time limits", unit="s")
    reach_timeout: float = option(
        300.0, "How long to wait for the VMs to accept ssh.", "Time limits", unit="s"
    )
    kept: bool = option(False, "Do not delete the slices.", "Cloud TPU", name="--keep")
    network: str | None = option(None, "Network of the VMs.", "Cloud TPU")
    subnetwork: str | None = option(None, "Subnetwork of the VMs.", "Cloud TPU")
    internal_ips: bool = option(False, "Give the VMs no public IP addresses.", "Cloud TPU")
    reach: str = option("gcloud", "gcloud (its key and settings) or ssh (your own).", "VMs")
    user: str | None = option(None, "User on the VMs.", "VMs")
    ssh_flags: tuple[str, ...] = option(
        (), "Further flag of ssh, such as --ssh-flag=-p22; repeatable.", "VMs", name="--ssh-flag"
    )
    python: str | None = option(None, "Interpreter on the VMs that has every requirement.", "VMs")
    platform: str = "tpu"
    backend: str = "jax"
    transport: str = option("rest", "Protocol of Google's client: rest or grpc.", "Cloud TPU")
    store: str | None = option(*STORE)
    retries: InitVar[int | None] = None

    def __post_init__(self, retries: int | None) -> None:
        if retries is not None:
            object.__setattr__(self, "max_restarts", retries)
        # The job's keeper, and other shells, need not have these variables.
        for name in ("project", "zone"):
            object.__setattr__(self, name, getattr(self, name) or os.environ.get(name.upper()))
        if isinstance(self.ssh_flags, list):  # of JSON
            object.__setattr__(self, "ssh_flags", tuple(self.ssh_flags))

    @property
    def ssh(self) -> SshOptions:
        """How the VMs are reached."""
        return SshOptions(self.reach, self.user, self.ssh_flags)

    def request(self, name: str = "") -> SliceRequest:
        """The validated request for the slices.

        It leaves the queue by itself, even if this machine is lost, when nobody waits for it.

        Args:
            name: Id of the queued resource if the settings have none.
        """
        for required in ("project", "zone"):
            if not getattr(self, required):
                raise InvalidArgumentError(f"give {argument(required)}, or set {required.upper()}")
        chosen = {self.provisioning} - {"on-demand"}
        chosen |= {kind for kind in ("spot", "reserved") if getattr(self, kind)}
        if len(chosen) > 1:
            raise InvalidArgumentError("a slice is spot or reserved, not both")
        waiting = min(max(self.wait, SHORTEST), LONGEST)
        return SliceRequest(
            name=self.name or name,
            project=str(self.project),
            zone=str(self.zone),
            accelerator_type=self.accelerator_type,
            runtime_version=self.runtime_version or "",
            slice_count=self.slice_count,
            provisioning=next(iter(chosen), "on-demand"),
            valid_for=waiting if self.valid_for is None else self.valid_for * HOUR,
            lifetime=self.lifetime * HOUR,
            network=self.network,
            subnetwork=self.subnetwork,
            internal_ips=self.internal_ips,
        )


class Phase(enum.Enum):
    """What a launcher does now."""

    QUEUED = "waits for the slices"
    STARTING = "prepares the VMs"
    RUNNING = "runs the program"
    FETCHING = "fetches logs and results; the program has ended"
    DELETING = "deletes the slices"


@dataclass(frozen=True, slots=True)
class Listener:
    """Who hears of a job.

    Attributes:
        tell: Prints a message for the user.
        show: Prints a line of output, prefixed with the worker's name.
        enter: Is told which phase begins.
    """

    tell: Callable[[str], None]
    show: Callable[[str], None] = lambda line: None
    enter: Callable[[Phase], None] = lambda phase: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to run on which slices.

    Attributes:
        settings: How the slices are used.
        request: The slices.
        out: Folder for logs, results and report; must not exist.
        program: Arguments of ``pyreactant run``; () for the sharded matmul.
        copies: Files and folders that the program needs, below the working directory.
        size: Side of the matmul's square matrices.
        deletion: Limit in seconds for the deletion of the slices of each attempt.

    Raises:
        InvalidArgumentError: A value is not allowed.
    """

    settings: SliceSettings
    request: SliceRequest
    out: Path
    program: Sequence[str] = ()
    copies: Sequence[Path] = ()
    size: int = 4096
    deletion: float = 900.0

    @property
    def backends(self) -> list[str]:
        """Runtimes to run, one after the other."""
        return [backend.strip() for backend in (self.settings.backend or "").split(",")]

    def most(self) -> str:
        """What the slices of all attempts cost at most, as text."""
        return cost_of_forgetting(self.request, attempts=self.settings.max_restarts + 1)

    def __post_init__(self) -> None:
        for name in self.backends:
            if name not in BACKENDS:
                raise InvalidArgumentError(
                    f"unknown backend {name!r}; known are: {', '.join(BACKENDS)}; for both, one "
                    f"after the other, name {','.join(BACKENDS)}"
                )
            if self.backends.count(name) > 1:
                raise InvalidArgumentError(f"backend {name!r} is named twice; name it once")
        if self.size < 1:
            raise InvalidArgumentError(f"{argument('size')} must be 1 or more, got {self.size}")
        platform, devices = self.settings.platform, self.settings.devices_per_process
        if platform not in _PLATFORMS:
            raise InvalidArgumentError(
                f"{argument('platform')} must be {' or '.join(_PLATFORMS)}, which the VMs of "
                f"slices have, got {platform!r}"
            )
        if platform == "tpu" and devices:
            raise InvalidArgumentError(
                f"{argument('devices_per_process', devices)} was requested, but on TPU a process "
                f"has all devices of its VM, {self.request.topology.devices_per_process} here; "
                f"omit {argument('devices_per_process')}, or use {argument('platform', 'cpu')}"
            )


class Check(Protocol):
    """How the runs of a job without a program are checked: its caller knows the programs."""

    def write_request(self, job: Job, file: Path) -> None:
        """Write what every process of every runtime reads.

        Raises:
            FileError: The file cannot be written.
        """

    def judge(self, runs: Sequence[Path], folder: Path) -> tuple[int, str]:
        """The exit code and the verdict of finished runs; the report is written to `folder`.

        Raises:
            PyReactantError: The runs cannot be checked.
        """


def check_size(job: Job) -> None:
    """Check that the matmul fits the devices of all slices, by what this machine knows.

    Raises:
        InvalidArgumentError: Its blocks would not be equal, or would need more memory.
    """
    if job.program:
        return
    from ...arrays.matmul import default_mesh

    slices, size = job.request.topology, job.size
    on_tpu = job.settings.platform == "tpu"
    devices = slices.devices if on_tpu else slices.hosts * (job.settings.devices_per_process or 0)
    if not devices:
        return  # the runtime chooses their number
    name = job.request.accelerator_type
    where = name if slices.num_slices == 1 else f"{slices.num_slices} slices of {name}"
    mesh = default_mesh(devices)
    unit = math.lcm(*mesh.shape)
    words = f"the matmul of size {size} does not fit the {counted(devices, 'device')} of {where}"
    if size % unit:
        below, above = size // unit * unit, -(-size // unit) * unit
        nearest = f"{below} or {above}" if below else f"{above}"
        raise InvalidArgumentError(
            f"{words}: blocks must be equal on a mesh of {' x '.join(map(str, mesh.shape))}; "
            f"use {argument('size')} {nearest}"
        )
    need, have = _MATRICES * size**2, devices * slices.hbm_bytes
    if on_tpu and need > have:
        largest = math.isqrt(have // _MATRICES) // unit * unit
        raise InvalidArgumentError(
            f"{words}: its three matrices take {need / GIB:,.0f} GiB in float32, and the devices "
            f"have {have / GIB:,.0f} GiB; use {argument('size')} {largest} or less, or more chips"
        )


_MATRICES = 3 * 4
"""Bytes of the matmul's matrices for each element of one."""

_PLATFORMS = ("tpu", "cpu")
_DELETE = "the slices, on success and on failure"
_CHECK = "every block against the NumPy reference, and the runtimes against each other"


def creation_text(request: SliceRequest, wait: float) -> list[str]:
    """What creating slices takes, one step on each line.

    Args:
        wait: Seconds to wait for them.
    """
    slices = request.topology
    per = "" if request.slice_count == 1 else f" x {request.slice_count} slices"
    count = counted(slices.hosts, "VM")
    valid = "" if request.valid_for is None else f", at most {request.valid_for / HOUR:g} h queued"
    return [
        f"slices     {request.accelerator_type}{per}: {counted(slices.chips, 'chip')}, {count} "
        f"with {counted(slices.chips_per_host, 'chip')} each",
        f"create     {request.path}",
        f"           {request.runtime_version}, {request.provisioning}{valid}",
        f"           nodes {', '.join(request.nodes)}",
        f"wait       until ACTIVE, at most {wait:.0f} s",
    ]


def plan_text(job: Job) -> str:
    """The steps of a job, one on each line."""
    request, settings = job.request, job.settings
    count = counted(request.topology.hosts, "VM")
    program = shlex.join(job.program) if job.program else f"sharded matmul, size {job.size}"
    install = settings.python or "Python, JAX and libtpu, verified by hash"
    if "reactant" in job.backends and not settings.python:
        install += "; Julia and Reactant"
    end = "keep       the slices" if settings.kept else f"delete     {_DELETE}"
    lines = [
        *creation_text(request, settings.wait),
        f"reach      {count} with {settings.ssh.method}",
        f"copy       pyreactant and {program}" if job.program else "copy       pyreactant",
        f"install    {install}",
        *(f"run        {program} on {backend}, {count}, supervised" for backend in job.backends),
        f"fetch      logs and results to {job.out}",
        end,
        *([] if job.program else [f"check      {_CHECK}"]),
        f"at most    {job.most()}; then the slices delete themselves",
    ]
    return "\n".join(lines)
