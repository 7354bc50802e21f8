"""The machine as the checks see it; a test can replace every part of it."""

import importlib.metadata
import os
import resource
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from .._system import facts
from .._system.child import started


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
    return sorted({str(found[4][0]) for found in socket.getaddrinfo(host, None)})


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
        found = importlib.metadata.distributions(name=name, path=list(self.packages))
        return next(iter(found), None)

    def version(self, name: str) -> str | None:
        """The version of an installed Python package; None if it is not installed."""
        found = self.distribution(name)
        return None if found is None else str(found.version)

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


def required_spec(machine: Machine, package: str, other: str, *extras: str) -> str:
    """The versions of another package that a package requires, such as ">=2.0"; "" if none.

    Args:
        machine: The machine on which the package is installed.
        package: The package with the requirements.
        other: The required package.
        extras: The extras of the package to look in; without any, what it always requires.
    """
    return facts.required(_requirement_lines(machine, package), other, *extras)


def requirements(machine: Machine, package: str) -> Iterator[tuple[str, str]]:
    """The packages that a package always requires, each with the versions."""
    return facts.requirements(_requirement_lines(machine, package))


def _requirement_lines(machine: Machine, package: str) -> list[str]:
    found = machine.distribution(package)
    return list(found.requires or ()) if found is not None else []
