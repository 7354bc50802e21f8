"""A folder of compiled programs: bytes by key, each in a file that is replaced as a whole.

What is loaded from it runs in this process, so only this user, or root, may own and write it.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import platform
import re
import stat
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path

from ..base.errors import FileError
from ..base.files import replacing

LIMIT = 20 << 30
"""Bytes that all programs of a folder may take; those not used for longest are removed first."""

_FORMAT = b"pyreactant compiled program 1\n"
_SUFFIX = ".program"
_LOCK = ".lock"
_SCANNED = 3600
"""Seconds until a process that starts looks for old programs again."""
_ABANDONED = 24 * 3600
"""Seconds after which a temporary file belongs to a process that was killed."""
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL)


class CompileCache:
    """The programs of one version, platform and type of machine.

    Args:
        root: The folder that the user named; it is made if it does not exist.
        kind: Name of the folder in it.
        tell: Prints a message for the user.

    Raises:
        FileError: The folder cannot be made, or others than this user may write it.
    """

    def __init__(self, root: Path, kind: str, tell: Callable[[str], None]) -> None:
        self.folder = root / kind
        self._tell = tell
        self._told: set[str] = set()
        try:
            root.mkdir(parents=True, exist_ok=True)
            self.folder.mkdir(mode=0o700, exist_ok=True)
            check_owner(self.folder)
        except OSError as error:
            raise FileError(
                f"{self.folder} must be a folder that this process can make or read, but is not "
                f"({error.strerror}); name another one"
            ) from None
        remove_old(root, LIMIT, self._tell_once)

    def read(self, key: str) -> bytes | None:
        """The program of a key; None if there is none. A damaged entry is dropped."""
        path = self._path(key)
        try:
            entry = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self.drop(key, str(error.strerror))
            return None
        program = unpack(entry, key)
        if program is None:
            self.drop(key, "it is damaged, or no entry of this program")
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return program

    def write(self, key: str, program: bytes) -> None:
        """Keep the program of a key; a failure is told once, and changes nothing."""
        path = self._path(key)
        # Processes of several hosts, and threads of one process, may write the same entry.
        writer = f"{os.uname().nodename[:64]}-{os.getpid()}-{threading.get_ident()}.partial"
        try:
            with replacing(path, partial=writer) as temporary:
                temporary.write_bytes(pack(program, key))
        except OSError as error:
            self._tell_once(
                f"the compile cache {self.folder} cannot be written ({error.strerror}); what is "
                "compiled now is compiled again at the next start"
            )

    def drop(self, key: str, why: str) -> None:
        """Remove an entry that cannot be used; that is told once."""
        path = self._path(key)
        with contextlib.suppress(OSError):
            path.unlink()
        self._tell_once(
            f"an entry of the compile cache is dropped, and its program compiled again: {path} "
            f"({why})",
            about="dropped",
        )

    def _path(self, key: str) -> Path:
        return self.folder / (hashlib.sha256(key.encode()).hexdigest() + _SUFFIX)

    def _tell_once(self, text: str, about: str = "") -> None:
        if (about or text) not in self._told:
            self._told.add(about or text)
            self._tell(text)


def check_owner(folder: Path) -> None:
    """Check that nobody else can put programs into a folder, which would run here.

    Raises:
        FileError: Others than this user, or root, own it or may write it.
        OSError: It cannot be read.
    """
    status = folder.stat()
    if status.st_uid not in (0, os.geteuid()):
        raise FileError(
            f"{folder} belongs to user {status.st_uid}, whose programs would run here; name a "
            "folder of your own"
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise FileError(
            f"{folder} can be written by other users, whose programs would run here; run: "
            f"chmod go-w {folder}"
        )


def size_of(root: Path) -> tuple[int, int]:
    """Number of programs in a folder that a user named, and their bytes."""
    sizes = [path.stat().st_size for path in root.glob(f"jax-*/*{_SUFFIX}")]
    return len(sizes), sum(sizes)


def pack(program: bytes, key: str) -> bytes:
    """The entry of a program."""
    content = zlib.compress(program, 1)
    return _FORMAT + _digest(content, key) + content


def unpack(entry: bytes, key: str) -> bytes | None:
    """The program in an entry; None if the entry is not what `pack` made for this key."""
    content = entry[len(_FORMAT) + 32 :]
    if entry != _FORMAT + _digest(content, key) + content:
        return None
    return zlib.decompress(content)


def _digest(content: bytes, key: str) -> bytes:
    return hashlib.sha256(key.encode() + b"\0" + content).digest()


def kind_of(version: str, platform_name: str, device_kind: str, cpu: str = "") -> str:
    """The folder's name for a version of XLA and a type of machine.

    Args:
        version: Version of jaxlib.
        platform_name: Platform of the devices, such as "cpu".
        device_kind: Their kind, as the runtime names it.
        cpu: Name and features of this machine's processor; they are read if they are not given.
            A program for CPUs uses instructions that another processor may not have.
    """
    machine = device_kind
    if platform_name == "cpu":
        digest = hashlib.sha256((cpu or _processor()).encode()).hexdigest()
        machine = f"{platform.machine()}-{digest[:12]}"
    return re.sub(r"[^\w.]+", "-", f"jax-{version}-{platform_name}-{machine}")[:200]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines()
    except OSError:
        return platform.processor()
    names = ("model name", "flags", "Features", "CPU implementer", "CPU part")
    return "\n".join(line for line in lines if line.startswith(names))


def remove_old(root: Path, limit: int, tell: Callable[[str], None]) -> None:
    """Remove the programs that were not used for longest until the rest fit in `limit` bytes.

    One process at a time does it, at most once an hour.

    Args:
        root: The folder that the user named.
        limit: Bytes that its programs may take.
        tell: Prints a message for the user.
    """
    lock = root / _LOCK
    try:
        if lock.exists() and time.time() - lock.stat().st_mtime < _SCANNED:
            return
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return  # a folder that may only be read
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove_old(root, limit)
        os.utime(lock)
    except BlockingIOError:
        pass  # another process does it
    except OSError as error:
        if error.errno in _NO_LOCKS:
            tell(
                f"the file system of the compile cache {root} has no locks, so programs that are "
                "not used any more are not removed; remove the folder when it is too large"
            )
    finally:
        os.close(descriptor)


def _remove_old(root: Path, limit: int) -> None:
    now, total = time.time(), 0
    used = []
    for path in root.glob("jax-*/*"):
        with contextlib.suppress(OSError):
            status = path.stat()
            if path.suffix == _SUFFIX:
                used.append((status.st_mtime, status.st_size, path))
            elif path.suffix == ".partial" and now - status.st_mtime > _ABANDONED:
                path.unlink()
    for _, size, path in sorted(used, reverse=True):
        total += size
        if total > limit:
            with contextlib.suppress(OSError):
                path.unlink()
