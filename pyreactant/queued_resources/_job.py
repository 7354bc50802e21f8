"""What to run on which slices, and the plan in words."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .._errors import InvalidArgumentError
from .._runtimes.runtime import BACKENDS
from ._reach import Way
from ._request import Request, cost_of_forgetting


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to run on which slices; times are in seconds.

    Attributes:
        request: The slices.
        out: Folder for logs, results and report; must not exist.
        program: For ``pyreactant run``; () for the sharded matmul.
        backends: Runtimes, one after the other.
        way: How workers are reached.
        copies: Files and folders that the program needs, below the working directory.
        python: An interpreter that is on the workers already, with all that is needed; None
            installs one.
        platform: What the runtimes must find.
        devices: CPU devices of each process where `platform` is "cpu"; 0 else.
        size: Of the matmul.
        wait: For the slices to become ACTIVE.
        reach: For their VMs to answer.
        install: For the installation.
        timeout: For each runtime's run; None for none.
        stall: For a program that gives no sign of life to be given up.
        retries: How often to begin again after a preemption.
        kept: Whether the slices are kept.
    """

    request: Request
    out: Path
    program: Sequence[str] = ()
    backends: Sequence[str] = tuple(BACKENDS)
    way: Way = field(default_factory=Way)
    copies: Sequence[Path] = ()
    python: str | None = None
    platform: str = "tpu"
    devices: int = 0
    size: int = 4096
    wait: float = 3600.0
    reach: float = 300.0
    install: float = 2400.0
    timeout: float | None = None
    stall: float = 300.0
    retries: int = 0
    kept: bool = False

    def __post_init__(self) -> None:
        unknown = [name for name in self.backends if name not in BACKENDS]
        if unknown or not self.backends:
            raise InvalidArgumentError(
                f"unknown backend {unknown[0]!r}; known are: {', '.join(BACKENDS)}"
                if unknown
                else "name at least one backend"
            )
        for name, least in (("retries", 0), ("size", 1), ("devices", 0)):
            number = getattr(self, name)
            if number < least:
                raise InvalidArgumentError(f"{name} must be {least} or more, got {number}")
        for name in ("wait", "reach", "install", "timeout", "stall"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InvalidArgumentError(f"{name} must be positive seconds, got {value:g}")


_VERDICT = "every block against the oracle, and runtime against runtime"


def plan_text(job: Job) -> str:
    """The plan, step by step."""
    request = job.request
    slices = request.topology
    per = "" if request.slice_count == 1 else f" x {request.slice_count} slices"
    count = f"{slices.hosts} {'VM' if slices.hosts == 1 else 'VMs'}"
    program = shlex.join(job.program) if job.program else f"sharded matmul, size {job.size}"
    valid = "" if request.valid_for is None else f", given up after {request.valid_for / 3600:g} h"
    lines = [
        f"slices     {request.accelerator_type}{per}: {slices.chips} chips, {count} with "
        f"{slices.chips_per_host} chips each",
        f"create     {request.path}",
        f"           {request.runtime_version}, {request.provisioning}{valid}",
        f"           nodes {', '.join(request.nodes)}",
        f"wait       until ACTIVE, at most {job.wait:.0f} s",
        f"reach      {count} by {job.way.by}",
        f"copy       pyreactant and {program}" if job.program else "copy       pyreactant",
        f"install    {job.python or 'Python, JAX, libtpu by hash'}"
        + ("; Julia and Reactant" if "reactant" in job.backends and not job.python else ""),
        *(f"run        {program} on {backend}, {count}, supervised" for backend in job.backends),
        f"fetch      logs and results to {job.out}",
        *([] if job.program else [f"verdict    {_VERDICT}"]),
        "keep       the slices" if job.kept else "delete     the slices, however it ends",
        f"otherwise  {cost_of_forgetting(slices, request.lifetime)}; then they delete themselves",
    ]
    return "\n".join(lines)
