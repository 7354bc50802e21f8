"""Run the user's program with a connection to its supervisor.

``python -m pyreactant.process.supervised script.py ...`` or ``... -m module ...``.
"""

import builtins
import faulthandler
import io
import os
import pkgutil
import runpy
import signal
import sys
from pathlib import Path
from types import CodeType, ModuleType, TracebackType

from ...base.errors import ExitCode, code_of
from ...base.process import (
    die_with_parent,
    end_at_once,
    flush_files,
    repeat_ignored_interrupts,
)
from ...base.settings import COUNT, DESCRIPTORS
from .. import supervised
from . import metrics, plain_jax, profiling
from .link import Link

# A signal that neither Slurm, JAX nor Julia uses (Julia takes SIGUSR1, SIGUSR2 and SIGQUIT).
STACKS_SIGNAL = signal.SIGRTMIN + 5 if sys.platform == "linux" else signal.SIGQUIT


def main() -> None:
    """Run the program on the command line as Python itself would."""
    attach()
    end: SystemExit | None = None
    code = 0
    try:
        try:
            run_program(sys.argv[1:])
        except SystemExit as raised:
            end = raised
            code = _code_of(end)
        if supervised.at_end is not None:
            supervised.at_end(code)
        profiling.end()
        metrics.flush(wait=True)
    except BaseException as error:
        error = _requirement(error.with_traceback(_program_frames(error.__traceback__)))
        profiling.end()
        metrics.flush(wait=False)
        supervised.tell_error(error)
        sys.excepthook(type(error), error, error.__traceback__)
        if int(os.environ.get(COUNT) or 1) == 1:
            raise SystemExit(code_of(error)) from None
        end_at_once(code_of(error))  # JAX's exit hooks wait for the other processes, for minutes
    # Report the exit code now: exit hooks of a runtime may wait long for other processes.
    supervised.tell_phase("ending", code)
    if code:
        flush_files()  # the supervisor ends this process while exit hooks wait for the others
    if end is not None:
        raise end


def run_program(words: list[str]) -> None:
    """Run a script, ``-m MODULE`` or ``-c CODE``, with its arguments, as Python itself would."""
    how = words[0] if words[0] in ("-m", "-c") else ""
    sys.argv = words[1:] if how else words
    if not sys.flags.safe_path:
        sys.path[0] = _first_folder(how)
    if how == "-m":
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    elif how == "-c":
        code_text, sys.argv[0] = sys.argv[0], "-c"
        _run_code(compile(code_text, "<string>", "exec", dont_inherit=True))
    else:
        run_script(sys.argv[0])


def _code_of(end: SystemExit) -> int:
    """The exit code that a program ends with; one that the system would cut to 0 becomes 1."""
    if not isinstance(end.code, int):
        return int(end.code is not None)
    if end.code and not end.code & 255:
        sys.stderr.write(
            f"pyreactant: exit codes are from 0 to 255, and sys.exit({end.code}) would end with 0, "
            "as if the program had succeeded; it ends with 1\n"
        )
        end.code = ExitCode.FAILED
    return end.code & 255


def _first_folder(how: str) -> str:
    """The folder in which Python looks for modules first."""
    if how == "-c":
        return ""
    return str(Path.cwd() if how == "-m" else Path(sys.argv[0]).resolve().parent)


def attach() -> None:
    """Connect to the supervisor; from now on this process dies with it."""
    line, stacks = (int(part) for part in os.environ.pop(DESCRIPTORS).split(","))
    die_with_parent()
    os.register_at_fork(after_in_child=_disconnect_fork)
    for descriptor in (line, stacks):
        os.set_inheritable(descriptor, False)
    # Python takes its handler away when it ends; the supervisor may still ask then.
    signal.signal(STACKS_SIGNAL, signal.SIG_IGN)
    faulthandler.register(STACKS_SIGNAL, file=stacks, all_threads=True)
    # Slurm may send its warning to every process of a step; by default it would end the program.
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, signal.SIG_IGN)
    repeat_ignored_interrupts()  # JAX's callback would swallow the only one that comes
    plain_jax.install()
    supervised.connection = Link(line)
    supervised.tell_phase("started")


_RUNS = Path(__file__).parent.parent.parent / "runs"
_PLUMBING = (__file__, str(_RUNS / "worker.py"), str(_RUNS / "values.py"))
"""Files whose frames at the beginning of a traceback are not the user's."""


def run_script(path: str) -> None:
    """Run a script as Python does.

    With runpy, `__file__` would be relative, and `__main__` would be gone in exit hooks.
    """
    absolute = os.path.join(Path.cwd(), path)  # noqa: PTH118 - as Python, which keeps "./"
    if pkgutil.get_importer(path) is not None or path.endswith(".pyc"):
        if not sys.flags.safe_path:
            del sys.path[0]  # runpy inserts the folder or archive instead
        runpy.run_path(absolute, run_name="__main__")
        return
    with io.open_code(absolute) as file:
        text = file.read()
    _run_code(compile(text, absolute, "exec", dont_inherit=True), __file__=absolute)


def _run_code(code: CodeType, **names: str) -> None:
    """Run code as the module ``__main__``, with these names in it."""
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__dict__.update(names, __builtins__=builtins)
    exec(code, main.__dict__)  # noqa: S102 - the purpose of this module


def _disconnect_fork() -> None:
    """Close the connection in a forked process, which must not report for the program."""
    if supervised.connection is not None:
        supervised.connection.close()
        supervised.connection = supervised.at_end = None


def _program_frames(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of this module and of runpy."""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file not in _PLUMBING and not file.startswith("<frozen "):
            break
        trace = trace.tb_next
    return trace


def _requirement(error: BaseException) -> BaseException:
    """The requirement that is missing if the program cannot import JAX, for instance."""
    try:
        from ...base.packages import broken_package
    except (ImportError, OSError):  # such as a program that may not open another file
        return error
    broken = broken_package(error, "the program")
    if broken is None:
        return error
    broken.__cause__ = error
    return broken
