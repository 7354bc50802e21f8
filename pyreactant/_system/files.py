"""Files that are replaced atomically, and messages for system errors when writing them."""

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .._errors import FileError, PyReactantError, RequirementError

_FULL = (errno.ENOSPC, errno.EDQUOT)
_LITTLE = 1 << 16
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)


@contextlib.contextmanager
def replacing(path: Path, *, partial: str = "", durable: bool = False) -> Iterator[Path]:
    """A temporary file to write, which replaces `path` at the end of the block.

    Readers see the old file or the new one, never a part, even if this process is killed.

    Args:
        path: The file to replace or create.
        partial: Suffix of the temporary file's name. With a fixed suffix a killed process leaves
            at most one file behind, but the caller must hold a lock. By default the suffix is
            unique to this process.
        durable: Whether the new file must survive a power failure.
    """
    temporary = path.with_name(f".{path.name}.{partial or f'{os.getpid()}.partial'}")
    try:
        yield temporary
        if durable:
            sync(temporary)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    if durable:
        with contextlib.suppress(OSError):  # some file systems cannot sync folders
            sync(path.parent)


def write(path: Path, data: bytes, *, partial: str = "partial") -> None:
    """Replace a file and keep its permissions; for a link, replace its target.

    Args:
        path: The file.
        data: Its new content.
        partial: As for `replacing`.
    """
    path = path.resolve()
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    with replacing(path, partial=partial, durable=True) as temporary:
        descriptor = os.open(temporary, flags, 0o666)
        with os.fdopen(descriptor, "wb") as file:
            with contextlib.suppress(FileNotFoundError):
                os.fchmod(file.fileno(), path.stat().st_mode & 0o777)
            file.write(data)


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def writing(what: Path, advice: str) -> Iterator[None]:
    """Turn system errors in the block into a message with the file, the reason and what to do.

    Args:
        what: The file or folder that the block writes.
        advice: What to do if it is read-only.

    Raises:
        RequirementError: A system error occurred in the block.
    """
    try:
        yield
    except PyReactantError:  # some of these are subclasses of OSError
        raise
    except OSError as error:
        if error.errno in _FULL:
            advice = "free some space there, then run it again"
        elif error.errno not in _READ_ONLY:
            advice = "fix that, then run it again"
        raise RequirementError(f"cannot write {what}: {error.strerror}; {advice}") from error


def is_full(folder: Path) -> bool:
    """Whether the disk of a folder has less room than logs and states need."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < _LITTLE


def write_json(data: Any, path: Path, *, indent: int | None = 2) -> None:
    """Write plain data as a JSON file, atomically.

    Args:
        data: What to write.
        path: The file.
        indent: Spaces for each level; None writes one line, which is 20 times as fast.

    Raises:
        FileError: The file cannot be written.
    """
    write_text(json.dumps(data, indent=indent, allow_nan=False) + "\n", path)


_LINE = 100
"""Characters of a line of JSON that a list without dictionaries may fill."""


def json_lines(data: Any, level: int = 0) -> str:
    """Plain data as JSON for readers: numbers have no line of their own.

    Args:
        data: The data.
        level: How deep in the whole it is.
    """
    inner, outer = "\n" + " " * (level + 1), "\n" + " " * level
    numbers = isinstance(data, dict) and all(type(one) in (int, float) for one in data.values())
    if isinstance(data, dict) and not numbers:
        pairs = (f"{json.dumps(key)}: {json_lines(one, level + 1)}" for key, one in data.items())
        return f"{{{inner}{f',{inner}'.join(pairs)}{outer}}}"
    line = json.dumps(data, allow_nan=False)
    flat = "{" not in line and (len(line) <= _LINE or "[" not in line[1:])
    if numbers or flat or not isinstance(data, (list, tuple)):
        return line
    return f"[{inner}{f',{inner}'.join(json_lines(one, level + 1) for one in data)}{outer}]"


def write_text(text: str, path: Path) -> None:
    """Write a text file in UTF-8, atomically.

    Raises:
        FileError: The file cannot be written.
    """
    try:
        with replacing(path) as partial:
            # The output of a program may contain lone surrogates, which UTF-8 cannot encode.
            partial.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise FileError(f"{path}: cannot be written ({error.strerror})") from None


def read_json(path: Path, what: str) -> dict[str, Any]:
    """The object in a JSON file.

    Args:
        path: The file.
        what: What the file should be, for messages.

    Raises:
        FileError: The file cannot be read, or does not hold a JSON object.
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
