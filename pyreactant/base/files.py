"""Files: this user's folders, files replaced atomically, archives, and a Julia project's lock.

The folders are those of the XDG specification, or Apple's on macOS. The variables XDG_CACHE_HOME,
XDG_CONFIG_HOME and XDG_STATE_HOME come first on both; a relative path in them is ignored, as the
specification demands. No function creates them. They import `platformdirs` when they are called:
a command's --help does not wait for it.
"""

import contextlib
import errno
import fcntl
import json
import os
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from .errors import DeadlineError, FileError, PyReactantError, RequirementError

_PACKAGE = "pyreactant"


def cache_folder() -> Path:
    """Folder for files that can be recreated: ``~/.cache/pyreactant``."""
    return _folder("cache")


def config_folder() -> Path:
    """Folder for settings: ``~/.config/pyreactant``."""
    return _folder("config")


def state_folder() -> Path:
    """Folder for records that outlive a process: ``~/.local/state/pyreactant``."""
    return _folder("state")


def _folder(kind: str) -> Path:
    import platformdirs

    try:
        path: Path = getattr(platformdirs, f"user_{kind}_path")(_PACKAGE)
    except RuntimeError:  # no HOME, and no entry of the account, as in some containers
        raise RequirementError(
            f"this account must have a home folder, but has none; set HOME, or "
            f"XDG_{kind.upper()}_HOME, to a folder that you can write"
        ) from None
    return path


def earlier_state_folder() -> Path | None:
    """The `state_folder` of earlier versions on macOS; None on Linux."""
    return Path.home() / ".local" / "state" / _PACKAGE if sys.platform == "darwin" else None


def check_home(folder: Path) -> None:
    """Check, before a folder is made, that it is in no home folder that does not exist.

    Root could make that. Accounts of services have such homes, as Debian's /nonexistent.

    Raises:
        PermissionError: It is in one.
    """
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - pathlib's raises if there is none
    if folder.is_relative_to(home) and not home.exists():
        raise PermissionError(errno.EACCES, f"the home folder {home} does not exist")


_FULL = {
    errno.ENOSPC: "free some space there",
    errno.EDQUOT: "free some space there",
    errno.EFBIG: "raise the limit of a file's size (ulimit -f)",
}
_LITTLE = 1 << 16
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)


@contextlib.contextmanager
def replacing(path: Path, *, partial: str = "", durable: bool = False) -> Iterator[Path]:
    """A temporary file to write, which replaces `path` at the end of the block.

    Readers see the old file or the new one, never a part, even if this process is killed.

    Args:
        partial: Suffix of the temporary file's name. With a fixed suffix a killed process leaves
            at most one file behind, but the caller must hold a lock. By default the suffix is
            unique to this thread.
        durable: Whether the new file must survive a power failure.
    """
    # A name may have 255 bytes, and a character 4.
    own = f"{os.getpid()}-{threading.get_native_id()}.partial"
    temporary = path.with_name(f".{path.name[:50]}.{partial or own}")
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
    """Replace a file and keep its permissions; for a link, replace its target."""
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
        advice: What to do if it is read-only.

    Raises:
        RequirementError: A system error occurred in the block, or `write_text` found no room.
    """
    try:
        yield
    except PyReactantError as raised:  # some of these are subclasses of OSError
        full = raised.__cause__
        if isinstance(raised, FileError) and isinstance(full, OSError) and full.errno in _FULL:
            raise _unwritten(what, full, advice) from full
        raise
    except OSError as error:
        raise _unwritten(what, error, advice) from error


def _unwritten(what: Path, error: OSError, advice: str) -> RequirementError:
    if error.errno not in _READ_ONLY:
        advice = f"{_FULL.get(error.errno or 0, 'fix that')}, then run it again"
    return RequirementError(f"cannot write {what}: {error.strerror}; {advice}")


def is_full(folder: Path) -> bool:
    """Whether the disk of a folder has less room than logs and states need."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < _LITTLE


def write_json(data: Any, path: Path, *, indent: int | None = 2) -> None:
    """Write plain data as a JSON file, atomically.

    Args:
        indent: Spaces for each level; None writes one line, which is 20 times as fast.

    Raises:
        FileError: The file cannot be written.
    """
    write_text(plain_json(data, indent=indent), path)


def plain_json(data: Any, *, indent: int | None = 2) -> str:
    """Plain data as the text of a JSON file; the argument is that of `write_json`."""
    return json.dumps(data, indent=indent, allow_nan=False) + "\n"


_LINE = 100
"""Characters of a line of JSON that a list without dictionaries may fill."""


def json_lines(data: Any, level: int = 0) -> str:
    """Plain data as JSON for readers: numbers have no line of their own."""
    inner, outer = "\n" + " " * (level + 1), "\n" + " " * level
    numbers = isinstance(data, dict) and all(type(x) in (int, float) for x in data.values())
    if isinstance(data, dict) and not numbers:
        pairs = (f"{json.dumps(key)}: {json_lines(x, level + 1)}" for key, x in data.items())
        return f"{{{inner}{f',{inner}'.join(pairs)}{outer}}}"
    line = json.dumps(data, allow_nan=False)
    flat = "{" not in line and (len(line) <= _LINE or "[" not in line[1:])
    if numbers or flat or not isinstance(data, (list, tuple)):
        return line
    return f"[{inner}{f',{inner}'.join(json_lines(x, level + 1) for x in data)}{outer}]"


def write_text(text: str | Iterable[str], path: Path) -> None:
    """Write a text file in UTF-8, atomically.

    Args:
        text: The text, or its lines, each with its end.

    Raises:
        FileError: The file cannot be written.
    """
    lines = [text] if isinstance(text, str) else text
    try:
        # The output of a program may contain lone surrogates, which UTF-8 cannot encode.
        with (
            replacing(path) as partial,
            partial.open("w", encoding="utf-8", errors="backslashreplace") as file,
        ):
            file.writelines(lines)
    except OSError as error:
        raise FileError(f"{path}: cannot be written ({error.strerror})") from error


def read_json(path: Path, what: str) -> dict[str, Any]:
    """The object in a JSON file.

    Args:
        what: What the file should be, for messages.

    Raises:
        FileError: The file cannot be read, or does not hold a JSON object.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError:
        raise FileError(
            f"{path}: truncated or damaged, so not {what}; copy it again, or run again"
        ) from None
    if not isinstance(data, dict):
        raise FileError(f"{path}: not {what}")
    return data


_LEFT_OUT = ("__pycache__", ".git", ".venv", ".mypy_cache", ".ruff_cache", ".hypothesis")


def pack(files: Mapping[str, Path], archive: tarfile.TarFile) -> None:
    """Add files and folders to an archive for another machine; those that exist.

    Args:
        files: The files by the names that they get.
        archive: It gets no names of this machine's user, and no caches and repositories.
    """
    for name, path in files.items():
        if path.exists():
            archive.add(path, name, filter=_without_owner)


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return None if Path(entry.name).name in _LEFT_OUT else entry


def unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """Unpack an archive from another machine; nothing can land outside `folder`.

    Files belong to this process's user. Nobody else may write them.

    Raises:
        tarfile.TarError: An entry leads outside the folder or to itself, or is not a file, folder
            or link.
        OSError: A file cannot be written.
    """
    try:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(folder, filter="data")
        else:  # Python 3.11.0 to 3.11.3: the filter came in 3.11.4
            checked = (_checked(entry, folder) for entry in archive)
            archive.extractall(folder, checked)  # noqa: S202 - of what was checked
    except RecursionError:
        raise tarfile.TarError("a link in the archive leads to itself") from None


def _checked(entry: tarfile.TarInfo, folder: Path) -> tarfile.TarInfo:
    """What `tarfile.data_filter` does with an entry, once those before it are unpacked."""
    entry.name = entry.name.lstrip("/")
    places = [folder / entry.name]
    if entry.issym():
        places.append(folder / entry.name.rpartition("/")[0] / entry.linkname)
    elif entry.islnk():
        places.append(folder / entry.linkname)
    elif not (entry.isreg() or entry.isdir()):
        raise tarfile.TarError(f"{entry.name!r} is not a file, folder or link")
    # os.path.realpath also takes links in a circle, for which Path.resolve raises a RuntimeError.
    inside, *real = (Path(os.path.realpath(place)) for place in (folder, *places))
    if entry.linkname.startswith("/") or not all(path.is_relative_to(inside) for path in real):
        raise tarfile.TarError(f"{entry.name!r} leads outside the archive's folder")
    allowed = 0o755 if entry.mode & 0o100 else 0o644
    entry.mode = entry.mode & allowed | 0o600
    if entry.isdir():
        entry.mode = places[0].stat().st_mode & 0o777 if places[0].is_dir() else 0o755
    entry.uid, entry.gid, entry.uname, entry.gname = os.geteuid(), os.getegid(), "", ""
    return entry


LOCK_WAIT = 3600.0
"""Seconds to wait for another setup, which may have to download and compile everything."""

_LOCK_POLL = 0.1
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL)


@contextlib.contextmanager
def project_lock(
    project: Path,
    what: str,
    *,
    advice: str,
    wait: float = LOCK_WAIT,
    waiting: Callable[[str], None] = lambda holder: None,
) -> Iterator[None]:
    """Hold the project's lock; the system releases it if this process dies.

    Args:
        advice: What to do if the folder is read-only.
        waiting: Called with a description of the holder, once for each holder.

    Raises:
        DeadlineError: Another process still holds the lock after `wait` seconds.
        RequirementError: The folder is read-only, or its file system has no locks.
    """
    path = project / "pyreactant" / "lock"
    with writing(path, advice):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _acquire(descriptor, path, wait, waiting)
        now = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        holder = f"`{what}` (process {os.getpid()} on {os.uname().nodename}, since {now})"
        with writing(path, advice):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, holder.encode(), 0)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # the next holder must not appear under our name
                os.ftruncate(descriptor, 0)
    finally:
        # This releases the lock. The file stays: after a removal two processes could hold a lock.
        os.close(descriptor)


def _acquire(descriptor: int, path: Path, wait: float, waiting: Callable[[str], None]) -> None:
    deadline = time.monotonic() + wait
    announced = None
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            pass
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            raise RequirementError(
                f"the file system of {path.parent.parent} must support locks, but does not "
                f"({error.strerror}); use another file system: pyreactant setup --project DIR"
            ) from None
        # It may hold the lock, and not have written its name yet.
        holder = os.pread(descriptor, 4096, 0).decode(errors="replace") or "another process"
        if time.monotonic() >= deadline:
            raise DeadlineError(
                f"{path.parent.parent} is still held by {holder} after {wait:g} s; "
                "wait for it, or end it, then run it again"
            )
        if holder != announced:
            announced = holder
            waiting(holder)
        time.sleep(_LOCK_POLL)
