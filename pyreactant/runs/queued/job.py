"""Job: what to run on which slices, and its plan as text."""

import enum
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ...arrays.runtimes.known import BACKENDS
from ...base.errors import InvalidArgumentError, argument
from ...base.slices.generations import GIB
from .reach import SshOptions
from .request import Request, cost_of_forgetting


class Phase(enum.Enum):
    """What a launcher does now."""

    QUEUED = "waits for the slices"
    STARTING = "prepares the VMs"
    RUNNING = "runs the program"
    FETCHING = "fetches logs and results; the program has ended"
    DELETING = "deletes the slices"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to run on which slices. Times are in seconds.

    Attributes:
        request: The slices.
        out: Folder for logs, results and report; must not exist.
        program: Arguments of ``pyreactant run``; () for the sharded matmul.
        backends: Runtimes to run, one after the other.
        ssh: How workers are reached.
        copies: Files and folders that the program needs, below the working directory.
        python: Interpreter on the workers that has every requirement; None installs one.
        platform: Platform that the runtimes must use.
        devices: CPU devices of each process if `platform` is "cpu"; otherwise 0.
        size: Side of the matmul's square matrices.
        wait: Limit for the slices to become ACTIVE.
        reach_timeout: Limit for the VMs to accept connections.
        install_timeout: Limit for the installation.
        timeout: Limit for the run of each runtime; None for no limit.
        stall_timeout: Limit between two heartbeats of a program.
        max_restarts: Maximum number of new attempts after a preemption.
        deletion: Limit for the deletion of the slices of each attempt.
        kept: Whether to keep the slices.

    Raises:
        InvalidArgumentError: A value is not allowed.
    """

    request: Request
    out: Path
    program: Sequence[str] = ()
    backends: Sequence[str] = tuple(BACKENDS)
    ssh: SshOptions = field(default_factory=SshOptions)
    copies: Sequence[Path] = ()
    python: str | None = None
    platform: str = "tpu"
    devices: int = 0
    size: int = 4096
    wait: float = 3600.0
    reach_timeout: float = 300.0
    install_timeout: float = 2400.0
    timeout: float | None = None
    stall_timeout: float = 300.0
    max_restarts: int = 0
    deletion: float = 900.0
    kept: bool = False

    def most(self) -> str:
        """What the slices of all attempts cost at most, as text."""
        return cost_of_forgetting(
            self.request.topology, self.request.lifetime, attempts=self.max_restarts + 1
        )

    def __post_init__(self) -> None:
        unknown = [name for name in self.backends if name not in BACKENDS]
        if unknown or not self.backends:
            raise InvalidArgumentError(
                f"unknown backend {unknown[0]!r}; known are: {', '.join(BACKENDS)}"
                if unknown
                else "name at least one backend"
            )
        for name in self.backends:
            if list(self.backends).count(name) > 1:
                raise InvalidArgumentError(f"backend {name!r} is named twice; name it once")
        for name, number, least in (
            ("max_restarts", self.max_restarts, 0),
            ("size", self.size, 1),
            ("devices_per_process", self.devices, 0),
        ):
            if number < least:
                raise InvalidArgumentError(
                    f"{argument(name)} must be {least} or more, got {number}"
                )
        for name in ("wait", "reach_timeout", "install_timeout", "timeout", "stall_timeout"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InvalidArgumentError(
                    f"{argument(name)} must be positive seconds, got {value:g}"
                )
        self._check_platform()

    def _check_platform(self) -> None:
        if self.platform not in _PLATFORMS:
            raise InvalidArgumentError(
                f"{argument('platform')} must be {' or '.join(_PLATFORMS)}, which the VMs of "
                f"slices have, got {self.platform!r}"
            )
        if self.platform == "tpu" and self.devices:
            raise InvalidArgumentError(
                f"{self.devices} devices per process were requested, but on TPU a process has all "
                f"{self.request.topology.devices_per_process} devices of its VM; omit "
                f"{argument('devices_per_process')}, or use {argument('platform', 'cpu')}"
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
    on_tpu = job.platform == "tpu"
    devices = slices.devices if on_tpu else slices.hosts * job.devices
    if not devices:
        return  # the runtime chooses their number
    name = job.request.accelerator_type
    where = name if slices.num_slices == 1 else f"{slices.num_slices} slices of {name}"
    mesh = default_mesh(devices)
    unit = math.lcm(*mesh.shape)
    words = f"the matmul of size {size} does not fit the {devices} devices of {where}"
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
_CHECK = "every block against the NumPy reference, and the runtimes against each other"


def plan_text(job: Job) -> str:
    """The steps of a job, one on each line."""
    request = job.request
    slices = request.topology
    per = "" if request.slice_count == 1 else f" x {request.slice_count} slices"
    count = f"{slices.hosts} {'VM' if slices.hosts == 1 else 'VMs'}"
    program = shlex.join(job.program) if job.program else f"sharded matmul, size {job.size}"
    valid = "" if request.valid_for is None else f", at most {request.valid_for / 3600:g} h queued"
    lines = [
        f"slices     {request.accelerator_type}{per}: {slices.chips} chips, {count} with "
        f"{slices.chips_per_host} chips each",
        f"create     {request.path}",
        f"           {request.runtime_version}, {request.provisioning}{valid}",
        f"           nodes {', '.join(request.nodes)}",
        f"wait       until ACTIVE, at most {job.wait:.0f} s",
        f"reach      {count} with {job.ssh.method}",
        f"copy       pyreactant and {program}" if job.program else "copy       pyreactant",
        f"install    {job.python or 'Python, JAX and libtpu, verified by hash'}"
        + ("; Julia and Reactant" if "reactant" in job.backends and not job.python else ""),
        *(f"run        {program} on {backend}, {count}, supervised" for backend in job.backends),
        f"fetch      logs and results to {job.out}",
        "keep       the slices" if job.kept else "delete     the slices, on success and on failure",
        *([] if job.program else [f"check      {_CHECK}"]),
        f"at most    {job.most()}; then the slices delete themselves",
    ]
    return "\n".join(lines)
