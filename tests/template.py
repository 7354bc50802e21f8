"""A Python process that has imported what others need, and forks for each that is asked for.

Started by tests.processes, never by hand: ``python -m tests.template SOCKET MODULE...``. It has one
thread and no runtime, so that a fork of it is as good as a new process.
"""

import gc
import importlib
import io
import json
import os
import runpy
import select
import socket
import struct
import sys
import types
from pathlib import Path
from typing import Any

set_by_imports: dict[str, str] = {}
"""What importing jax writes into the environment, where nothing is set."""


def serve(control: socket.socket) -> dict[str, Any]:
    """Fork for each request, and report how each process ended; returns in the forked processes.

    A request is JSON with four descriptors: standard input, output, error, and the pipe that takes
    the process's number and its status as `os.waitpid` returns it.
    """
    running: dict[int, tuple[int, int]] = {}  # pidfd -> process, pipe
    while True:
        for ready in select.select([control.fileno(), *running], [], [])[0]:
            if ready != control.fileno():
                pid, pipe = running.pop(ready)
                os.close(ready)
                os.write(pipe, struct.pack("ii", pid, os.waitpid(pid, 0)[1]))
                os.close(pipe)
                continue
            message, descriptors, _, _ = socket.recv_fds(control, 1 << 20, 4)
            if not message:
                os._exit(0)  # the tests have ended
            pid = os.fork()
            if pid == 0:
                request: dict[str, Any] = json.loads(message)
                _become(request, descriptors)
                return request
            running[os.pidfd_open(pid)] = pid, descriptors[3]
            for descriptor in descriptors[:3]:
                os.close(descriptor)


def _become(request: dict[str, Any], descriptors: list[int]) -> None:
    """What the kernel and Python's start do for a new process."""
    if request["session"]:
        os.setsid()
    os.write(descriptors[3], struct.pack("ii", os.getpid(), 0))
    for number in range(3):
        os.dup2(descriptors[number], number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(request["folder"])
    environment = {**set_by_imports, **request["environment"]}
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - as long as the process lives
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), write_through=True)
    sys.stderr = io.TextIOWrapper(
        io.FileIO(2, "w", closefd=False), errors="backslashreplace", write_through=True
    )
    sys.modules["__main__"] = types.ModuleType("__main__")


def run(arguments: list[str]) -> None:
    """``python ARGUMENTS``, for -m, -c and scripts."""
    sys.orig_argv = [sys.executable, *arguments]
    first, *rest = arguments
    if first == "-m":
        sys.argv[:] = ["-m", *rest[1:]]
        sys.path[0] = str(Path.cwd())
        runpy._run_module_as_main(rest[0])
    elif first == "-c":
        sys.argv[:] = ["-c", *rest[1:]]
        sys.path[0] = ""
        code = compile(rest[0], "<string>", "exec")
        exec(code, vars(sys.modules["__main__"]))
    else:
        sys.argv[:] = [first, *rest]
        sys.path[0] = str(Path(first).resolve().parent)
        module = sys.modules["__main__"]
        module.__file__ = first
        exec(compile(Path(first).read_bytes(), first, "exec"), vars(module))


if __name__ == "__main__":
    before = dict(os.environ)
    for name in sys.argv[2:]:
        importlib.import_module(name)
    set_by_imports.update({k: v for k, v in os.environ.items() if before.get(k) != v})
    if len(os.listdir("/proc/self/task")) != 1:
        sys.exit("an imported module has started a thread, so this process cannot be forked")
    gc.collect()
    gc.freeze()  # a fork then shares these objects' pages for longer
    asked = serve(socket.socket(fileno=int(sys.argv[1])))
    # At the top of the module: what the program raises ends the process as it ends any Python.
    run(asked["arguments"])
