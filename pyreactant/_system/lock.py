"""The lock of a Julia project, across all processes and machines that share it."""

import contextlib
import errno
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from .._errors import DeadlineError, RequirementError
from .files import writing

WAIT = 3600.0
"""Seconds to wait for another setup, which may have to download and compile everything."""

_POLL = 0.1
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL)


@dataclass(frozen=True)
class Holder:
    """The holder of a lock: process `pid` on `host`, since a time, for the command `what`."""

    host: str
    pid: int
    since: str
    what: str

    def __str__(self) -> str:
        return f"`{self.what}` (process {self.pid} on {self.host}, since {self.since})"


@contextlib.contextmanager
def project_lock(
    project: Path,
    what: str,
    *,
    advice: str,
    wait: float = WAIT,
    waiting: Callable[[str], None] = lambda holder: None,
) -> Iterator[None]:
    """Hold the project's lock; the system releases it if this process dies.

    Args:
        project: The folder of the Julia project.
        what: The command that holds the lock, for messages of waiting processes.
        advice: What to do if the folder is read-only.
        wait: Seconds to wait for another holder.
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
        mine = Holder(os.uname().nodename, os.getpid(), now, what)
        with writing(path, advice):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(asdict(mine)).encode(), 0)
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
        holder = _holder(descriptor)
        if time.monotonic() >= deadline:
            raise DeadlineError(
                f"{path.parent.parent} is still held by {holder} after {wait:g} s; "
                "wait for it, or end it, then run it again"
            )
        if holder != announced:
            announced = holder
            waiting(holder)
        time.sleep(_POLL)


def _holder(descriptor: int) -> str:
    try:
        return str(Holder(**json.loads(os.pread(descriptor, 4096, 0))))
    except (ValueError, TypeError):  # it holds the lock, but has not written its name yet
        return "another process"
