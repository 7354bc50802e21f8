"""The command tree, and how errors become messages and exit codes."""

import contextlib
import errno
import gc
import importlib
import io
import os
import select
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.completion import completion_init  # type: ignore[attr-defined] # it imports it

from .._version import __version__
from ..base import steps
from ..base.errors import (
    ExitCode,
    InvalidArgumentError,
    MismatchError,
    PyReactantError,
    no_room,
)
from ..base.packages import broken_package
from ..base.process import flush_output, hold_interrupts_in, repeat_ignored_interrupts
from ..base.say import has_colours
from ..base.settings import check_names
from ..base.steps import Level
from ..base.words import cause_of, is_thread_limit
from ..process import supervised
from . import shells
from .command import App, Group, examples

_MODULE_OF = {
    "matmul": "matmul",
    "run": "run",
    "jobs": "jobs",
    "crosscheck": "crosscheck",
    "compare": "crosscheck",
    "bisect": "bisect",
    "preflight": "fit",
    "plan": "fit",
    "topology": "fit",
    "checkpoints": "checkpoints",
    "burnin": "burnin",
    "tpu": "tpu",
    "explain": "machine",
    "doctor": "machine",
    "setup": "machine",
    "prefs": "machine",
}
"""The module whose `app` is a group of commands, or has a command of that name."""


class Commands(Mapping[str, Any]):
    """All commands by name. The module of one is loaded when it is looked up, and no others."""

    def __init__(self, loaded: Mapping[str, Any]) -> None:
        self._loaded = dict(loaded)
        self._names = [*_MODULE_OF, *loaded]

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            module = importlib.import_module(f".{_MODULE_OF[name]}", __package__)
            group = typer.main.get_group(module.app)
            self._loaded |= {group.name: group} if group.name else group.commands
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class Root(Group):
    """All commands; typer would end without a word after Ctrl-C, and with 1 at a closed pipe."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = Commands(self.commands)

    def make_context(self, *arguments: Any, **more: Any) -> Any:
        """Parse the command line; --help prints here."""
        with _ends_told():
            return super().make_context(*arguments, **more)

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Parse the words before the command."""
        shells.check_alone(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with _ends_told():
            return super().invoke(ctx)


@contextlib.contextmanager
def _ends_told() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        _print_error("interrupted")
        raise SystemExit(ExitCode.INTERRUPTED) from None
    except BrokenPipeError as error:
        if _is_unread():
            raise SystemExit(ExitCode.UNREAD) from None
        raise RuntimeError(f"a connection was closed ({error})") from error


def _is_unread() -> bool:
    """Whether the reader of standard output, or of standard error, has gone."""
    polled = select.poll()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            polled.register(stream.fileno(), 0)
    return any(event & select.POLLERR for _, event in polled.poll(0))


completion_init()  # lets typer answer a shell that completes
app = App(
    cls=Root,
    add_completion=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    help="Run sharded array programs on many processes, on JAX and Reactant.jl, and check them.",
    epilog="Exit codes: 0 success, 1 a program failed, 2 usage error, 3 a requirement is missing, "
    "4 rendezvous failed, 5 a result is wrong or a program does not fit, 6 a process was lost, "
    "7 timeout, 8 Cloud TPU refused the request, 130 interrupted, 141 nobody reads the output.",
)


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"pyreactant {__version__}")
        raise typer.Exit


@app.command("help", epilog=examples("pyreactant help jobs clean"))
def help_(
    context: typer.Context,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[COMMAND]...", help="Words of a command.")
    ] = None,
) -> None:
    """Print the help of a command."""
    root = context.find_root()
    root.command.main([*(words or []), "--help"], root.info_name, standalone_mode=False)


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", callback=_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    install_completion: Annotated[
        bool,
        typer.Option(
            shells.OPTIONS[0],
            callback=shells.install,
            is_eager=True,
            help="Install completion for this shell: bash, zsh or fish.",
        ),
    ] = False,
    show_completion: Annotated[
        bool,
        typer.Option(
            shells.OPTIONS[1],
            callback=shells.show,
            is_eager=True,
            help="Print this shell's script of completion; install nothing.",
        ),
    ] = False,
) -> None:
    if context.invoked_subcommand not in ("run", "burnin"):
        check_names()
        return
    from ..runs.supervisor.unstarted import others_told

    with others_told():
        check_names()


def main() -> None:
    """Run the command line; the process ends with the exit codes above."""
    hold_interrupts_in("jax jaxlib numpy scipy ml_dtypes")
    repeat_ignored_interrupts()
    try:
        _end(_run())
    except KeyboardInterrupt:  # a second one, or one while the process ends
        os._exit(ExitCode.INTERRUPTED)


def _run() -> int:
    """Run the command, print its error, and give the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # in an ASCII locale, too
    code: int = ExitCode.FAILED
    try:
        app()
        code = ExitCode.DONE
    except PyReactantError as error:
        supervised.tell_error(error)
        code = _failed(error)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if code in _PRINTED:
            supervised.tell_error(_PRINTED[code])
    except KeyboardInterrupt:  # before or after the command itself, as in typer
        _print_error("interrupted")
        code = ExitCode.INTERRUPTED
    except Exception as error:
        broken = broken_package(error)
        supervised.tell_error(broken or error)
        code = _unexpected(error) if broken is None else _failed(broken)
    return code


def _failed(error: PyReactantError) -> int:
    """Print an error, and give its exit code."""
    _print_error(f"error: {error}")
    return error.exit_code


def _unexpected(error: Exception) -> int:
    """Print an error for which there is no kind, and give the exit code."""
    if isinstance(error, OSError) and error.filename is None and error.errno in _UNWRITABLE:
        _print_error(f"error: the output cannot be written ({error.strerror}); free some space")
        return ExitCode.USAGE
    if _is_no_room(error):
        _print_error(f"error: {no_room(error)}")
        return no_room(error).exit_code
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        _print_error(f"error: {str(error.filename)[:60]}...: the name is too long")
        return ExitCode.USAGE
    if isinstance(error, OSError) and error.filename and error.errno in (*_DENIED, *_UNWRITABLE):
        _print_error(
            f"error: {error.filename}: cannot be read or written ({error.strerror}); "
            "change that, and run it again"
        )
        return ExitCode.USAGE
    if isinstance(error, FileNotFoundError) and error.filename is None and _is_homeless():
        _print_error("error: the current folder does not exist any more; change to another one")
        return ExitCode.USAGE
    text = f"{type(error).__name__}: {error}"
    cause = cause_of(text)
    if cause == "out of memory":
        _print_error(
            f"out of memory: {error}; use more processes on more machines, or smaller arrays"
        )
        return ExitCode.LOST
    if cause == "lost":
        _print_error(
            f"error: another process of this run ended, or cannot be reached ({text}); read the "
            "output of the first one that ended"
        )
        return ExitCode.LOST
    _print_error(f"internal error: {text}")
    _print_error("please report it with the traceback, which PYREACTANT_DEBUG=1 prints")
    return ExitCode.FAILED


def _is_homeless() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def _is_no_room(error: Exception) -> bool:
    """Whether the system starts no further process or thread."""
    if isinstance(error, OSError):
        written = hasattr(error, "characters_written")  # to a full pipe that does not block
        return error.errno in (errno.EAGAIN, errno.ENOMEM) and not written
    return isinstance(error, RuntimeError) and is_thread_limit(error)


def _print_error(message: str) -> None:
    if os.environ.get("PYREACTANT_DEBUG") == "1" or steps.level is Level.VERBOSE:
        import traceback

        traceback.print_exc()
    kind, colon, text = message.partition(":")
    if colon and has_colours(sys.stderr):
        message = f"\x1b[1;31m{kind}:\x1b[0m{text}"
    print(message, file=sys.stderr)


_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG}

# Failures that the commands print themselves; the supervisor needs the exception, since the exit
# code alone may be that of any program.
_PRINTED: dict[int, Exception] = {
    ExitCode.USAGE: InvalidArgumentError("the command line is wrong; see the program's output"),
    ExitCode.MISMATCH: MismatchError("the result is wrong; see the program's output"),
}


def _end(code: int) -> None:
    """End the process at once.

    After a failure this skips the wait for other processes; after success it skips the orderly
    destruction of the runtime, which takes 0.1 s.
    """
    # A command without the runtime stays fast.
    runtime = sys.modules.get("pyreactant.arrays.runtimes.runtime")
    started = runtime is not None and runtime.is_initialized()
    if runtime is not None and started and code == 0:
        runtime.shutdown()
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # a run writes elsewhere, and goes on without a reader
        code = code or ExitCode.UNREAD
    except Exception:  # noqa: S110 - closed, or a full disk, which `flush_output` skips as well
        pass
    flush_output()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is done: Ctrl-C has nothing to end
    if started or code:
        os._exit(code)
    # Otherwise Python, as it ends, looks for garbage among all objects: a sixth of a short command.
    gc.freeze()
