"""The user's own code: which files are it, and what it raises while it is imported."""

import contextlib
import re
import traceback
from collections.abc import Iterator
from pathlib import Path

from .errors import ExitCode, InvalidArgumentError, PyReactantError
from .packages import broken_package, is_library
from .process import interrupts_noted


def users_place(error: BaseException) -> str:
    """The last line of a user's file that led to an exception, as "train.py, line 3"; "" if none.

    A file below the current folder is named from there.
    """
    if isinstance(error, SyntaxError) and error.filename and not is_library(error.filename):
        return _named(error.filename, error.lineno)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not is_library(frame.filename):
            return _named(frame.filename, frame.lineno)
    return ""


def users_line() -> str:
    """The line of a user's file that runs now, in the words of `users_place`; "" if none."""
    for frame, line in traceback.walk_stack(None):
        if not is_library(frame.f_code.co_filename):
            return _named(frame.f_code.co_filename, line)
    return ""


def users_line_in(stack: str) -> str:
    """The innermost line of a user's file in a stack that faulthandler wrote; "" if none."""
    for file, line in re.findall(r'File "(.*)", line (\d+) in ', stack):
        if not is_library(file):
            return _named(file, int(line))
    return ""


def _named(file: str, line: int | None) -> str:
    with contextlib.suppress(OSError, ValueError):
        file = str(Path(file).relative_to(Path.cwd()))
    return file if line is None else f"{file}, line {line}"


def text_of_users(error: BaseException) -> str:
    """An exception in one line, with the place in the user's files."""
    kind, where = type(error).__name__, users_place(error)
    try:
        text = error.msg if isinstance(error, SyntaxError) else str(error)
    except Exception:  # a class of the user's
        text = ""
    first = next(filter(None, map(str.strip, text.splitlines())), "")
    said = first if not where and isinstance(error, (ImportError, AttributeError)) else kind
    if said == kind and first:
        said = f"{kind}: {first}"
    return f"{where}: {said}" if where else said


@contextlib.contextmanager
def importing(what: str) -> Iterator[None]:
    """Import a user's module within the block; what it raises is an error of the user's.

    Args:
        what: The beginning of the message, such as "cannot import program 'train:step'".

    Raises:
        InvalidArgumentError: The module raised, or ended the program; the message has its file,
            line and exception.
        KeyboardInterrupt: Ctrl-C came. One that the module itself raised is an error of the user's.
        RequirementError: A package that pyreactant needs cannot be imported.
    """
    try:
        with interrupts_noted() as interrupts:
            yield
    except MemoryError:
        raise
    except BaseException as error:
        if interrupts:  # whatever the module made of it
            raise KeyboardInterrupt from error
        if isinstance(error, PyReactantError) and error.exit_code != ExitCode.USAGE:
            raise
        if (broken := broken_package(error)) is not None:
            raise broken from error
        raise InvalidArgumentError(f"{what}: {text_of_users(error)}") from error
