"""Environment variables of child processes."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

LAUNCHERS = ("PYREACTANT_", "SLURM_", "OMPI_", "PMI", "PRTE_", "MPI_LOCAL")
"""Prefixes of the variables that make a process one of several of a run."""

TPU = ("TPU_", "MEGASCALE_", "CLOUD_TPU_")
"""Prefixes of the variables that describe this machine's TPU and its slice."""


def without(*prefixes: str, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """A copy of an environment without the variables that begin with one of these prefixes."""
    return {name: value for name, value in environ.items() if not name.startswith(prefixes)}


def import_path(*, current_folder: bool = False) -> str:
    """PYTHONPATH for a child that can import whatever this process can.

    Args:
        current_folder: Whether to append the current folder.
    """
    folders = [*sys.path, ""] if current_folder else sys.path
    return os.pathsep.join(folder or str(Path.cwd()) for folder in folders)
