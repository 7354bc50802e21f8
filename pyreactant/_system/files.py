"""Files that are replaced whole or not at all, and what a system error means for them."""

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .._errors import FileError, PyReactantError, RequirementError

_FULL = (errno.ENOSPC, errno.EDQUOT)
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)


def write(path: Path, data: bytes, *, partial: str = "partial") -> None:
    """Replace a file, keeping its permissions; a link stays, and what it leads to is replaced.

    Whoever reads it, and whoever is killed here, has the old file or the new one. The name of
    the partial file is fixed, so that a kill leaves at most one: callers hold a lock.
    """
    path = path.resolve()
    beside = path.with_name(f".{path.name}.{partial}")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o666)
        with os.fdopen(descriptor, "wb") as file:
            with contextlib.suppress(FileNotFoundError):
                os.fchmod(file.fileno(), path.stat().st_mode & 0o777)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
    sync(path.parent)


def sync(folder: Path) -> None:
    """Make what was renamed in a folder last over a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some file systems have no such call for folders
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def writing(what: Path, advice: str) -> Iterator[None]:
    """Say what could not be written, why, and what to do.

    Raises:
        RequirementError: For a system error.
    """
    try:
        yield
    except PyReactantError:  # some are system errors too
        raise
    except OSError as error:
        if error.errno in _FULL:
            advice = "free some space there, then run it again"
        elif error.errno not in _READ_ONLY:
            advice = "mend that, then run it again"
        raise RequirementError(f"cannot write {what}: {error.strerror}; {advice}") from error


def write_json(data: Any, path: Path) -> None:
    """Write plain data, whole or not at all.

    Raises:
        FileError: It cannot be written.
    """
    write_text(json.dumps(data, indent=1, allow_nan=False) + "\n", path)


def write_text(text: str, path: Path) -> None:
    """Write a file, whole or not at all.

    Raises:
        FileError: It cannot be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # What a program printed may be no valid text.
        partial.write_text(text, encoding="utf-8", errors="backslashreplace")
        partial.replace(path)
    except OSError as error:
        raise FileError(f"{path}: cannot be written ({error.strerror})") from None
    finally:
        partial.unlink(missing_ok=True)


def read_json(path: Path, what: str) -> dict[str, Any]:
    """The object in a JSON file; `what` says in the message what it should be.

    Raises:
        FileError: There is none.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError:
        raise FileError(
            f"{path}: truncated or damaged, so not {what}; copy it again, or run again"
        ) from None
    if not isinstance(found, dict):
        raise FileError(f"{path}: not {what}")
    return found
