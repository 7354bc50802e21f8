"""What a check may look at: all of it can be replaced, so that each check can be tested."""

import importlib.metadata
import os
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from .._system import versions


class Ran(NamedTuple):
    """How a command ended: its exit code, None where it did not end in time."""

    code: int | None
    out: str
    err: str


class Disk(NamedTuple):
    """Bytes of a file system."""

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
        probe.connect(("192.0.2.1", 9))  # of documentation (RFC 5737); nothing is sent
        return str(probe.getsockname()[0])


@dataclass(frozen=True, slots=True)
class Machine:
    """This machine as the checks see it.

    Attributes:
        environ: Variables, PATH and HOME among them.
        root: Where its file system begins.
        packages: Folders with installed Python packages.
        python: The interpreter for child processes.
        host: Its own name.
        addresses: Those of a name; raises OSError where it has none.
        own_address: That of its network card; raises OSError where it has none.
        disk: Bytes of the file system that a folder is in.
        open_files: The limit that holds and the one that it can be raised to.
        known: How the commands that were run ended.
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
    known: dict[tuple[str, ...], Ran] = field(default_factory=dict)

    def file(self, path: str) -> Path:
        """A file of the machine, given as an absolute path."""
        return self.root / path.lstrip("/")

    def home(self) -> Path:
        """The user's folder."""
        return Path(self.environ.get("HOME") or Path.home())

    def which(self, name: str) -> str | None:
        """Where an executable is."""
        return shutil.which(name, path=self.environ.get("PATH", os.defpath))

    def distribution(self, name: str) -> importlib.metadata.Distribution | None:
        """An installed Python package."""
        found = importlib.metadata.distributions(name=name, path=list(self.packages))
        return next(iter(found), None)

    def version(self, name: str) -> str | None:
        """Version of an installed Python package."""
        found = self.distribution(name)
        return None if found is None else str(found.version)

    def pip(self, *what: str) -> str:
        """The line that installs packages for this very interpreter."""
        return f"{self.python_word()} -m pip install {shlex.join(what)}"

    def python_word(self) -> str:
        """How to call this interpreter: "python", where that is it."""
        first = self.which("python")
        # Not resolved further: a virtual environment's python is a link to that of all.
        same = first is not None and Path(first).absolute() == Path(self.python).absolute()
        return "python" if same else shlex.quote(self.python)

    def run(self, argv: Sequence[str], seconds: float = 10.0) -> Ran:
        """A command that only looks, run once; ended after so many seconds with all it started."""
        key = tuple(argv)
        if key not in self.known:
            self.known[key] = self._run(argv, seconds)
        return self.known[key]

    def _run(self, argv: Sequence[str], seconds: float) -> Ran:
        process = subprocess.Popen(  # noqa: S603 - what is on the user's PATH
            argv,
            env=dict(self.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=seconds)
            return Ran(process.returncode, out, err)
        except subprocess.TimeoutExpired:
            return Ran(None, "", "")
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()


def wanted(machine: Machine, package: str, other: str, *extras: str) -> str:
    """What a package asks of another, such as ">=2.0" or "==0.0.50.*"; "" where nothing.

    Args:
        machine: Where both are.
        package: Whose requirements.
        other: Of what.
        extras: Those of the package to look in; none means what it always asks for.
    """
    return versions.required(_lines(machine, package), other, *extras)


def requirements(machine: Machine, package: str) -> Iterator[tuple[str, str]]:
    """The packages that a package always asks for, each with the versions."""
    return versions.requirements(_lines(machine, package))


def _lines(machine: Machine, package: str) -> list[str]:
    found = machine.distribution(package)
    return list(found.requires or ()) if found is not None else []
