"""What it means when juliapkg or Julia fail: the cause in a sentence, and what to do."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._errors import InvalidArgumentError, PyReactantError, RequirementError

_NETWORK = re.compile(
    r"could not resolve host|name or service not known|temporary failure in name resolution|"
    r"network is unreachable|failed to connect|couldn't connect|connection (refused|timed out)|"
    r"connection reset|RequestError|urlopen error|failed to download|could not download|"
    r"failed to clone|timed? ?out (while|after)|SSL (error|certificate)",
    re.IGNORECASE,
)
_FULL = re.compile(r"no space left|ENOSPC|disk quota exceeded|EDQUOT", re.IGNORECASE)
_READ_ONLY = re.compile(r"read-only file system|EROFS|permission denied|EACCES", re.IGNORECASE)
_LINES = 15


def tail(log: Path, start: int) -> str:
    """The last lines of a log, of those that begin after `start` bytes."""
    with log.open("rb") as file:
        file.seek(start)
        lines = file.read().decode(errors="replace").splitlines()
    return "\n".join(f"  {line}" for line in lines[-_LINES:])


def error_of(
    doing: str, answer: Mapping[str, Any], log: Path, start: int, *, offline: bool, depot: Path
) -> PyReactantError:
    """The error that says why a stage failed.

    Args:
        doing: What was done, as "installing Julia's packages".
        answer: What the child process answered, if it did.
        log: Where the output is.
        start: Where in it this stage's begins.
        offline: Whether the network was to be left alone.
        depot: Where Julia puts packages.
    """
    said = str(answer.get("message", ""))
    with log.open("rb") as file:
        file.seek(start)
        text = said + file.read().decode(errors="replace")
    last = f"\nthe last lines of {log}:\n{tail(log, start)}"
    if "could not find Julia" in said:
        return RequirementError(
            f"Julia must be installed, but is not found{' (--offline installs none)' * offline}; "
            "name one: pyreactant setup --julia EXECUTABLE, or have it installed where there is "
            "network: pyreactant setup --julia 1.11"
        )
    if "empty intersection" in said or "no version of Julia is compatible" in said:
        return InvalidArgumentError(f"no version fits all that ask for one: {said}")
    if _FULL.search(text):
        return RequirementError(
            f"{doing} needs space on the disk, and none is left; free some (several GB are needed "
            f"in {depot}), or name another disk with JULIA_DEPOT_PATH, then run it again{last}"
        )
    if _READ_ONLY.search(text):
        return RequirementError(
            f"{doing} must write to {depot}, or to the project, but cannot; set JULIA_DEPOT_PATH "
            f"to a folder that can be written and that every node sees, then run it again{last}"
        )
    if _NETWORK.search(text):
        return RequirementError(
            f"{doing} needs the network, which does not answer; run it on a machine that has one, "
            "such as a login node (set https_proxy where there is a proxy); or, where all is "
            f"installed already: pyreactant setup --offline{last}"
        )
    return PyReactantError(f"{doing} failed{': ' * bool(said)}{said}; then run it again{last}")


def absent(names: list[str], project: Path, *, offline: bool) -> RequirementError:
    """The error for a project that lacks packages."""
    advice = (
        "run it without --offline where there is network, or name a project that has them"
        if offline
        else "name another project with --project, or remove this one, then run it again"
    )
    lacks = " and ".join(names)
    return RequirementError(
        f"the Julia project {project} must have {lacks}, but does not; {advice}"
    )
