"""Start Python processes as forks of one that has imported pyreactant, jax and the like.

They are processes of their own, with their own session, environment, streams, signals and exit
code, and each takes a quarter of a second less, with jax a second. What differs from a new Python:
/proc shows the command line and environment of the template, and all processes of a run of the
tests share a hash seed. A process whose environment changes what is read when Python or jax starts
is a new Python. `tests.quick` also forks what such processes start.
"""

import atexit
import ctypes
import fcntl
import hashlib
import importlib.util
import inspect
import json
import os
import platform
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
OF_A_RUN = (
    "PYREACTANT_",
    "JAX_",
    "PJRT_",
    "XLA_",
    "SLURM_",
    "OMPI_",
    "PMI",
    "MPI_LOCAL",
    "TPU_",
    "MEGASCALE_",
    "GCE_METADATA_",
)
"""How variables begin that a launcher or a user sets for a run."""

LIGHT = (
    "numpy",
    "typer.main",
    *(["typer._adapters"] if importlib.util.find_spec("typer._adapters") else []),
    "rich.console",
    "rich.progress",
    "email.parser",  # importlib.metadata imports it late
    "importlib.metadata",
    "platformdirs",
    "pyreactant.cli.app",
    "pyreactant.check.run",
    "pyreactant.runs.keeper",
    "pyreactant.runs.job",
    "pyreactant.runs.supervisor.supervisor",
    "pyreactant.base.slices.topology",
)
"""For commands that leave the work to other processes, and for all that must not import jax.

Importing them reads no settings of a run."""
_JAXLIB = importlib.util.find_spec("jaxlib")
_MHLO = [
    "jaxlib.mlir.dialects.mhlo"
    for folder in (_JAXLIB and _JAXLIB.submodule_search_locations) or ()
    if Path(folder, "mlir", "dialects", "mhlo.py").exists()  # not in every version
]
WITH_JAX = (
    *LIGHT,
    "jax",
    "jax.numpy",
    "jax.experimental.multihost_utils",
    "jax.experimental.topologies",
    *_MHLO,
    "encodings.idna",  # for names of hosts
    "pytest",
    "pyreactant.check.product.report",
)
"""For programs: jax is imported, with what it imports late, no backend is started, and the runtime
is not loaded: a test may hide jax from it."""

WITH_GOOGLE = (*LIGHT, "google.cloud.tpu_v2", "grpc", "requests")
"""For launchers of Cloud TPU jobs."""

WITH_RAY = (*LIGHT, "ray", "ray.scripts.scripts")
"""For what talks to a Ray cluster; tests.ray.cluster starts this template."""

_JULIAPKG = ("filelock", "semver", "ssl", "tarfile", "tomlkit", "urllib.request", "zipfile")
FOR_SETUP = (*LIGHT, *_JULIAPKG)
"""For `pyreactant setup`. juliapkg reads its settings when it is imported, so only what it imports
is there."""

READ_AT_THE_START = (
    "PYTHON",
    "LC_",
    "LANG",
    "TZ",
    "LD_",
    "OPENBLAS_",
    "OMP_",
    "MKL_",
    "NPY_",
    "GRPC_",
)
READ_BY_IMPORTS = {"jax": ("JAX_FORCE_TPU_INIT",), "ray": ("RAY_",)}
"""By module. A fork reads JAX's settings again, and libtpu its own when it is loaded."""

SET_IN_A_FORK = (
    "PYTHONPATH",
    "PYTHONUNBUFFERED",
    "RAY_ADDRESS",
    "RAY_CLIENT_MODE",  # importing Ray sets it, in a template too
    "RAY_LOG_TO_DRIVER",  # we give it to Ray as argument
)
"""What a fork obeys although it begins like what is read once."""


def take_longer_turns(milliseconds: int = 50) -> None:
    """Ask Linux 6.12 or newer for longer time slices, for this process and those that it starts.

    By default processes that wait for a core take turns of 3 ms. Six workers' processes then evict
    each other's caches so often that the suite takes 5 % to 8 % more processor time. An older
    kernel ignores the request.
    """
    number = {"x86_64": 314, "aarch64": 274}.get(platform.machine())  # of sched_setattr(2)
    if sys.platform != "linux" or number is None:
        return
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = struct.pack("IIQiIQQQ", 48, os.SCHED_OTHER, 0, nice, 0, milliseconds * 10**6, 0, 0)
    ctypes.CDLL(None).syscall(number, 0, attributes, 0)


SHARED = "TEMPLATES_OF_THE_TESTS"
"""Variable with the folder of the templates, which end with the process that has set it."""


def share() -> None:
    """Let the processes that this one starts use its templates: pytest-xdist's workers do.

    Where another process shares its own with this one, those are used.
    """
    if SHARED not in os.environ:
        folder = tempfile.mkdtemp(prefix=f"pyreactant-templates-{os.getpid()}-")
        os.environ[SHARED] = folder
        atexit.register(shutil.rmtree, folder, ignore_errors=True)


class Template:
    """A process of tests.template, and the environment with which it started.

    Args:
        modules: What it imports.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        share()
        folder = Path(os.environ[SHARED])
        names = [names for module, names in READ_BY_IMPORTS.items() if module in modules]
        self.read = sum(names, READ_AT_THE_START)
        name = _name(modules)
        self.address = str(folder / name)
        described = folder / f"{name}.json"
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not described.exists():
                described.write_text(
                    json.dumps(self._start(modules, int(folder.name.split("-")[2])))
                )
        self.environment: dict[str, str] = json.loads(described.read_text())

    def _start(self, modules: Sequence[str], tests: int) -> dict[str, str]:
        """Start it for all processes of the tests; its environment."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith(OF_A_RUN)}
        environment |= {"PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1"}
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(self.address)
            listener.listen(128)  # connections wait while it imports
            number = str(listener.fileno())
            with Path(f"{self.address}.log").open("wb") as log:  # it outlives this process
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "tests.template", number, str(tests), *modules],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    pass_fds=[listener.fileno()],
                )
        return environment

    def fits(self, environment: Mapping[str, str]) -> bool:
        """Whether nothing differs that was read when the template started."""
        return all(
            self.environment.get(name) == environment.get(name)
            for name in {*self.environment, *environment} - {*SET_IN_A_FORK}
            if name.startswith(self.read) and not name.startswith("PYTHON_JULIA")
        )

    def start(
        self, request: Mapping[str, Any], descriptors: Sequence[int]
    ) -> tuple[int, socket.socket | None]:
        """A new process's number, and the connection that will have its status."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.connect(self.address)
        except ConnectionRefusedError:
            log = Path(f"{self.address}.log").read_text()
            raise RuntimeError(f"the template has ended: {log}") from None
        socket.send_fds(connection, [json.dumps(request).encode()], descriptors)
        pid, _ = struct.unpack("ii", connection.recv(8))
        return pid, connection


_templates: dict[Sequence[str], Template] = {}
_lock = threading.Lock()


def template(modules: Sequence[str]) -> Template:
    """The template that has imported these modules; it is started if there is none."""
    with _lock:
        if modules not in _templates:
            _templates[modules] = Template(modules)
        return _templates[modules]


def started(modules: Sequence[str]) -> bool:
    """Whether there is a template that has imported these modules."""
    return Path(os.environ[SHARED], f"{_name(modules)}.json").exists()


def _name(modules: Sequence[str]) -> str:
    return hashlib.sha256(" ".join(modules).encode()).hexdigest()[:16]


always_anew = not hasattr(os, "pidfd_open")
"""Whether every process is a new Python; so where the kernel is not Linux, and with Julia."""


class Popen(subprocess.Popen[Any]):
    """`subprocess.Popen` for ``[sys.executable, ...]``.

    Args:
        argv: The command.
        imported: The modules that it finds imported.
        options: Of `subprocess.Popen`.
    """

    def __init__(
        self, argv: Sequence[str], *, imported: Sequence[str] = LIGHT, **options: Any
    ) -> None:
        self._status: socket.socket | None = None  # the connection about a forked process
        self._ended: tuple[int, int] | None = None  # what it said: the process and its status
        self._modules = imported
        super().__init__(argv, **options)

    def _execute_child(self, *arguments: Any) -> None:
        here: Any = super()._execute_child  # type: ignore[misc]
        given = dict(inspect.signature(here).bind(*arguments).arguments)
        if given["env"] is None:
            given["env"] = os.environ
        start = self._fork(given)
        if start is None:
            here(*arguments)
            return
        sys.audit(
            "subprocess.Popen", given["executable"], given["args"], given["cwd"], given["env"]
        )
        streams = [given["p2cread"], given["c2pwrite"], given["errwrite"]]
        kept = list(given["pass_fds"])
        self.pid, self._status = start(
            {
                "python": given["args"][0],
                "arguments": [os.fspath(word) for word in given["args"][1:]],
                "environment": dict(given["env"]),
                "folder": os.path.abspath(given["cwd"] or "."),
                "session": given["start_new_session"],
                "kept": kept,
            },
            [number if stream == -1 else stream for number, stream in enumerate(streams)] + kept,
        )
        self._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(given[name] for name in pipes))

    def _fork(self, given: Mapping[str, Any]) -> Callable[..., Any] | None:
        """What forks the process; None where a new Python is needed."""
        argv = given["args"]
        special = any(given[name] for name in ("executable", "preexec_fn", "shell"))
        if always_anew or special or isinstance(argv, str) or not _is_this_python(argv[0]):
            return None
        words = [os.fspath(word) for word in argv[1:]] or ["-"]
        if words[0][0] == "-" and words[0] not in ("-m", "-c", "-P", "-u", "-I"):
            return None
        modules = self.imported(words)
        if modules is None:
            return None
        found = template(modules)
        return found.start if found.fits(given["env"]) else None

    def imported(self, words: Sequence[str]) -> Sequence[str] | None:
        """The modules that Python finds imported with these arguments; None for a new Python."""
        return self._modules

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._status is None:
            found: tuple[int, int] = super()._try_wait(wait_flags)  # type: ignore[misc]
            return found
        if self._ended is not None:
            return self._ended
        if self._status.fileno() < 0:  # a garbage collector closed it first, and kept this Popen
            self._ended = self.pid, 0
            return self._ended
        if wait_flags and not select.select([self._status], [], [], 0)[0]:
            return 0, 0
        said = self._status.recv(8)
        self._status.close()
        if len(said) < 8:
            self._ended = self.pid, signal.SIGKILL  # each later Popen asks again
            raise RuntimeError("the process that forks for tests has ended before its forks")
        self._ended = struct.unpack("ii", said)
        return self._ended

    def _internal_poll(self, *arguments: Any, **options: Any) -> int | None:
        if self._status is None:
            code: int | None = super()._internal_poll(*arguments, **options)  # type: ignore[misc]
            return code
        if self.returncode is None:
            pid, status = self._try_wait(os.WNOHANG)
            if pid:
                self._handle_exitstatus(status)
        return self.returncode


def _is_this_python(python: str | os.PathLike[str]) -> bool:
    """Whether a command is the Python of the tests, or of a virtual environment made from it."""
    if python == sys.executable:
        return True
    settings = Path(python).parent.parent / "pyvenv.cfg"
    return settings.exists() and os.path.samefile(python, sys.executable)


def run(
    argv: Sequence[str],
    *,
    imported: Sequence[str] = LIGHT,
    input: str | None = None,
    timeout: float = 120,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """`subprocess.run` with text in and out, for ``[sys.executable, ...]``."""
    stdin = subprocess.DEVNULL if input is None else subprocess.PIPE
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": stdin}
    with Popen(argv, imported=imported, text=True, **pipes | options) as process:
        try:
            out, err = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(argv, process.returncode, out, err)
