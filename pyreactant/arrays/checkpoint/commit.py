"""How a step becomes whole and is deleted, and who may write.

By names and a lock on a disk; by objects in a bucket, which can rename and lock nothing.
"""

import contextlib
import errno
import fcntl
import json
import os
import platform
import re
import secrets
import shutil
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from ...base.errors import FileError, PyReactantError
from ...base.files import sync
from . import format
from .bucket import ABSENT, COMMIT, Bucket
from .folder import Folder, is_whole
from .store import DamageError

_WRITER = ".pyreactant-writer"
"""Says who writes the folder."""

_UNFINISHED = "pyreactant-unfinished"
"""Lies in a step in a bucket before all else is written, and until all is deleted."""

_OURS = re.compile(r"\d+" + re.escape(format.TEMPORARY) + "-[0-9a-f]{8}")
"""Names of steps on a disk that a run of ours did not finish, or was deleting."""

_RENEWAL, _LAPSE = 10.0, 30.0
"""Seconds after which the writer of a bucket says that it lives, and without which it is dead."""


class Writer(ABC):
    """What the first process does to a folder of steps. Each method raises FileError.

    Args:
        folder: The folder.
    """

    _held: ClassVar[set[Folder]] = set()
    """What this process writes; the system would let it lock a file twice."""

    def __init__(self, folder: Any) -> None:
        self._folder = folder
        self._writes = False

    def take(self) -> None:
        """Become the only writer of the folder, unless another run is."""
        if self._folder in self._held:
            raise FileError(f"{self._folder} is written by this process already; open it once")
        with unwritable(self._folder):
            self._take()
        self._held.add(self._folder)
        self._writes = True

    def free(self) -> None:
        """Let others write, if `take` was called."""
        if self._writes:
            self._free()
            self._held.discard(self._folder)
            self._writes = False

    @abstractmethod
    def _take(self) -> None:
        """What the place does for `take`."""

    @abstractmethod
    def _free(self) -> None:
        """What it does for `free`."""

    @abstractmethod
    def clean(self) -> None:
        """Delete what earlier runs left."""

    def check(self) -> None:  # noqa: B027
        """Refuse to go on if another run has taken the folder over."""

    @abstractmethod
    def begin(self, target: Any, item: str) -> list[str]:
        """Prepare a step.

        Returns:
            The name under which its files are written, and what the names of its databases end
            with. Nobody else writes under both, even a run that is taken over.
        """

    @abstractmethod
    def sees(self, name: str) -> bool:
        """Whether this process sees what the first one prepared."""

    @abstractmethod
    def finish(self, target: Any, name: str, item: str) -> None:
        """Make the step whole, now that all its files are there."""

    @abstractmethod
    def drop(self, name: str) -> None:
        """Delete what was begun."""

    @abstractmethod
    def delete(self, step: Any) -> None:
        """Delete a step, of which at no time a part looks whole."""

    @abstractmethod
    def supersede(self, step: Any) -> None:
        """Move a step away, since an older one was restored."""


class DiskWriter(Writer):
    """On a disk: a step is written under another name, and renamed.

    The lock is of POSIX: the system frees it if its process dies, it also holds over NFS, and
    forked processes do not inherit it.
    """

    def _take(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self._folder / _WRITER, flags, 0o666)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, _told(), 0)
        except OSError as error:
            holder = os.pread(descriptor, 4096, 0)
            os.close(descriptor)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise _taken(self._folder, holder) from None
            if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
                raise FileError(
                    f"{self._folder}: the file system must support locks, so that two runs do "
                    f"not write one folder, but does not ({error.strerror}); mount it with "
                    "locks (Lustre: -o flock, NFS: without nolock), or name another folder"
                ) from None
            raise
        self._descriptor = descriptor

    def _free(self) -> None:
        os.close(self._descriptor)

    def clean(self) -> None:
        for path in self._folder.iterdir():
            if _OURS.fullmatch(path.name):
                shutil.rmtree(path)

    def begin(self, target: Path, item: str) -> list[str]:
        name = f"{target.name}{format.TEMPORARY}-{secrets.token_hex(4)}"
        (self._folder / name / item).mkdir(parents=True)
        return [name, ""]

    def sees(self, name: str) -> bool:
        return (self._folder / name).is_dir()

    def finish(self, target: Path, name: str, item: str) -> None:
        (self._folder / name).rename(target)
        sync(self._folder)

    def drop(self, name: str) -> None:
        shutil.rmtree(self._folder / name, ignore_errors=True)

    def delete(self, step: Path) -> None:
        away = step.with_name(f"{step.name}{format.TEMPORARY}-{secrets.token_hex(4)}")
        step.rename(away)
        shutil.rmtree(away)

    def supersede(self, step: Path) -> None:
        name, number = f"{step.name}.superseded", 1
        while step.with_name(name).exists():
            number += 1
            name = f"{step.name}.superseded-{number}"
        step.rename(step.with_name(name))


class BucketWriter(Writer):
    """In a bucket: a step is whole when it has the object that Orbax writes last.

    Who writes says so in an object, again and again, since no system tells that a process has died.
    """

    _version: Any = None
    """Of the object by which this run says so; None once another run has written it."""

    def __init__(self, folder: Any) -> None:
        super().__init__(folder)
        self._token = secrets.token_hex(8)

    def _take(self) -> None:
        holder, version = (self._folder / _WRITER).read()
        if holder is not None and not _is_dead(holder):
            version = self._lapsed(version)
        since = time.time()
        self._version = self._say(since, version)
        if self._version is None:  # another run was faster
            raise self._lost()
        self._ended = threading.Event()
        self._renews = threading.Thread(
            target=self._renew, args=(since,), name="pyreactant writes", daemon=True
        )
        self._renews.start()

    def _lapsed(self, version: Any) -> Any:
        """Wait until the writer has said nothing for a while; FileError if it lives."""
        end = time.monotonic() + _LAPSE
        while time.monotonic() < end:
            time.sleep(1)
            holder, latest = (self._folder / _WRITER).read()
            if holder is None:
                return latest
            if latest != version:
                raise self._lost()
        return version

    def _renew(self, since: float) -> None:
        while self._version is not None and not self._ended.wait(_RENEWAL):
            with contextlib.suppress(OSError):  # the next time may be better
                self._version = self._say(since, self._version)

    def _say(self, since: float, version: Any) -> Any:
        """Say that this run writes, in place of a version; None if another run does."""
        said = self._folder / _WRITER
        if (latest := said.write(_told(since, self._token), version)) is not None:
            return latest
        holder, latest = said.read()  # a try whose answer was lost has changed the version, too
        return latest if self._is_mine(holder) else None

    def _is_mine(self, holder: bytes | None) -> bool:
        return json.loads(holder or b"{}").get("token") == self._token

    def _lost(self) -> FileError:
        if (holder := (self._folder / _WRITER).read()[0]) is not None:
            return _taken(self._folder, holder)
        return FileError(
            f"{self._folder}: {_WRITER} is not there, so another run has taken it over and has "
            "ended, or there is no such bucket; end this run, or name another folder"
        )

    def check(self) -> None:
        if self._writes and not self._is_mine((self._folder / _WRITER).read()[0]):
            raise self._lost()

    def _free(self) -> None:
        self._ended.set()
        self._renews.join()
        if self._version is not None:
            with contextlib.suppress(OSError):  # it lapses
                (self._folder / _WRITER).write(None, self._version)

    def clean(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            for step in self._folder.iterdir():
                if (step / _UNFINISHED).is_file():
                    if is_whole(step):
                        (step / _UNFINISHED).write(None)
                    else:
                        step.delete_below(but=_UNFINISHED)

    def begin(self, target: Bucket, item: str) -> list[str]:
        self.check()
        begun = target / _UNFINISHED
        if begun.write(_told(), None if self._writes else ABSENT) is None:
            raise FileError(f"{target} is written by another process; name a new folder")
        return [target.name, f"-{secrets.token_hex(4)}"]

    def sees(self, name: str) -> bool:
        return (self._folder / name / _UNFINISHED).is_file()

    def finish(self, target: Bucket, name: str, item: str) -> None:
        self.check()
        text = f"Checkpoint commit was successful to {target}"
        for folder in (target / item, target):
            (folder / COMMIT).write_text(text, "utf-8")
        (target / _UNFINISHED).write(None)

    def drop(self, name: str) -> None:
        with contextlib.suppress(OSError, FileError):
            self.check()  # else it is the step of the run that has the folder now
            (self._folder / name).delete_below(but=_UNFINISHED)

    def delete(self, step: Bucket) -> None:
        self.check()
        (step / _UNFINISHED).write(_told())
        (step / COMMIT).write(None)
        step.delete_below(but=_UNFINISHED)

    def supersede(self, step: Bucket) -> None:
        raise FileError(
            f"{step} is newer than the step that was restored, and a bucket cannot rename it; "
            "copy or delete it by the bucket's own tool, or write to another folder"
        )


@contextlib.contextmanager
def unwritable(target: Folder, nbytes: int = 0) -> Iterator[None]:
    """Say of what the system refuses where it is, and how much this process writes."""
    try:
        yield
    except PyReactantError:
        raise
    except OSError as error:
        needs = f"this process writes {nbytes} bytes there: " if nbytes else ""
        advice = "free some space, or name a folder that can be written"
        if isinstance(target, Bucket):
            advice = "see whether the bucket exists, and lets this login write"
        raise FileError(
            f"{target}: cannot be written on {platform.node()} ({error.strerror or error}); {needs}"
            f"{advice}"
        ) from None
    except DamageError as error:
        raise FileError(
            f"{target}: what was written cannot be read back on {platform.node()} ({error}); see "
            "whether its disk is healthy, or name a folder on another one"
        ) from None


def writer_of(folder: Folder) -> Writer:
    """The writer for a folder of a disk or a bucket."""
    return BucketWriter(folder) if isinstance(folder, Bucket) else DiskWriter(folder)


def _told(since: float | None = None, token: str = "") -> bytes:
    """What the writer says of itself: each time something else, which makes another version."""
    now = time.time()
    who = {"host": platform.node(), "machine": _machine(), "process": os.getpid(), "token": token}
    return json.dumps({**who, "since": since or now, "renewed": now}).encode()


def _machine() -> str:
    """What has the numbers of processes: containers have their own, and names of hosts repeat."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return platform.node()


def _is_dead(holder: bytes) -> bool:
    """Whether the holder was a process of this machine, and is no more."""
    try:
        told = json.loads(holder)
        if told["machine"] != _machine():
            return False
        if told["process"] == os.getpid():  # the number came again, as in a restarted container
            return True
        os.kill(told["process"], 0)
    except ProcessLookupError:
        return True
    except (ValueError, LookupError, TypeError, OSError):
        pass
    return False


def _taken(folder: Folder, holder: bytes) -> FileError:
    who = "another process"
    with contextlib.suppress(ValueError, KeyError, TypeError):
        told = json.loads(holder)
        age = max(0, time.time() - told["since"])
        who = f"process {told['process']} on {told['host']}, since {age:.0f} s"
    return FileError(
        f"{folder} is written by another run ({who}); wait for its end, end it, or name another "
        "folder"
    )
