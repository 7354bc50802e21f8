"""Files that the user names for results: checked before the work, written after it.

A link is followed. A regular file is replaced whole or not at all; a device or a pipe is written
through; ``-`` is standard output. A regular file is only replaced if it is empty, if its first
bytes say that pyreactant wrote it as a report, or if the user says so.
"""

import contextlib
import fcntl
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, TypeAlias

from .errors import FileError, InvalidArgumentError, argument
from .files import replacing

STDOUT = Path("-")
"""The path that means standard output."""

_MARK = re.compile(
    rb'\s*\{\s*"format": "pyreactant |'
    rb'<!doctype html>.{0,400}<meta name="generator" content="pyreactant ',
    re.DOTALL,
)
_HEAD = 1024
_MOST_LINKS = 40

_Identity: TypeAlias = int | str | tuple[int, int]

_labels: dict[Path, str] = {}  # of outputs that were checked, with the names of their arguments
_stdout = 1  # the descriptor of standard output, also within `reserved_stdout`


def marked(kind: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Plain data for a JSON file that pyreactant may replace later.

    Args:
        kind: What it is, such as "matmul report".
    """
    return {"format": f"pyreactant {kind}", **data}


def check_outputs(outputs: Mapping[str, Path | None], *, overwrite: bool) -> None:
    """Check before the work that all outputs of a command can be written.

    Args:
        outputs: Paths by the names of their arguments; None for an output that is not wanted.
        overwrite: Whether an output may replace a file that is no report of pyreactant.

    Raises:
        InvalidArgumentError: Two outputs are the same file.
        FileError: An output cannot be written, or must not be replaced.
    """
    labels = {
        name: argument(name, _shown(path)) for name, path in outputs.items() if path is not None
    }
    streams = {"standard output": _stdout, "standard error": 2}
    taken: dict[_Identity, str] = {
        key: text for text, number in streams.items() if (key := _regular_file(number))
    }
    for name, label in labels.items():
        path = outputs[name]
        assert path is not None
        _labels[path] = label
        _check(path, label, overwrite)
        keys = _identities(path)
        if keys and keys[0] in taken:
            raise InvalidArgumentError(
                f"{label}: {taken[keys[0]]} goes to the same file; name another one"
            )
        taken |= dict.fromkeys(keys, label)


def check_output(path: Path, *, overwrite: bool) -> None:
    """Check that one output can be written, as `check_outputs` does.

    Raises:
        FileError: It cannot be written, or must not be replaced.
    """
    _check(path, _label(path), overwrite)


@contextlib.contextmanager
def opened(path: Path, *, overwrite: bool) -> Iterator[IO[bytes]]:
    """A file to write; a regular file appears at the end of the block, whole or not at all.

    The output is checked again: hours may have passed since the first time.

    Raises:
        FileError: It cannot be written, or must not be replaced.
    """
    check_output(path, overwrite=overwrite)
    number = _descriptor(path)
    try:
        if number is not None:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:  # closed when this process started
                    stream.flush()
            with os.fdopen(os.dup(number), "wb") as file:
                yield file
        elif is_stream(path):
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_NOCTTY), "wb") as file:
                yield file
        else:
            with replacing(target_of(path)) as partial:
                with partial.open("wb") as file:
                    yield file
                copy_mode(path, partial)
    except OSError as error:
        if number == _stdout and isinstance(error, BrokenPipeError):
            raise  # nobody reads the output of the command
        raise _unwritable(_label(path), error) from None


def write_output(data: str | bytes, path: Path, *, overwrite: bool) -> None:
    """Write an output.

    Raises:
        FileError: It cannot be written, or must not be replaced.
    """
    # The output of a program may contain lone surrogates, which UTF-8 cannot encode.
    plain = data.encode(errors="backslashreplace") if isinstance(data, str) else data
    with opened(path, overwrite=overwrite) as file:
        file.write(plain)


def is_stream(path: Path) -> bool:
    """Whether an output is written through: standard output, a device or a pipe."""
    if _descriptor(path) is not None:
        return True
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def target_of(path: Path) -> Path:
    """The regular file that an output is, behind links."""
    return Path(os.path.realpath(path))


def copy_mode(path: Path, partial: Path) -> None:
    """Give a new file the permissions of the one that it replaces, if there is one."""
    with contextlib.suppress(FileNotFoundError):
        shutil.copymode(path, partial)


@contextlib.contextmanager
def reserved_stdout() -> Iterator[None]:
    """Reserve standard output for an output; whatever else is printed goes to standard error.

    Raises:
        FileError: Standard output is closed.
    """
    global _stdout
    try:
        reserved = os.dup(1)
    except OSError as error:
        raise _unwritable("standard output", error) from None
    sys.stdout.flush()
    os.dup2(2, 1)
    _stdout = reserved
    try:
        yield
    finally:
        sys.stdout.flush()
        _stdout = 1
        os.dup2(reserved, 1)
        os.close(reserved)


def is_stdout(path: Path) -> bool:
    """Whether a path is standard output, as "-" and "/dev/stdout" are."""
    return _descriptor(path) == _stdout


def _check(path: Path, label: str, overwrite: bool) -> None:
    try:
        number = _descriptor(path)
        if number is not None:
            if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
                raise FileError(f"{label}: is open for reading only; name another file")
            return
        mode = path.stat().st_mode
    except FileNotFoundError:
        mode = None
    except OSError as error:
        raise _unwritable(label, error) from None
    except ValueError as error:  # such as a null byte
        raise FileError(f"{label}: cannot be the name of a file ({error})") from None
    if mode is None:
        _check_new(path, label)
        return
    if stat.S_ISDIR(mode):
        raise FileError(f"{label}: is a folder; name a file")
    if stat.S_ISSOCK(mode):
        raise FileError(f"{label}: is a socket, which cannot be opened as a file; name another")
    if not os.access(path, os.W_OK):
        raise FileError(f"{label}: must be writable, but is not; name another file")
    if not overwrite and _has_other_content(path, mode):
        raise FileError(
            f"{label}: exists already, and is no report of pyreactant; give another name, or "
            f"{argument('overwrite')}"
        )
    if stat.S_ISREG(mode):
        _try_folder(path, label)
    elif not stat.S_ISFIFO(mode):  # whoever reads a FIFO would see its end
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK))
        except OSError as error:
            raise _unwritable(label, error) from None


def _check_new(path: Path, label: str) -> None:
    if path.is_symlink():
        raise FileError(
            f"{label}: is a link to {str(path.readlink())!r}, which does not exist; create that "
            "file, or name another"
        )
    if not path.absolute().parent.is_dir():
        raise FileError(f"{label}: its folder does not exist; create it first")
    _try_folder(path, label)


def _try_folder(path: Path, label: str) -> None:
    """Write a byte where the file will be; permissions alone do not say whether that works."""
    try:
        with tempfile.TemporaryFile(dir=target_of(path).parent) as file:
            file.write(b"\n")
    except OSError as error:
        raise _unwritable(label, error) from None


def _has_other_content(path: Path, mode: int) -> bool:
    if stat.S_ISBLK(mode):
        return True
    if not stat.S_ISREG(mode):
        return False
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return True
    return bool(head) and _MARK.match(head) is None


def _descriptor(path: Path) -> int | None:
    """The descriptor of this process that a path names, as "-" and "/dev/stdout" do.

    It is written itself: to open such a path anew fails for a socket, or for a pipe of another
    user, and starts at the beginning of a file.
    """
    if path == STDOUT:
        return _stdout
    folders = {os.path.realpath("/proc/self/fd"), os.path.realpath("/dev/fd")}
    current = path.absolute()
    for _ in range(_MOST_LINKS):
        name = current.name
        if name.isascii() and name.isdigit() and os.path.realpath(current.parent) in folders:
            return _stdout if int(name) == 1 else int(name)
        try:
            current = current.parent / current.readlink()
        except (OSError, ValueError):
            return None
    return None


def _identities(path: Path) -> list[_Identity]:
    """What is equal for paths to one file; nothing for a device, which takes several outputs."""
    number = _descriptor(path)
    if number is not None:
        behind = _regular_file(number)
        return [number, *([behind] if behind else [])]
    try:
        status = path.stat()
    except OSError:
        return [str(target_of(path))]
    return [] if stat.S_ISCHR(status.st_mode) else [(status.st_dev, status.st_ino)]


def _regular_file(number: int) -> _Identity | None:
    """The identity of a regular file behind a descriptor."""
    try:
        status = os.fstat(number)
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def _label(path: Path) -> str:
    return _labels.get(path) or _shown(path)


def _shown(path: Path) -> str:
    text = str(path)
    return text if text.isprintable() else repr(text)


def _unwritable(label: str, error: OSError) -> FileError:
    return FileError(f"{label}: cannot be written ({error.strerror}); name another file")
