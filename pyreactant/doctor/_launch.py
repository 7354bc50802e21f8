"""Which process of a run this is, and the launchers: Slurm and gcloud."""

import configparser
import re
from pathlib import Path

from ..process_group._environment import LaunchError
from ..process_group._mtls import coordinator_note
from ..process_group._resolve import explain
from ._check import CheckResult
from ._machine import Machine

_TOOLS = ("sinfo", "srun", "sbatch", "scontrol")


def who_am_i(machine: Machine) -> CheckResult:
    """The process group of this process, as `pyreactant explain` shows it."""
    explained = explain(machine.environ)
    decider = explained.decider
    error = decider.error
    if isinstance(error, LaunchError):
        return CheckResult("warn", f"{decider.name}: {error.problem}", error.command)
    if error is not None:
        return CheckResult("warn", f"{decider.name}: {error}", "pyreactant explain")
    group = decider.group
    assert group is not None
    text = f"process {group.process_index} of {group.num_processes}, decided by {group.source}"
    note = coordinator_note(group, machine.environ)
    return CheckResult("pass", "; ".join((text, *decider.notes, *([note] if note else []))))


def slurm(machine: Machine) -> CheckResult:
    """Slurm's commands, and whether its controller answers."""
    present = [name for name in _TOOLS if machine.which(name)]
    job = machine.environ.get("SLURM_JOB_ID")
    if not present:
        if job:
            text = f"inside job {job}, but Slurm's commands are not on PATH"
            return CheckResult("warn", text, 'export PATH="$PATH:/usr/bin:/opt/slurm/bin"')
        return CheckResult("pass", "not installed")
    absent = [name for name in _TOOLS if name not in present]
    if absent:
        text = f"{', '.join(present)} are on PATH, but not {', '.join(absent)}"
        return CheckResult("warn", text, f"ls -l {machine.which(present[0])}")
    ran = machine.run([str(machine.which("scontrol")), "ping"], 5)
    if ran.code != 0 or not re.search(r"\bUP\b", ran.out):
        how = "did not answer within 5 s" if ran.code is None else "does not answer"
        text = f"installed, but its controller {how}"
        return CheckResult(
            "warn", text, "scontrol ping" if job else "sudo systemctl status slurmctld"
        )
    where = f"inside job {job}" if job else "not inside a job"
    return CheckResult("pass", f"its controller answers; {where}")


def gcloud(machine: Machine) -> CheckResult:
    """Whether gcloud is installed and has an account and a project; the account is not shown."""
    path = machine.which("gcloud")
    if path is None:
        return CheckResult("pass", "not installed; only TPU slices on Google Cloud need it")
    version = _version(Path(path).resolve()) or "unknown version"
    account, project = (_setting(machine, name) for name in ("account", "project"))
    if not account:
        return CheckResult("warn", f"{version}, no account is set", "gcloud auth login")
    if not project:
        mend = "gcloud config set project PROJECT"
        return CheckResult("warn", f"{version}, an account but no project is set", mend)
    return CheckResult("pass", f"{version}, an account is set, project {project}")


def _version(executable: Path) -> str | None:
    try:
        return (executable.parent.parent / "VERSION").read_text().strip()
    except OSError:
        return None


def _setting(machine: Machine, name: str) -> str | None:
    """A property of gcloud's [core], from the environment or the active configuration."""
    variable = machine.environ.get(f"CLOUDSDK_CORE_{name.upper()}")
    if variable:
        return variable
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
