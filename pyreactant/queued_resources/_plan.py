"""What a job would do, as text: for people before they pay, and a golden file for tests."""

import shlex
from typing import TYPE_CHECKING

from ._cost import cost_of_forgetting

if TYPE_CHECKING:
    from ._job import Job

_VERDICT = "every block against the oracle, and runtime against runtime"


def plan_text(job: "Job") -> str:
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
