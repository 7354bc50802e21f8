"""What a process runs with: versions and settings that must be the same on all of a run."""

import hashlib
import os
import platform
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from .. import __version__
from ._cause import Failure, failure
from ._state import ProcessState, names

PACKAGES = ("jax", "jaxlib", "libtpu", "juliacall", "numpy")
SETTINGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "JAX_ENABLE_X64", "JAX_PLATFORMS")

_SHOWN = 8
"""Differences in the message, which every process is told."""


def facts(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Versions and settings of this process; "" where there is none."""
    import importlib.metadata  # 15 ms that a run need not wait for

    found = {"python": platform.python_version(), "pyreactant": __version__}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = ""
    found["julia project"] = _julia_project(environ)
    return found | {name: environ.get(name, "")[:1000] for name in SETTINGS}


def _julia_project(environ: Mapping[str, str]) -> str:
    """A digest of the Julia project's Project.toml and Manifest.toml."""
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


def differences(states: Sequence[ProcessState], now: float) -> Failure | None:
    """The processes whose facts are not those of the most; None where all agree."""
    texts = []
    odd: dict[int, ProcessState] = {}
    for item in dict.fromkeys(key for state in states for key in state.facts):
        values = Counter(state.facts.get(item, "") for state in states)
        if len(values) == 1:
            continue
        usual = values.most_common(1)[0][0]
        for value in values:
            if value != usual:
                those = [s for s in states if s.facts.get(item, "") == value]
                odd.update((s.index, s) for s in those)
                texts.append(
                    f"{names(those)} has {item} {value or 'absent'}, "
                    f"the other {values[usual]} {usual or 'absent'}"
                )
    if not odd:
        return None
    first = odd[min(odd)]
    if len(texts) > _SHOWN:
        texts[_SHOWN:] = [f"and {len(texts) - _SHOWN} more differences"]
    summary = (
        f"the processes run in different environments: {'; '.join(texts)}; install the same on "
        "every machine and set the same, or pass --allow-different-environments"
    )
    return failure("environment", summary, first, now)


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
