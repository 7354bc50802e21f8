"""Run the user's program with a connection to its supervisor.

``python -m pyreactant._supervised script.py ...`` or ``... -m module ...``.
"""

import builtins
import ctypes
import faulthandler
import io
import os
import pkgutil
import runpy
import signal
import sys
from pathlib import Path
from types import ModuleType, TracebackType

from .. import _supervised
from .._system.hook import end_at_once
from ..process_group._environment import COUNT
from .link import Link

DESCRIPTORS = "PYREACTANT_SUPERVISOR_FDS"
"""Environment variable with two file descriptors: for messages, and for Python stacks."""

# A signal that neither Slurm, JAX nor Julia uses (Julia takes SIGUSR1, SIGUSR2 and SIGQUIT).
STACKS_SIGNAL = signal.SIGRTMIN + 5 if sys.platform == "linux" else signal.SIGQUIT


def main() -> None:
    """Run the program on the command line as Python itself would."""
    attach()
    arguments = sys.argv[1:]
    is_module = arguments[0] == "-m"
    sys.argv = arguments[1:] if is_module else arguments
    if not sys.flags.safe_path:
        # As Python does: the current folder for a module, the script's folder for a script.
        sys.path[0] = str(Path.cwd()) if is_module else str(Path(sys.argv[0]).resolve().parent)
    end: SystemExit | None = None
    code = 0
    try:
        try:
            if is_module:
                runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
            else:
                _run_script(sys.argv[0])
        except SystemExit as raised:
            end = raised
            code = end.code & 255 if isinstance(end.code, int) else int(end.code is not None)
        if _supervised.at_end is not None:
            _supervised.at_end(code)
    except BaseException as error:
        error = error.with_traceback(_program_frames(error.__traceback__))
        _supervised.tell_error(error)
        sys.excepthook(type(error), error, error.__traceback__)
        _leave(130 if isinstance(error, KeyboardInterrupt) else _supervised.exit_code(error) or 1)
    # Report the exit code now: exit hooks of a runtime may wait long for other processes.
    _supervised.tell("phase", phase="ending", code=code)
    if end is not None:
        raise end


def attach() -> None:
    """Connect to the supervisor; from now on this process dies with it."""
    line, stacks = (int(part) for part in os.environ.pop(DESCRIPTORS).split(","))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    os.register_at_fork(after_in_child=_disconnect_fork)
    for descriptor in (line, stacks):
        os.set_inheritable(descriptor, False)
    faulthandler.register(STACKS_SIGNAL, file=stacks, all_threads=True)
    # Slurm may send its warning to every process of a step; by default it would end the program.
    if signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    _supervised.connection = Link(line)
    _supervised.tell("phase", phase="started")


def _run_script(path: str) -> None:
    """Run a script as Python does.

    With runpy, `__file__` would be relative, and `__main__` would be gone in exit hooks.
    """
    absolute = os.path.join(Path.cwd(), path)  # noqa: PTH118 - as Python, which keeps "./"
    if pkgutil.get_importer(path) is not None or path.endswith(".pyc"):
        if not sys.flags.safe_path:
            del sys.path[0]  # runpy inserts the folder or archive instead
        runpy.run_path(absolute, run_name="__main__")
        return
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__file__ = absolute
    main.__dict__["__builtins__"] = builtins
    with io.open_code(absolute) as file:
        code = compile(file.read(), absolute, "exec", dont_inherit=True)
    exec(code, main.__dict__)  # noqa: S102 - the purpose of this module


def _disconnect_fork() -> None:
    """Close the connection in a forked process, which must not report for the program."""
    if _supervised.connection is not None:
        _supervised.connection.close()
        _supervised.connection = None


def _program_frames(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of this module and of runpy."""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file != __file__ and not file.startswith("<frozen runpy"):
            break
        trace = trace.tb_next
    return trace


def _leave(code: int) -> None:
    """End after an error; with several processes skip JAX's exit hooks, which wait for minutes."""
    if int(os.environ.get(COUNT) or 1) == 1:
        raise SystemExit(code)
    end_at_once(code)
