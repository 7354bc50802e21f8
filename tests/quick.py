"""Forks in place of new Pythons, also for what a process of the tests starts.

pytest's processes replace `subprocess.Popen` by `Popen` below. So does a fork of a template that
has the variable `VARIABLE` in its environment.

A supervisor needs its programs as its own children, and a setup its guards. It forks a *zygote*
before it does anything else (`tests.template.below`), which has one thread and the same modules.
The zygote forks twice: the first fork ends at once, and the kernel gives the second one to the
supervisor.
"""

import ctypes
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from execnet.gateway_io import popen_bootstrapline

from tests import processes
from tests.processes import FOR_SETUP, LIGHT, REPOSITORY, WITH_GOOGLE, WITH_JAX, WITH_RAY

VARIABLE = "FORKS_OF_THE_TESTS"

SETUP = REPOSITORY / "pyreactant" / "julia" / "setup"

WORKER = ["-u", "-c", popen_bootstrapline]
"""How pytest-xdist starts its workers."""

PROGRAM = ["-m", "pyreactant.process.supervised"]
SUPERVISOR = ["-m", "pyreactant", "run"]
KEEPER = ["-m", "pyreactant.runs.keeper"]
DRIVER = ["-P", "-m", "tests.setup.driver"]
JULIAPKG = ["-P", str(SETUP / "juliapkg_child.py")]
GUARD = ["-I", "-S", str(SETUP / "guard.py")]

FORKED = {
    "pyreactant": LIGHT,
    "pyreactant matmul": WITH_JAX,
    "pyreactant run": WITH_JAX,  # what its programs find imported
    "pyreactant.arrays.lowering.enzyme": WITH_JAX,
    "pyreactant.check.gradients_child": WITH_JAX,
    "pyreactant.doctor.runtimes": WITH_JAX,
    "pyreactant.runs.keeper": WITH_JAX,
    "pyreactant.runs.places.ray.driver": WITH_RAY,
    "pyreactant.fit.compiler.compile_child": WITH_JAX,
    JULIAPKG[1]: FOR_SETUP,
    "tests.setup.driver": FOR_SETUP,
}
"""What is forked, and what it finds imported: a script, or a module and, if need be, its first
argument."""

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER

zygote: socket.socket | None = None
"""In a supervisor, the connection to its zygote."""

forked = False
"""Whether this is a fork. What ends a run would also end a template that a fork has started."""

_lock = threading.Lock()


workers: "list[Popen]" = []
"""In pytest's main process, those of pytest-xdist."""


class Popen(processes.Popen):
    """`subprocess.Popen`, which forks the commands of `FORKED`."""

    def __init__(self, argv: Any, **options: Any) -> None:
        if [*argv[1:3]] == KEEPER and VARIABLE in os.environ:
            options["env"] = {**_of_forks(), **options["env"]}
        super().__init__(argv, **{"imported": None, **options})
        if [*argv[1:]] == WORKER:
            workers.append(self)

    def imported(self, words: Sequence[str]) -> Sequence[str] | None:
        """By `FORKED`, if nobody said it."""
        if self._modules is not None:
            return self._modules
        if [*words[:2]] == PROGRAM:
            return (WITH_JAX if "jax" in sys.modules else LIGHT) if zygote else None
        if [*words[:3]] == GUARD:
            return FOR_SETUP if zygote else None
        if [*words] == WORKER:
            return WITH_JAX
        names = [word for word in words[:4] if word not in ("-P", "-m")]
        found = FORKED.get(" ".join(names[:2]), FORKED.get(" ".join(names[:1])))
        if found is None or processes.SHARED not in os.environ:
            return None
        if [*words[:2]] == KEEPER and _target(Path(words[2])) == "tpu":
            found = WITH_GOOGLE
        may_start = not forked and found is not WITH_RAY
        return found if may_start or processes.started(found) else None

    def _fork(self, given: Mapping[str, Any]) -> Callable[..., Any] | None:
        found = super()._fork(given)
        words = [*given["args"][1:4]]
        is_own = words == GUARD or words[:2] == PROGRAM
        return _fork_below if found and is_own else found  # a template's fork is no child


def _target(job: Path) -> str:
    """The kind of target that a job runs on."""
    kind: str = json.loads((job / "job.json").read_bytes())["target"]
    return kind


def _of_forks() -> dict[str, str]:
    """The variables by which a process is forked. A job takes only those of a login."""
    ours = (VARIABLE, processes.SHARED)
    return {
        name: value
        for name, value in os.environ.items()
        if name in ours
        or (name.startswith(processes.READ_AT_THE_START) and name not in processes.SET_IN_A_FORK)
    }


def _fork_below(request: Mapping[str, Any], descriptors: Sequence[int]) -> tuple[int, None]:
    """Let the zygote fork a child of this supervisor; its number."""
    assert zygote is not None
    ctypes.CDLL(None).prctl(_SUBREAPER, 1)
    with _lock:
        socket.send_fds(zygote, [json.dumps(request).encode()], descriptors)
        pid, _ = struct.unpack("ii", zygote.recv(8))
    return pid, None


def start_quickly() -> None:
    """From now on, fork what this process starts, as `FORKED` says."""
    global forked
    forked = True
    subprocess.Popen = Popen  # type: ignore[assignment, misc]


_COMMAND = """#!{python} -IS
import json, os, socket, struct, sys

quick, light = {addresses}
connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
connection.connect(quick if sys.argv[1:2] in (["run"], ["matmul"]) else light)
request = {{
    "python": "{python}",
    "arguments": ["-m", "pyreactant", *sys.argv[1:]],
    "environment": dict(os.environ),
    "folder": os.getcwd(),
    "session": False,
    "kept": [],
}}
socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
connection.recv(8)
os._exit(os.waitstatus_to_exitcode(struct.unpack("ii", connection.recv(8))[1]) & 0xFF)
"""


def install_command(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Write the command ``pyreactant`` of shells into a folder; the environment that finds it.

    It lets a template fork the command, and waits for its end.
    """
    if processes.always_anew:
        return dict(environment)
    templates = [processes.template(modules) for modules in (WITH_JAX, LIGHT)]
    assert all(template.fits(environment) for template in templates)
    command = folder / "pyreactant"
    addresses = [template.address for template in templates]
    command.write_text(_COMMAND.format(python=sys.executable, addresses=addresses))
    command.chmod(0o700)
    path = f"{folder}{os.pathsep}{environment['PATH']}"
    return {**environment, "PATH": path}
