"""One at a time in a Julia project, over all processes and machines that share it."""

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
    """Who has the lock: process `pid` on `host`, since a time, to do `what`."""

    host: str
    pid: int
    since: str
    what: str

    def __str__(self) -> str:
        return f"`{self.what}` (process {self.pid} on {self.host}, since {self.since})"


@contextlib.contextmanager
def held(
    project: Path,
    what: str,
    *,
    advice: str,
    wait: float = WAIT,
    waiting: Callable[[str], None] = lambda holder: None,
) -> Iterator[None]:
    """Hold the project's lock; it ends with this process, however that ends.

    Args:
        project: The folder of the Julia project.
        what: What is done meanwhile, for those who wait.
        advice: What to do where nothing can be written there.
        wait: Seconds to wait for another holder.
        waiting: Called with who holds it, once for each holder.

    Raises:
        DeadlineError: Another still holds it.
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
            with contextlib.suppress(OSError):  # the next holder may be asked before it says so
                os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)  # which lets go; the file stays, or two could hold one each


def _acquire(descriptor: int, path: Path, wait: float, waiting: Callable[[str], None]) -> None:
    deadline = time.monotonic() + wait
    told = None
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
                f"the file system of {path.parent.parent} must have locks, but has none "
                f"({error.strerror}); set up on another one: pyreactant setup --project DIR"
            ) from None
        holder = _holder(descriptor)
        if time.monotonic() >= deadline:
            raise DeadlineError(
                f"{path.parent.parent} is still held by {holder} after {wait:g} s; "
                "wait for it, or end it, then run this again"
            )
        if holder != told:
            told = holder
            waiting(holder)
        time.sleep(_POLL)


def _holder(descriptor: int) -> str:
    try:
        return str(Holder(**json.loads(os.pread(descriptor, 4096, 0))))
    except (ValueError, TypeError):  # it has only just taken it, and not said so yet
        return "another process"
