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


@contextlib.contextmanager
def replacing(path: Path, *, partial: str = "", durable: bool = False) -> Iterator[Path]:
    """A partial file to write, which takes the place of `path` at the end of the block.

    Readers, and processes that are killed here, see the old file or the new one, never a part.

    Args:
        path: The file to replace or make.
        partial: Ending of the partial file's name. A fixed one leaves at most one file behind
            after a kill, and needs callers that hold a lock. Without one it is this process's.
        durable: Whether the new file must outlast a power cut.
    """
    beside = path.with_name(f".{path.name}.{partial or f'{os.getpid()}.partial'}")
    try:
        yield beside
        if durable:
            sync(beside)
        beside.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
    if durable:
        with contextlib.suppress(OSError):  # some file systems cannot do it for folders
            sync(path.parent)


def write(path: Path, data: bytes, *, partial: str = "partial") -> None:
    """Replace a file and keep its permissions; of a link, replace the file that it leads to.

    Args:
        path: The file.
        data: All of its new content.
        partial: As for `replacing`.
    """
    path = path.resolve()
    with replacing(path, partial=partial, durable=True) as beside:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o666)
        with os.fdopen(descriptor, "wb") as file:
            with contextlib.suppress(FileNotFoundError):
                os.fchmod(file.fileno(), path.stat().st_mode & 0o777)
            file.write(data)


def sync(path: Path) -> None:
    """Write a file, or the names in a folder, through to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
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
    """Write plain data as JSON, all of it or nothing.

    Raises:
        FileError: It cannot be written.
    """
    write_text(json.dumps(data, indent=2, allow_nan=False) + "\n", path)


def write_text(text: str, path: Path) -> None:
    """Write a text file in UTF-8, all of it or nothing.

    Raises:
        FileError: It cannot be written.
    """
    try:
        with replacing(path) as partial:
            # Output of a program may hold lone surrogates, which UTF-8 cannot encode.
            partial.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise FileError(f"{path}: cannot be written ({error.strerror})") from None


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
