"""What a check returns, the diagnosis as data without secrets, and the machine as checks see it.

A test can replace every part of the machine.
"""

import importlib.metadata
import os
import re
import resource
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote

from .._version import __version__
from ..base.child import started
from ..base.errors import ExitCode

Status = Literal["pass", "warn", "fail"]

SCHEMA = 1
"""Version of the JSON; incremented when a field changes its meaning or is removed."""


class CheckResult(NamedTuple):
    """The result of one check: a `Check` without its place in the table.

    Attributes:
        status: As in `Check`, or "absent" (fail if it is required, otherwise warn), or "unknown"
            because something that it needs is missing (warn if it is required, otherwise pass).
        found: What is there, in words.
        mend: The command that fixes it; "" if there is none.
    """

    status: Status | Literal["absent", "unknown"]
    found: str
    mend: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """One row.

    Attributes:
        name: What was checked.
        group: The heading of the row.
        status: "pass": nothing to do. "warn": it works or is not required, but may cause problems.
            "fail": it does not work.
        required: Whether nothing works until it passes.
        found: What is there, in words.
        mend: The command that fixes it, or shows more about it; "" if there is none.
    """

    name: str
    group: str
    status: Status
    required: bool
    found: str
    mend: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All rows, in the order of the table.

    Attributes:
        checks: The rows, group by group.
        backend: The runtime that must work; None for any.
        deep: Whether matrices were multiplied.
        seconds: The time that the checks took.
    """

    checks: tuple[Check, ...]
    backend: str | None = None
    deep: bool = False
    seconds: float = 0.0

    @property
    def missing(self) -> tuple[Check, ...]:
        """The required checks that failed."""
        return tuple(c for c in self.checks if c.required and c.status == "fail")

    @property
    def exit_code(self) -> int:
        """The exit code of the command: 3 if a required check failed, otherwise 0."""
        return ExitCode.MISSING if self.missing else ExitCode.DONE

    def count(self, status: Status) -> int:
        """The number of rows with this status."""
        return sum(check.status == status for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        return {
            "schema": SCHEMA,
            "pyreactant": __version__,
            "backend": self.backend,
            "deep": self.deep,
            "exit_code": self.exit_code,
            "missing": [check.name for check in self.missing],
            "counts": {s: self.count(s) for s in ("pass", "warn", "fail")},
            "seconds": round(self.seconds, 3),
            "checks": [check.to_dict() for check in self.checks],
        }


_SECRET = re.compile(
    r"(?<!no)_proxy$|token|secret|passw|credential|api_?key|private_?key", re.IGNORECASE
)
_IN_ADDRESS = re.compile(r"(\w+://)([^\s/]+)@")


def without_secrets(text: str, environ: Mapping[str, str]) -> str:
    """The text without the values of secret variables and without the users in addresses.

    Args:
        text: The text to print.
        environ: Environment variables; those with names such as X_TOKEN are secret.
    """
    values = {v for n, v in environ.items() if _SECRET.search(n)}
    users = {user for value in environ.values() for _, user in _IN_ADDRESS.findall(value)}
    users |= {value.rpartition("@")[0].rpartition("://")[2] for value in values}
    users |= {unquote(user) for user in users}
    values |= users | {user.partition(":")[2] for user in users}
    values = {value for value in values if len(value) > 3}  # shorter values are parts of many words
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, "(hidden)")
    return _IN_ADDRESS.sub(r"\1(hidden)@", text)


class CommandResult(NamedTuple):
    """The exit code of a command, None if it did not end in time, and what it printed."""

    code: int | None
    out: str
    err: str


class Disk(NamedTuple):
    """The size of a file system and its free space, in bytes."""

    total: int
    free: int


def _open_files() -> tuple[int, int]:
    return resource.getrlimit(resource.RLIMIT_NOFILE)


def _disk(folder: Path) -> Disk:
    total, _, free = shutil.disk_usage(folder)
    return Disk(total, free)


def _addresses(host: str) -> list[str]:
    return sorted({str(info[4][0]) for info in socket.getaddrinfo(host, None)})


def _own_address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # an address for documentation (RFC 5737); nothing is sent
        return str(probe.getsockname()[0])


@dataclass(frozen=True, slots=True)
class Machine:
    """This machine as the checks see it.

    Attributes:
        environ: Environment variables, with PATH and HOME.
        root: The root of its file system.
        packages: Folders with installed Python packages.
        python: The interpreter for child processes.
        host: Its host name.
        addresses: Resolves a host name; raises OSError if it does not resolve.
        own_address: Returns the address of its network card; raises OSError if there is none.
        disk: Returns the size and free space of a folder's file system.
        open_files: Returns the soft and the hard limit of open files.
        results: The results of the commands that were run.
    """

    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    root: Path = Path("/")
    packages: Sequence[str] = field(default_factory=lambda: list(sys.path))
    python: str = sys.executable
    host: str = field(default_factory=socket.gethostname)
    addresses: Callable[[str], Sequence[str]] = _addresses
    own_address: Callable[[], str] = _own_address
    disk: Callable[[Path], Disk] = _disk
    open_files: Callable[[], tuple[int, int]] = _open_files
    results: dict[tuple[str, ...], CommandResult] = field(default_factory=dict)

    def file(self, path: str) -> Path:
        """A file of the machine, given as an absolute path."""
        return self.root / path.lstrip("/")

    def home(self) -> Path:
        """The user's home folder."""
        return Path(self.environ.get("HOME") or Path.home())

    def which(self, name: str) -> str | None:
        """The path of an executable on PATH; None if there is none."""
        return shutil.which(name, path=self.environ.get("PATH", os.defpath))

    def distribution(self, name: str) -> importlib.metadata.Distribution | None:
        """An installed Python package; None if it is not installed."""
        distributions = importlib.metadata.distributions(name=name, path=list(self.packages))
        return next(iter(distributions), None)

    def version(self, name: str) -> str | None:
        """The version of an installed Python package; None if it is not installed."""
        distribution = self.distribution(name)
        return None if distribution is None else str(distribution.version)

    def requirements(self, name: str) -> list[str]:
        """The Requires-Dist lines of an installed package; none if it is not installed."""
        distribution = self.distribution(name)
        return list(distribution.requires or ()) if distribution is not None else []

    def pip(self, *packages: str) -> str:
        """The command that installs packages for this interpreter."""
        return f"{self.python_word()} -m pip install {shlex.join(packages)}"

    def python_word(self) -> str:
        """The command of this interpreter: "python" if PATH leads to it, otherwise its path."""
        first = self.which("python")
        # Links are not resolved: a virtual environment's python is a link to the system's python.
        same = first is not None and Path(first).absolute() == Path(self.python).absolute()
        return "python" if same else shlex.quote(self.python)

    def run(self, argv: Sequence[str], seconds: float = 10.0) -> CommandResult:
        """Run a command that changes nothing, once; it is killed after so many seconds."""
        key = tuple(argv)
        if key not in self.results:
            self.results[key] = self._run(argv, seconds)
        return self.results[key]

    def _run(self, argv: Sequence[str], seconds: float) -> CommandResult:
        with started(argv, self.environ, stdin=subprocess.DEVNULL) as child:
            try:
                out, err = child.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                return CommandResult(None, "", "")
        return CommandResult(
            child.returncode, out.decode(errors="replace"), err.decode(errors="replace")
        )
