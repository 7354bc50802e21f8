"""The versions of Reactant and of libtpu that pyreactant's Julia code is written for."""

import importlib.metadata
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._errors import RequirementError

REACTANT = "0.2.280"
"""The version whose sources were read. The Julia package uses names that Reactant does not export
(julia/test/internal_names.toml) and any version may change: `juliapkg.json` requires exactly it."""

NIGHTLY = "0.0.45.dev20260728"
"""The nightly build of libtpu that this version of Reactant downloads (src/accelerators/TPU.jl:16)
when the devices start, unless TPU_LIBRARY_PATH names a file."""

LIBTPU = NIGHTLY.partition(".dev")[0]
"""The release of libtpu on PyPI with the same number: another build than the nightly one."""

LIBRARY = "TPU_LIBRARY_PATH"


def is_pinned(version: str) -> bool:
    """Whether a version of Reactant is the one that was read; "0.2.280+standin" is too."""
    return version.partition("+")[0] == REACTANT


def check_reactant(version: str, any_version: bool, project: Path) -> None:
    """Check the version of an installed Reactant.

    Args:
        version: The version.
        any_version: Whether `pyreactant setup --any-version` accepted others for this project.
        project: The Julia project.

    Raises:
        RequirementError: It is another version than the one that was read.
    """
    if not is_pinned(version) and not any_version:
        raise RequirementError(
            f"Reactant must be {REACTANT}, because pyreactant uses names that other versions may "
            f"change, but {project} has {version}; run: pyreactant setup (with network), or accept "
            "every version for this project: pyreactant setup --any-version"
        )


def described_libtpu(environ: Mapping[str, str] = os.environ) -> str:
    """The libtpu that Reactant takes, for reports."""
    path = environ.get(LIBRARY)
    if not path:
        return f"{NIGHTLY} (downloaded by Reactant)"
    version = version_beside(Path(path))
    if version is None:
        return f"unknown ({LIBRARY}={path})"
    return f"{version} (PyPI; Reactant {REACTANT} names the build {NIGHTLY})"


def version_beside(library: Path) -> str | None:
    """The version of the installed package that a libtpu.so belongs to; None if it has none."""
    folder = str(library.parent.parent)
    found: list[Any] = list(importlib.metadata.distributions(name="libtpu", path=[folder]))
    return str(found[0].version) if found else None
