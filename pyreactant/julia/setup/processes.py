"""The processes that a setup starts: what they get, what they answer, and why one failed."""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...base import words
from ...base.child import output_of, started
from ...base.errors import InvalidArgumentError, PyReactantError, RequirementError
from ...base.facts import at_least
from ..place import KEPT_OUT, OLDEST

_JULIAPKG = Path(__file__).with_name("juliapkg_child.py")
_IMPORT_FOLDER = Path(__file__).resolve().parents[3]
"""The folder that this package is imported from; juliapkg must find our juliapkg.json there."""

_GUARD = Path(__file__).with_name("guard.py")


def juliapkg_command(answer: Path, *task: str) -> list[str]:
    """The command that asks juliapkg, and writes what it says into the file `answer`."""
    return [sys.executable, "-P", str(_JULIAPKG), str(answer), str(_IMPORT_FOLDER), *task]


class JuliapkgState(NamedTuple):
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
        ended = output_of(juliapkg_command(file, "look"))
        answer = json.loads(file.read_bytes()) if file.exists() else {}
    if "error" in answer:
        raise InvalidArgumentError(f"juliapkg refuses its settings: {answer['message']}")
    if not answer:
        raise RequirementError(f"juliapkg must be importable, but is not:\n{ended.stderr.strip()}")
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
        ended = output_of([executable, "--version"], timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.match(r"julia version (\d+\.\d+\.\S+)", ended.stdout)
    return match[1] if match else None


def checked_version(executable: str) -> str:
    """The version of a Julia executable, if pyreactant can use it.

    Raises:
        RequirementError: The executable is not Julia, or is too old.
    """
    version = julia_version(executable)
    if version is None:
        raise RequirementError(
            f"{executable} must be Julia, but does not answer --version as Julia does; "
            "name another executable: pyreactant setup --julia EXECUTABLE"
        )
    if not at_least(version, OLDEST):
        raise RequirementError(
            f"Julia must be {OLDEST} or newer, got {version} ({executable}); name a "
            "newer one, or a version for juliapkg to install: pyreactant setup --julia 1.11"
        )
    return version


def child_environment(folder: Path, changes: Mapping[str, str | None]) -> dict[str, str]:
    """The environment of a child process that starts Julia.

    Args:
        folder: A folder for modules that stand in for packages to keep out of Julia's process.
        changes: Variables to set; None unsets one.
    """
    without = folder / "without"
    without.mkdir(parents=True, exist_ok=True)
    for name in KEPT_OUT:
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


_LINES = 15
"""Lines of the log in an error."""


def stage_error(
    activity: str, message: str, output: str, *, log: Path, offline: bool, depot: Path
) -> PyReactantError:
    """The error for a stage that failed, with the reason found in its output.

    Args:
        activity: What the stage does, such as "installing Julia and its packages".
        message: The error that the child process answered, "" if none.
        output: The output of the child process.
        log: The file with the output.
        offline: Whether the network must not be used.
        depot: The folder in which Julia puts packages.
    """
    text, lines = message + output, output.splitlines()[-_LINES:]
    last = "\n".join([f"\nthe last lines of {log}:", *(f"  {line}" for line in lines)])
    if words.finds_no_julia(message):
        return RequirementError(
            f"Julia must be installed, but is not found{' (--offline installs none)' * offline}; "
            "name one: pyreactant setup --julia EXECUTABLE, or install it on a machine with "
            "network: pyreactant setup --julia 1.11"
        )
    if words.fits_no_julia(message):
        return InvalidArgumentError(f"no version of Julia fits all packages: {message}")
    if words.is_disk_full(text):
        return RequirementError(
            f"{activity} needs disk space, but none is left; free some (several GB in {depot}), "
            f"or name a folder on another disk with JULIA_DEPOT_PATH, then run it again{last}"
        )
    if words.is_read_only(text):
        return RequirementError(
            f"{activity} must write to {depot}, or to the project, but cannot; set "
            "JULIA_DEPOT_PATH to a writable folder that every node sees, then run it again"
            f"{last}"
        )
    if words.is_offline(text):
        return RequirementError(
            f"{activity} needs the network, which does not answer; run it on a machine with "
            "network, such as a login node (set https_proxy if there is a proxy); or, if all "
            f"packages are installed: pyreactant setup --offline{last}"
        )
    return PyReactantError(
        f"{activity} failed{': ' * bool(message)}{message}; fix that, then run it again{last}"
    )


def packages_error(names: list[str], project: Path, *, offline: bool) -> RequirementError:
    """The error for a project without some packages."""
    advice = (
        "run it without --offline on a machine with network, or name a project that has them"
        if offline
        else "name another project with --project, or remove this one, then run it again"
    )
    packages = " and ".join(names)
    return RequirementError(
        f"the Julia project {project} must have {packages}, but does not; {advice}"
    )
