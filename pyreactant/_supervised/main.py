"""Run the user's program, with a line to the supervisor.

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
"""Environment variable that names the line's and the stacks' file descriptors."""

# A signal that neither Slurm, JAX nor Julia uses (Julia takes SIGUSR1, SIGUSR2 and SIGQUIT).
STACKS_SIGNAL = signal.SIGRTMIN + 5 if sys.platform == "linux" else signal.SIGQUIT


def main() -> None:
    """Run the program named on the command line as if Python itself ran it."""
    attach()
    arguments = sys.argv[1:]
    is_module = arguments[0] == "-m"
    sys.argv = arguments[1:] if is_module else arguments
    if not sys.flags.safe_path:
        # As Python does: the current folder for a module, the script's own for a script.
        sys.path[0] = str(Path.cwd()) if is_module else str(Path(sys.argv[0]).resolve().parent)
    try:
        if is_module:
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            _run_script(sys.argv[0])
    except SystemExit as end:
        # The code now, as exit hooks of a runtime may wait long for the other processes.
        code = end.code & 255 if isinstance(end.code, int) else int(end.code is not None)
        _supervised.tell("phase", phase="ending", code=code)
        raise
    except BaseException as error:
        error = error.with_traceback(_of_the_program(error.__traceback__))
        _supervised.tell_error(error)
        sys.excepthook(type(error), error, error.__traceback__)
        _leave(130 if isinstance(error, KeyboardInterrupt) else _supervised.exit_code(error) or 1)
    _supervised.tell("phase", phase="ending", code=0)


def attach() -> None:
    """Connect to the supervisor, and die with it."""
    line, stacks = (int(part) for part in os.environ.pop(DESCRIPTORS).split(","))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    os.register_at_fork(after_in_child=_forget)
    for descriptor in (line, stacks):
        os.set_inheritable(descriptor, False)
    faulthandler.register(STACKS_SIGNAL, file=stacks, all_threads=True)
    # Slurm may send its warning to every process of a step; alone it would end the program.
    if signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    _supervised.connection = Link(line)
    _supervised.tell("phase", phase="started")


def _run_script(path: str) -> None:
    """As Python does, where runpy would have a relative `__file__`, and no `__main__` at exit."""
    whole = os.path.join(Path.cwd(), path)  # noqa: PTH118 - as Python, which leaves "./" in
    if pkgutil.get_importer(path) is not None or path.endswith(".pyc"):
        if not sys.flags.safe_path:
            del sys.path[0]  # a folder or an archive takes its place
        runpy.run_path(whole, run_name="__main__")
        return
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__file__ = whole
    main.__dict__["__builtins__"] = builtins
    with io.open_code(whole) as file:
        code = compile(file.read(), whole, "exec", dont_inherit=True)
    exec(code, main.__dict__)  # noqa: S102 - it is what this module is for


def _forget() -> None:
    """In a process that the program forked: it does not speak for the program."""
    if _supervised.connection is not None:
        _supervised.connection.close()
        _supervised.connection = None


def _of_the_program(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of this module and of runpy."""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file != __file__ and not file.startswith("<frozen runpy"):
            break
        trace = trace.tb_next
    return trace


def _leave(code: int) -> None:
    """End after an error; one of several without the exit hooks of JAX, which wait for minutes."""
    if int(os.environ.get(COUNT) or 1) == 1:
        raise SystemExit(code)
    end_at_once(code)
