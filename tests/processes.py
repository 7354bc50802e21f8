"""Start Python processes as forks of one that has imported pyreactant, jax and the like.

They are processes of their own, with their own session, environment, streams, signals and exit
code, and each takes a quarter of a second less, with jax a second. What differs from a new Python:
/proc shows the command line and environment of the template, and all processes of one worker share
a hash seed. A process whose environment changes what is read when Python or jax starts is a new
Python.
"""

import atexit
import importlib.util
import inspect
import json
import os
import select
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
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
    "importlib.metadata",
    "platformdirs",
    "pyreactant.cli._main",
    "pyreactant.crosscheck._run",
    "pyreactant.jobs._keeper",
    "pyreactant.jobs._job",
    "pyreactant.launch._supervisor",
    "pyreactant.tpu._topology",
)
"""For commands that leave the work to other processes, and for all that must not import jax.

Importing them reads no settings of a run."""
WITH_JAX = (
    *LIGHT,
    "jax",
    "jax.numpy",
    "jax.experimental.topologies",
    "pyreactant._matmul.report",
)
"""For programs: jax is imported, no backend is started, and the runtime is not loaded: a test may
hide jax from it."""

WITH_GOOGLE = (*LIGHT, "google.cloud.tpu_v2", "grpc", "requests")
"""For launchers of Cloud TPU jobs."""

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
READ_BY_JAX = ("JAX_", "TPU_", "LIBTPU_", "CLOUD_TPU_", "TF_CPP_")


class Template:
    """A process of tests.template, and the environment with which it started.

    Args:
        modules: What it imports.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        self.read = READ_AT_THE_START + (READ_BY_JAX if "jax" in modules else ())
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(OF_A_RUN)}
        self.environment |= {"PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1"}
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.template", str(theirs.fileno()), *modules],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self.control = ours
        atexit.register(self.close)

    def fits(self, environment: Mapping[str, str]) -> bool:
        """Whether nothing differs that was read when the template started."""
        return all(
            self.environment.get(name) == environment.get(name)
            for name in {*self.environment, *environment}
            if name.startswith(self.read)
        )

    def start(self, request: Mapping[str, Any], streams: Sequence[int]) -> tuple[int, int]:
        """A new process's number, and the pipe that will have its status."""
        reader, writer = os.pipe()
        try:
            socket.send_fds(self.control, [json.dumps(request).encode()], [*streams, writer])
        finally:
            os.close(writer)
        pid, _ = struct.unpack("ii", os.read(reader, 8))
        return pid, reader

    def close(self) -> None:
        """End it; what it has forked goes on."""
        self.control.close()
        self.process.wait(20)


_templates: dict[Sequence[str], Template] = {}
_lock = threading.Lock()
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
        self._status: int | None = None  # the pipe of a forked process
        self._modules = imported
        super().__init__(argv, **options)

    def _execute_child(self, *arguments: Any) -> None:
        here: Any = super()._execute_child  # type: ignore[misc]
        given = inspect.signature(here).bind(*arguments).arguments
        template = self._template(given)
        if template is None:
            here(*arguments)
            return
        streams = [given["p2cread"], given["c2pwrite"], given["errwrite"]]
        self.pid, self._status = template.start(
            {
                "arguments": [os.fspath(word) for word in given["args"][1:]],
                "environment": dict(given["env"]),
                "folder": os.path.abspath(given["cwd"] or "."),
                "session": given["start_new_session"],
            },
            [number if stream == -1 else stream for number, stream in enumerate(streams)],
        )
        self._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(given[name] for name in pipes))

    def _template(self, given: Mapping[str, Any]) -> Template | None:
        """The one to fork; None where a new Python is needed."""
        argv, environment = given["args"], given["env"]
        special = any(given[name] for name in ("executable", "preexec_fn", "pass_fds", "shell"))
        option = str(argv[1]) if len(argv) > 1 else "-"
        python = argv[0] == sys.executable and (option in ("-m", "-c") or option[0] != "-")
        if always_anew or special or not python or environment is None:
            return None
        with _lock:
            if self._modules not in _templates:
                _templates[self._modules] = Template(self._modules)
            template = _templates[self._modules]
        return template if template.fits(environment) else None

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._status is None:
            found: tuple[int, int] = super()._try_wait(wait_flags)  # type: ignore[misc]
            return found
        if wait_flags and not select.select([self._status], [], [], 0)[0]:
            return 0, 0
        said = os.read(self._status, 8)
        os.close(self._status)
        if len(said) < 8:
            raise RuntimeError("the process that forks for tests has ended before its forks")
        pid, status = struct.unpack("ii", said)
        return pid, status

    def _internal_poll(self, *arguments: Any, **options: Any) -> int | None:
        if self._status is None:
            code: int | None = super()._internal_poll(*arguments, **options)  # type: ignore[misc]
            return code
        if self.returncode is None:
            pid, status = self._try_wait(os.WNOHANG)
            if pid:
                self._handle_exitstatus(status)
        return self.returncode


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
