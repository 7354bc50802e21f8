"""Which process this is, and the launcher around it."""

import re

from ..process_group._explain import explain
from ..process_group._finding import Trap
from ._check import Found
from ._machine import Machine

_TOOLS = ("sinfo", "srun", "sbatch", "scontrol")


def who_am_i(machine: Machine) -> Found:
    """What `pyreactant explain` says of this process."""
    explained = explain(machine.environ)
    decider = explained.decider
    if decider.trap is not None:
        if isinstance(decider.trap, Trap):
            return Found("warn", f"{decider.name}: {decider.trap.sentence}", decider.trap.line)
        return Found("warn", f"{decider.name}: {decider.trap}", "pyreactant explain")
    group = decider.group
    assert group is not None
    text = f"process {group.process_index} of {group.num_processes}, decided by {group.source}"
    return Found("pass", "; ".join((text, *decider.notes)))


def slurm(machine: Machine) -> Found:
    """Slurm's commands, and whether its controller answers."""
    there = [name for name in _TOOLS if machine.which(name)]
    job = machine.environ.get("SLURM_JOB_ID")
    if not there:
        if job:
            text = f"inside job {job}, but Slurm's commands are not on PATH"
            return Found("warn", text, 'export PATH="$PATH:/usr/bin:/opt/slurm/bin"')
        return Found("pass", "not here")
    absent = [name for name in _TOOLS if name not in there]
    if absent:
        text = f"{', '.join(there)} are on PATH, but not {', '.join(absent)}"
        return Found("warn", text, f"ls -l {machine.which(there[0])}")
    ran = machine.run([str(machine.which("scontrol")), "ping"], 5)
    if ran.code != 0 or not re.search(r"\bUP\b", ran.out):
        how = "did not answer within 5 s" if ran.code is None else "does not answer"
        text = f"installed, but its controller {how}"
        return Found("warn", text, "scontrol ping" if job else "sudo systemctl status slurmctld")
    where = f"inside job {job}" if job else "not inside a job"
    return Found("pass", f"its controller answers; {where}")
