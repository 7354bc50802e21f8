"""Versions, settings and cores of this process, and the state of its Git repository."""

import contextlib
import hashlib
import os
import platform
import signal
import subprocess
import threading
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


class GitState:
    """Commit and changes of the working directory, found in a thread: git may hang.

    Args:
        folder: The working directory.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._found: dict[str, object] = {}
        self._running: subprocess.Popen[str] | None = None
        self._given_up = False
        self._thread = threading.Thread(target=self._find, daemon=True)
        self._thread.start()

    def result(self, timeout: float = 10.0) -> dict[str, object]:
        """What git says; empty outside a repository, and if git does not answer in time."""
        self._thread.join(timeout)
        self._given_up = True
        if (running := self._running) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
        return self._found

    def _find(self) -> None:
        commit = self._git("rev-parse", "HEAD")
        if commit is None:
            return
        changed = (self._git("status", "--porcelain") or "").splitlines()
        self._found = {"commit": commit.strip(), "changed_files": [x[3:] for x in changed][:50]}

    def _git(self, *arguments: str) -> str | None:
        if self._given_up:
            return None
        try:
            with subprocess.Popen(
                ["git", "-C", str(self._folder), *arguments],  # noqa: S607 - the user's own git
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                errors="replace",
                process_group=0,
            ) as self._running:
                out, _ = self._running.communicate()
                return out if self._running.returncode == 0 else None
        except OSError:
            return None
        finally:
            self._running = None
