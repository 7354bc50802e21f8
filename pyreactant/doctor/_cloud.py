"""gcloud and its settings, read from its files: it is not started, and nothing is asked."""

import configparser
from pathlib import Path

from ._check import Found
from ._machine import Machine


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
