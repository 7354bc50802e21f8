"""Which process this is, and the launcher around it."""

import configparser
import re
from pathlib import Path

from ..process_group._environment import LaunchError
from ..process_group._resolve import explain
from ._check import Found
from ._machine import Machine

_TOOLS = ("sinfo", "srun", "sbatch", "scontrol")


def who_am_i(machine: Machine) -> Found:
    """What `pyreactant explain` says of this process."""
    explained = explain(machine.environ)
    decider = explained.decider
    error = decider.error
    if isinstance(error, LaunchError):
        return Found("warn", f"{decider.name}: {error.problem}", error.command)
    if error is not None:
        return Found("warn", f"{decider.name}: {error}", "pyreactant explain")
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


def gcloud(machine: Machine) -> Found:
    """Whether it is there and knows an account and a project; the account is not shown."""
    path = machine.which("gcloud")
    if path is None:
        return Found("pass", "not here; only TPU slices of Google's cloud need it")
    version = _version(Path(path).resolve()) or "of unknown version"
    account, project = (_setting(machine, name) for name in ("account", "project"))
    if not account:
        return Found("warn", f"{version}, no account is set", "gcloud auth login")
    if not project:
        mend = "gcloud config set project PROJECT"
        return Found("warn", f"{version}, an account but no project is set", mend)
    return Found("pass", f"{version}, an account is set, project {project}")


def _version(executable: Path) -> str | None:
    try:
        return (executable.parent.parent / "VERSION").read_text().strip()
    except OSError:
        return None


def _setting(machine: Machine, name: str) -> str | None:
    """A property of gcloud's [core]: the environment's, else the active configuration's."""
    said = machine.environ.get(f"CLOUDSDK_CORE_{name.upper()}")
    if said:
        return said
    folder = Path(machine.environ.get("CLOUDSDK_CONFIG") or machine.home() / ".config" / "gcloud")
    active = machine.environ.get("CLOUDSDK_ACTIVE_CONFIG_NAME")
    if not active:
        try:
            active = (folder / "active_config").read_text().strip()
        except OSError:
            active = "default"
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(folder / "configurations" / f"config_{active}")
    return settings.get("core", name, fallback=None)
