"""What is here before anything is set up: juliapkg, what asks it, Julia, and the environment."""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._errors import InvalidArgumentError, RequirementError

SCRIPT = Path(__file__).with_name("_juliapkg.py")
ABOVE = Path(__file__).resolve().parents[2]
"""Where this package is imported from: juliapkg must look there for juliapkg.json."""

_KEPT_OUT = ("jax", "jaxlib", "tensorflow")


@dataclass(frozen=True)
class Here:
    """What juliapkg says before it does anything.

    Attributes:
        project: The project that it would take.
        files: The digest of each juliapkg.json that it would follow.
    """

    project: Path
    files: Mapping[str, str]


def look() -> Here:
    """Ask juliapkg, in a process of its own.

    Raises:
        RequirementError: juliapkg or juliacall is absent.
        InvalidArgumentError: juliapkg refuses its own settings.
    """
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "answer.json")
        argv = [sys.executable, "-P", str(SCRIPT), str(answer), str(ABOVE), "look"]
        ran = subprocess.run(  # noqa: S603 - a script of ours
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        found = json.loads(answer.read_bytes()) if answer.exists() else {}
    if "error" in found:
        raise InvalidArgumentError(f"juliapkg refuses its settings: {found['message']}")
    if not found:
        raise RequirementError(f"juliapkg must be importable, but is not:\n{ran.stderr.strip()}")
    if "absent" in found:
        raise RequirementError(
            f"{' and '.join(found['absent'])} must be installed in {sys.prefix}, but is not; "
            "run: pip install 'pyreactant[reactant]'"
        )
    return Here(Path(found["project"]), found["files"])


def julia_version(executable: str) -> str | None:
    """The version that a Julia says it has; None where it does not answer as Julia does."""
    try:
        ran = subprocess.run(  # noqa: S603 - the Julia that the user names
            [executable, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    found = re.match(r"julia version (\d+\.\d+\.\S+)", ran.stdout)
    return found[1] if found else None


def environment(folder: Path, changes: Mapping[str, str | None]) -> dict[str, str]:
    """The environment of a child process that starts Julia.

    Args:
        folder: Where stand-ins for what must stay out of Julia's process are put.
        changes: Variables to set; None is to unset.
    """
    without = folder / "without"
    without.mkdir(parents=True, exist_ok=True)
    for name in _KEPT_OUT:
        # Reactant imports them into its own process where it can: two copies of XLA crash there.
        text = f'raise ImportError("pyreactant keeps {name} out of the process of Julia")\n'
        (without / f"{name}.py").write_text(text)
    path = os.pathsep.join(filter(None, (str(without), os.environ.get("PYTHONPATH"))))
    values: dict[str, Any] = {
        "JULIA_CONDAPKG_BACKEND": "Null",  # this Python is the one to use
        **os.environ,
        "JULIA_PYTHONCALL_EXE": sys.executable,
        "PYTHONPATH": path,
        "LD_PRELOAD": None,  # an allocator put under Julia and XLA crashes them
        **changes,
    }
    return {key: value for key, value in values.items() if value is not None}
