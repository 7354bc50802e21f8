"""A Python process that has imported what others need, and forks for each that is asked for.

Started by tests.processes, never by hand: ``python -m tests.template SOCKET PID MODULE...``. It has
one thread and no runtime, so that a fork of it is as good as a new process.

A fork ends as any Python does, but for the last step: it does not take its modules apart. That is
more than half of the processor time of a short command, because each page that it writes is copied.
"""

import atexit
import contextlib
import fcntl
import gc
import importlib
import io
import itertools
import json
import os
import runpy
import select
import signal
import site
import socket
import struct
import sys
import sysconfig
import time
import types
from pathlib import Path
from typing import Any

from tests import quick

set_by_imports: dict[str, str] = {}
"""What importing jax writes into the environment, where nothing is set."""


def serve(listener: socket.socket, tests: int) -> dict[str, Any]:
    """Fork for each request, and report how each process ended; returns in the forked processes.

    A request is a connection: JSON with descriptors for standard input, output and error, and for
    those in "kept". The answers are the process's number, and then its status as `os.waitpid`
    returns it.

    Args:
        listener: Where requests arrive.
        tests: Descriptor of the process that runs the tests; this one ends with it.
    """
    running: dict[int, tuple[int, socket.socket]] = {}  # pidfd -> process, connection
    while True:
        for ready in select.select([tests, listener.fileno(), *running], [], [])[0]:
            if ready == tests:
                os._exit(0)
            if ready != listener.fileno():
                pid, connection = running.pop(ready)
                os.close(ready)
                status = os.waitpid(pid, 0)[1]
                with connection, contextlib.suppress(OSError):  # nobody may wait for it any more
                    connection.send(struct.pack("ii", pid, status))
                continue
            connection = listener.accept()[0]
            message, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 32)
            if not message:  # who asked has ended
                connection.close()
                continue
            pid = os.fork()
            if pid == 0:
                request: dict[str, Any] = json.loads(message)
                _become(request, descriptors, connection)
                for held in (listener, connection, *(other for _, other in running.values())):
                    held.detach()  # it is closed, and its number may soon be another file's
                return request
            running[os.pidfd_open(pid)] = pid, connection
            for descriptor in descriptors:
                os.close(descriptor)


def below(request: dict[str, Any]) -> dict[str, Any]:
    """Fork a supervisor's zygote (`tests.quick`); returns in the supervisor and its programs."""
    ours, line = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork():
        line.close()
        quick.zygote = ours
        return request
    ours.close()
    for number in request["kept"]:
        os.close(number)  # a lock is held for as long as the supervisor lives, not longer
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in FOR_THE_SUPERVISOR}
    while True:
        message, descriptors, _, _ = socket.recv_fds(line, 1 << 20, 32)
        if not message:  # the supervisor has ended
            os._exit(0)
        first = os.fork()
        if first == 0:
            between = os.getpid()
            if os.fork():
                os._exit(0)
            while os.getppid() == between:
                time.sleep(0.0005)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            asked: dict[str, Any] = json.loads(message)
            _become(asked, descriptors, line)
            line.detach()
            return asked
        os.waitpid(first, 0)
        for descriptor in descriptors:
            os.close(descriptor)


def below_keeper(request: dict[str, Any]) -> dict[str, Any]:
    """`below` for a job's keeper, which first leaves the process that started it, as in `main`."""
    if os.fork():
        os._exit(0)
    found = below(request)
    fork = os.fork

    def has_forked() -> int:
        os.fork = fork
        return 0

    if found is request:
        os.fork = has_forked
    return found


FOR_THE_SUPERVISOR = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals to a supervisor's process group, which its zygote ignores."""


def _become(request: dict[str, Any], descriptors: list[int], connection: socket.socket) -> None:
    """What the kernel and Python's start do for a new process."""
    if request["session"]:
        os.setsid()
    connection.send(struct.pack("ii", os.getpid(), 0))
    numbers = [0, 1, 2, *request["kept"]]
    above = [fcntl.fcntl(number, fcntl.F_DUPFD, max(numbers) + 1) for number in descriptors]
    for number, copy in zip(numbers, above, strict=True):
        os.dup2(copy, number)
    for last, following in itertools.pairwise([*sorted(numbers), os.sysconf("SC_OPEN_MAX")]):
        os.closerange(last + 1, following)
    os.chdir(request["folder"])
    environment = {**set_by_imports, **request["environment"]}
    path = os.environ.get("PYTHONPATH")
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - as long as the process lives
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), write_through=True)
    sys.stderr = io.TextIOWrapper(
        io.FileIO(2, "w", closefd=False), errors="backslashreplace", write_through=True
    )
    sys.modules["__main__"] = types.ModuleType("__main__")
    if request["python"] != sys.executable:
        _enter_environment(request["python"])
    sys.orig_argv = [sys.executable, *request["arguments"]]
    if environment.get("PYTHONPATH") != path:
        _read_import_path(environment.get("PYTHONPATH", ""))
    if "jax" in sys.modules:
        _read_settings_of_jax()
    quick.zygote = None
    if quick.VARIABLE in environment:
        quick.start_quickly()


def _enter_environment(python: str) -> None:
    """Be the Python of another virtual environment, which has the packages of this one, too."""
    sys.executable = python
    sys.prefix = sys.exec_prefix = str(Path(python).parent.parent)
    packages = sysconfig.get_path("purelib", vars={"base": sys.prefix})
    sys.path[:] = [folder for folder in sys.path if "site-packages" not in folder]
    site.addsitedir(packages)


def _read_import_path(path: str) -> None:
    """Put the folders of PYTHONPATH before the others, as Python's start does."""
    named = filter(None, path.split(os.pathsep))
    sys.path[1:] = dict.fromkeys([*named, *sys.path[1:]])
    sys.modules.pop("sitecustomize", None)  # Debian's Python has one, which the template found
    with contextlib.suppress(ImportError):
        importlib.import_module("sitecustomize")


def _read_settings_of_jax() -> None:
    """Take JAX's settings from the environment, as importing jax does."""
    import jax

    for name, text in os.environ.items():
        setting = name.lower()
        if name.startswith("JAX_") and text and setting in jax.config.values:
            value: Any = jax.config.values[setting]
            if isinstance(value, bool):
                value = text.lower() in ("y", "yes", "t", "true", "on", "1")
            else:
                value = type(value)(text) if isinstance(value, int | float) else text
            jax.config.update(setting, value)


def build_commands() -> None:
    """Make the tree of all commands and run one; typer makes the tree anew for each command line.

    The run imports what typer imports late.
    """
    import typer

    from pyreactant.cli.app import app

    make, made = typer.main.get_command, typer.main.get_command(app)
    with contextlib.redirect_stdout(io.StringIO()):
        made.main(["topology", "v6e-1"], standalone_mode=False)

    def get_command(typer_instance: Any) -> Any:
        return made if typer_instance is app else make(typer_instance)

    typer.main.get_command = get_command


def let_guard_fork() -> None:
    """Let the guard of a setup fork the Python that it starts."""
    spawn = os.posix_spawnp

    def posix_spawnp(path: str, argv: list[str], environment: Any, **options: Any) -> int:
        if path != sys.executable or argv[1:3] != quick.JULIAPKG:
            return spawn(path, argv, environment, **options)
        pid = os.fork()
        if pid == 0:
            for _, source, target in options["file_actions"]:
                os.dup2(source, target)
            run(argv[1:])  # ends the process
        return pid

    os.posix_spawnp = posix_spawnp  # type: ignore[assignment]


def keep_caches() -> None:
    """Let JAX keep its caches when Python ends: to empty them, a fork copies 4 MiB of pages."""
    from jax._src import api

    vars(api)["clear_caches"] = lambda: None  # what the end calls; `jax.clear_caches` stays


def let_gloo_give_way() -> None:
    """Give the thread of JAX's collectives on CPUs the lowest priority.

    It polls without a pause from when another process has sent something until this one is ready
    to receive it, and so slows down what it waits for.
    """
    from jax._src.lib import _jax

    make = _jax.make_gloo_tcp_collectives

    def makes(*given: Any, **named: Any) -> Any:
        before = os.listdir("/proc/self/task")
        made = make(*given, **named)
        for thread in set(os.listdir("/proc/self/task")).difference(before):
            os.setpriority(os.PRIO_PROCESS, int(thread), 19)
        return made

    _jax.make_gloo_tcp_collectives = makes


ending: dict[str, int] = {}
"""The exit code of a fork, once its program has ended and Python will end with this code."""


def leave() -> None:
    """End a fork at once, after all other functions of atexit."""
    if "code" in ending:
        with contextlib.suppress(AttributeError, OSError, ValueError):  # Python says what is wrong
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(ending["code"])


def run_and_leave(arguments: list[str]) -> None:
    """`run`, and note the exit code. After Ctrl-C a signal ends Python, so nothing is noted."""
    try:
        run(arguments)
        ending["code"] = 0
    except SystemExit as error:
        code = error.code
        ending["code"] = 0 if code is None else code & 0xFF if isinstance(code, int) else 1
        raise
    except KeyboardInterrupt:
        raise
    except BaseException:
        ending["code"] = 1
        raise


def run(arguments: list[str]) -> None:
    """``python ARGUMENTS``, for -m, -c and scripts."""
    safe = arguments[0] in ("-P", "-I")
    first, *rest = itertools.dropwhile(("-I", "-P", "-S", "-u").__contains__, arguments)
    folder = {"-m": str(Path.cwd()), "-c": ""}.get(first, str(Path(first).resolve().parent))
    sys.path[:1] = [] if safe else [folder]
    if first == "-m":
        sys.argv[:] = ["-m", *rest[1:]]
        runpy._run_module_as_main(rest[0])
    elif first == "-c":
        sys.argv[:] = ["-c", *rest[1:]]
        code = compile(rest[0], "<string>", "exec")
        exec(code, vars(sys.modules["__main__"]))
    else:
        sys.argv[:] = [first, *rest]
        module = sys.modules["__main__"]
        module.__file__ = first
        exec(compile(Path(first).read_bytes(), first, "exec"), vars(module))


if __name__ == "__main__":
    atexit.register(leave)  # it is the first to register, so it is called last
    before = dict(os.environ)
    for name in sys.argv[3:]:
        importlib.import_module(name)
    if "pyreactant.cli.app" in sys.modules:
        build_commands()
    if "jax" in sys.modules:
        keep_caches()
        let_gloo_give_way()
    set_by_imports.update({k: v for k, v in os.environ.items() if before.get(k) != v})
    deadline = time.monotonic() + 5
    while len(os.listdir("/proc/self/task")) != 1 and time.monotonic() < deadline:
        time.sleep(0.01)  # a thread that only started something may still be ending
    if len(os.listdir("/proc/self/task")) != 1:
        sys.exit("an imported module has started a thread, so this process cannot be forked")
    gc.collect()
    gc.freeze()  # a fork then shares these objects' pages for longer
    gc.set_threshold(50_000, 20, 50)  # a fork has much that stays, as JAX's caches
    asked = serve(socket.socket(fileno=int(sys.argv[1])), os.pidfd_open(int(sys.argv[2])))
    # At the top of the module: what the program raises ends the process as it ends any Python.
    if quick.VARIABLE in os.environ:
        if asked["arguments"][:3] in (quick.SUPERVISOR, quick.DRIVER):
            asked = below(asked)
        elif asked["arguments"][:2] == quick.KEEPER:
            asked = below_keeper(asked)
    if asked["arguments"][:3] == quick.GUARD:
        let_guard_fork()
    run_and_leave(asked["arguments"])
