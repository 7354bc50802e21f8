"""The processes that a setup starts: what they get, and what they answer."""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._errors import InvalidArgumentError, RequirementError
from .._system.child import started

SCRIPT = Path(__file__).with_name("_juliapkg.py")
IMPORT_FOLDER = Path(__file__).resolve().parents[2]
"""The folder that this package is imported from; juliapkg must find our juliapkg.json there."""

_GUARD = Path(__file__).with_name("_guard.py")
_KEPT_OUT = ("jax", "jaxlib", "tensorflow")


@dataclass(frozen=True)
class JuliapkgState:
    """What juliapkg would use.

    Attributes:
        project: The Julia project that it would take.
        files: The digest of each juliapkg.json that it would follow.
    """

    project: Path
    files: Mapping[str, str]


def ask_juliapkg() -> JuliapkgState:
    """Ask juliapkg, in a process of its own, what it would use.

    Raises:
        RequirementError: juliapkg or juliacall is not installed.
        InvalidArgumentError: juliapkg refuses its own settings.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "answer.json")
        argv = [sys.executable, "-P", str(SCRIPT), str(file), str(IMPORT_FOLDER), "look"]
        ran = subprocess.run(  # noqa: S603 - a script of this package
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        answer = json.loads(file.read_bytes()) if file.exists() else {}
    if "error" in answer:
        raise InvalidArgumentError(f"juliapkg refuses its settings: {answer['message']}")
    if not answer:
        raise RequirementError(f"juliapkg must be importable, but is not:\n{ran.stderr.strip()}")
    if "absent" in answer:
        absent = " and no ".join(answer["absent"])
        raise RequirementError(
            f"{sys.prefix} must have the packages for Julia, but has no {absent}; "
            "run: python -m pip install 'pyreactant[reactant]'"
        )
    return JuliapkgState(Path(answer["project"]), answer["files"])


def julia_version(executable: str) -> str | None:
    """The version that a Julia reports; None if the executable does not answer as Julia does."""
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
    match = re.match(r"julia version (\d+\.\d+\.\S+)", ran.stdout)
    return match[1] if match else None


def child_environment(folder: Path, changes: Mapping[str, str | None]) -> dict[str, str]:
    """The environment of a child process that starts Julia.

    Args:
        folder: A folder for modules that stand in for packages to keep out of Julia's process.
        changes: Variables to set; None unsets one.
    """
    without = folder / "without"
    without.mkdir(parents=True, exist_ok=True)
    for name in _KEPT_OUT:
        # Reactant imports them into its own process if it can: two copies of XLA crash there.
        text = f'raise ImportError("pyreactant keeps {name} out of the process of Julia")\n'
        (without / f"{name}.py").write_text(text)
    path = os.pathsep.join(filter(None, (str(without), os.environ.get("PYTHONPATH"))))
    values: dict[str, Any] = {
        "JULIA_CONDAPKG_BACKEND": "Null",  # PythonCall uses this Python
        **os.environ,
        "JULIA_PYTHONCALL_EXE": sys.executable,
        "PYTHONPATH": path,
        "LD_PRELOAD": None,  # a preloaded allocator crashes Julia and XLA
        **changes,
    }
    return {key: value for key, value in values.items() if value is not None}


def run_logged(
    argv: Sequence[str], environment: Mapping[str, str], log: Path, on_line: Callable[[str], None]
) -> int:
    """Run a command that may take minutes, and append its output to a log.

    The command ends, with everything that it started, when this process ends.

    Args:
        argv: The command.
        environment: All of its environment.
        log: The file for its output.
        on_line: Called with each line that it prints.

    Returns:
        The exit code as shells count it: 128 plus the signal for a command that was killed.
    """
    guarded = [sys.executable, "-I", "-S", str(_GUARD), *argv]
    with log.open("ab") as file, started(guarded, environment, stderr=subprocess.STDOUT) as child:
        assert child.stdout is not None
        for raw in child.stdout:
            file.write(raw)
            file.flush()
            text = raw.decode(errors="replace").rstrip().rpartition("\r")[2]
            if text:
                on_line(text)
        # Not reaped yet, so its process group is still its own when the block kills the group.
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    return child.returncode
