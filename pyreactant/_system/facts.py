"""Versions, settings and cores of this process, and the state of its Git repository."""

import hashlib
import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path

from .._version import __version__

PACKAGES = ("jax", "jaxlib", "libtpu", "juliacall", "numpy")
SETTINGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "JAX_ENABLE_X64", "JAX_PLATFORMS")


def facts(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Versions and settings of this process; "" for a package or variable that is absent."""
    found = {"python": platform.python_version(), "pyreactant": __version__}
    for package in PACKAGES:
        found[package] = package_version(package) or ""
    found["julia project"] = _julia_project(environ)
    return found | {name: environ.get(name, "")[:1000] for name in SETTINGS}


def package_version(name: str) -> str | None:
    """Version of an installed Python package, or None."""
    import importlib.metadata  # it takes 15 ms, which most processes need not wait for

    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _julia_project(environ: Mapping[str, str]) -> str:
    """A digest of the Julia project's project, manifest and preferences."""
    folder = environ.get("PYTHON_JULIACALL_PROJECT") or environ.get("JULIA_PROJECT")
    if not folder:
        return ""
    digest = hashlib.sha256()
    for name in ("Project.toml", "Manifest.toml", "LocalPreferences.toml"):
        try:
            digest.update(Path(folder, name).read_bytes())
        except OSError:
            digest.update(b"absent")
    return digest.hexdigest()[:16]


def usable_cores() -> int:
    """Cores that this process may use; only Linux can tell which those are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def git_state(folder: Path) -> dict[str, object]:
    """Commit and changes of the working directory; empty outside a repository."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return {}
    changed = _git(folder, "status", "--porcelain") or ""
    return {"commit": commit.strip(), "changed_files": [x[3:] for x in changed.splitlines()][:50]}


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        ran = subprocess.run(
            ["git", "-C", str(folder), *arguments],  # noqa: S607 - the user's own git
            capture_output=True,
            text=True,
            errors="replace",
            timeout=5,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ran.stdout if ran.returncode == 0 else None
