"""The record of a job on disk, in the user's state folder: ``pyreactant/jobs/ID/``.

It is written before anything is asked for. Only the user can read it (0700, 0600)::

    job.json      what was asked for; never changes
    lock          held by the submitting process, then by a keeper on this machine
    handle.json   what the target needs to find the job again
    state.json    how the job stands; replaced as a whole
    cancel        the job is to end
    work/         everything that the processes need: call.json, env.json, arguments/, code/
    run/          the supervisor's folder: process-N.log, report.json
    out/          what the processes leave: value/
"""

import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import pwd
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.errors import ExitCode, FileError, RequirementError, StateError
from ..base.files import check_home, replacing, state_folder
from .spec import is_made_of

if TYPE_CHECKING:
    from .queued.leftover import Leftover

SCHEMA = 2
_VERSION_0_1 = 1

ENDED = ("done", "failed", "cancelled", "preempted", "lost")
"""The states in which nothing of a job runs any more; they are final."""

SECRETS = ("work/env.json", "secret", "job.tar.gz")
"""What may hold secrets: the user's variables, a run's secret on Slurm, what travels to Ray."""

STATES = ("requested", "queued", "starting", "running", *ENDED)
"""All states of a job, in the order in which it can reach them."""


class DamagedError(FileError):
    """A file of a job's record cannot be read."""

    def __init__(self, folder: Path, name: str, why: object) -> None:
        super().__init__(
            f"{folder / name} is damaged or cannot be read ({why}); once nothing of the job runs, "
            f"remove it, with logs and value, by: pyreactant jobs clean {folder.name}"
        )


@dataclass(frozen=True, slots=True)
class Status:
    """How a job stands.

    Attributes:
        state: One of `STATES`.
        reason: Why it waits, or how it ended, in one sentence; "" if there is nothing to say.
        exit_code: Exit code of the run; None while its processes run (cancelled: 130).
        since: Seconds since the epoch at which the state was noted.
        cause: Cause of the end, as in reports; "" before it, or if nothing more is known.
    """

    state: str
    reason: str = ""
    exit_code: int | None = None
    since: float = 0.0
    cause: str = ""

    @property
    def ended(self) -> bool:
        """Whether the state is final."""
        return self.state in ENDED


CANCELLED = Status("cancelled", "cancelled by the user", ExitCode.INTERRUPTED)


@dataclass(frozen=True, slots=True)
class Unanswered(Status):
    """How a job stood when its place answered last; the reason is why it does not answer now.

    Attributes:
        gone: Whether nothing listens where the place was.
    """

    gone: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """One job: its folder and the content of job.json.

    Attributes:
        folder: The job's folder.
        id: Its name, such as "20261122-204500-3f9a".
        what: What runs, in a few words, such as "train.py:main".
        target: Kind of the target: "local", "slurm", "tpu", "ray" or "kubernetes".
        settings: Settings of the target.
        origin: "submit", or the command that runs in the foreground, such as "run".
        created: Seconds since the epoch.
        host: The submitting machine.
        pid: The submitting process.
        spec: The rest of its `RunSpec`: the "program" as words, its "kind" (function, script,
            module, code, julia, command), "copies", "requirements", "env" by names, and "out". The
            arguments of a function lie in `work`.
    """

    folder: Path
    id: str
    what: str
    target: str
    settings: Mapping[str, Any]
    origin: str = "submit"
    created: float = 0.0
    host: str = ""
    pid: int = 0
    spec: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def work(self) -> Path:
        """Folder with everything that the processes need."""
        return self.folder / "work"

    @property
    def run(self) -> Path:
        """The supervisor's folder, with process-N.log and report.json."""
        if self.target == "slurm" and self.origin != "submit" and (run := self.handle().get("run")):
            return Path(run)
        return Path(self.spec.get("out") or self.folder / "run")

    @property
    def out(self) -> Path:
        """Folder with what the processes leave."""
        return self.folder / "out"

    @property
    def cancelling(self) -> bool:
        """Whether the job is to end."""
        return (self.folder / "cancel").exists()

    def ask_to_cancel(self) -> None:
        """Note that the job is to end; its keeper looks at this.

        Raises:
            RequirementError: The folder cannot be written.
        """
        with changed(self.folder), private_file(self.folder / "cancel"):
            pass

    def status(self) -> Status:
        """How the job stood when its state was written last; an ended job's secrets go."""
        noted = self._read("state.json")
        if noted:
            if "state" in noted and is_made_of(Status, noted):
                status = Status(**noted)
                if status.ended:
                    self._delete_secrets()
                return status
            raise DamagedError(self.folder, "state.json", "this version writes other fields")
        if not (self.folder / "job.json").exists():
            raise FileError(f"the record of the job {self.id} was removed from {self.folder}")
        return Status("requested", since=self.created)

    def write_status(self, status: Status) -> Status:
        """Write how the job stands, unless it has ended.

        A disk that is full, or cannot be written, does not hide how it stands.

        Returns:
            How it stands.
        """
        before = self.status()
        if before.ended:
            return before
        if status.ended:
            self._delete_secrets()
        status = dataclasses.replace(status, since=status.since or time.time())
        if (before.state, before.reason) != (status.state, status.reason):
            with contextlib.suppress(OSError):
                _write(self.folder / "state.json", dataclasses.asdict(status))
        return status

    def write_gone(self, why: str) -> Status:
        """Write that nothing keeps the job any more: it is cancelled if it was to end, else lost.

        Returns:
            How it stands.
        """
        if self.cancelling:
            why = f"{CANCELLED.reason}; {why}"
            return self.write_status(dataclasses.replace(CANCELLED, reason=why))
        return self.write_status(Status("lost", why, ExitCode.LOST))

    def _delete_secrets(self) -> None:
        for name in SECRETS:
            with contextlib.suppress(OSError):  # most jobs have none, or their keeper was first
                os.unlink(f"{self.folder}/{name}")  # noqa: PTH108 - for a thousand jobs

    def handle(self) -> dict[str, Any]:
        """What the target wrote to find the job again; empty if it wrote nothing yet."""
        return self._read("handle.json")

    def write_handle(self, handle: Mapping[str, Any]) -> None:
        """Write what the target needs to find the job again."""
        _write(self.folder / "handle.json", handle)

    def call(self) -> dict[str, Any]:
        """What the processes run: `call.Call` as JSON."""
        return self._read("work/call.json")

    def report(self) -> dict[str, Any]:
        """The supervisor's report; empty if there is none."""
        run = self._last_restart() or self.run
        if own := report_in(run):
            return own
        # A cross-check has a folder for each runtime; the first that failed counts.
        reports = [*filter(None, map(report_in, sorted(run.glob("*/"))))]
        return next((r for r in reports if r.get("exit_code")), reports[0] if reports else {})

    def _last_restart(self) -> Path | None:
        """The supervisor's folder after Slurm has started the job again; None before."""
        folders = self.run.glob("restart-*")
        return max(folders, key=lambda folder: int(folder.name[8:]), default=None)

    def log(self, process: int) -> Path:
        """The log of one process; it may not exist yet."""
        own = (self._last_restart() or self.run) / f"process-{process}.log"
        if self.origin != "submit" and not own.exists():  # runs of several runtimes, or attempts
            return next(iter(sorted(self.run.glob(f"**/{own.name}"))), own)
        return own

    def command(self, work: str | None = None, out: str | None = None) -> list[str]:
        """The program to pass to ``pyreactant run --`` on every process.

        Args:
            work: Where `work` is for the processes; None for here.
            out: Where `out` is for the processes; None for here.
        """
        folders = work or str(self.work), out or str(self.out)
        return ["-m", "pyreactant.runs.worker", *folders]

    def slices_left(self) -> "list[Leftover]":
        """The slices that may cost money although the keeper ended or cannot delete them.

        This machine's journal says it; no service is asked.
        """
        if self.target not in ("tpu", ""):  # "" for a record that is damaged
            return []
        from .queued.journal import Journal
        from .queued.leftover import leftovers

        status = self.status() if self.target else None
        unsure = status is not None and status.ended and status.state != "done"
        since = self.created if unsure else None
        return list(leftovers(Journal(), job=self.id, damaged_since=since))

    def is_kept(self) -> bool:
        """Whether a process of this machine holds the lock."""
        try:
            descriptor = os.open(self.folder / "lock", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            # Shared, so that two processes that ask at the same time do not see each other.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def _read(self, name: str) -> dict[str, Any]:
        try:
            content = json.loads(_content(f"{self.folder}/{name}"))
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, ValueError, RecursionError) as error:
            raise DamagedError(self.folder, name, error) from None
        return content if isinstance(content, dict) else {}


def report_in(folder: Path) -> dict[str, Any]:
    """The report of a run in its folder; empty if there is none."""
    with contextlib.suppress(OSError, ValueError):
        read = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        if isinstance(read, dict) and "cause" in read:
            return read
    return {}


def jobs_folder() -> Path:
    """The folder of all records of this user; it need not exist."""
    return state_folder() / "jobs"


def create(
    what: str,
    target: str,
    settings: Mapping[str, Any],
    *,
    origin: str = "submit",
    adopted: tuple[str, float] | None = None,
    **spec: Any,
) -> Record:
    """Make the folder of a new job, hold its lock and write job.json; arguments as of `Record`.

    Args:
        adopted: Id and time of a job that has been submitted elsewhere.

    Raises:
        RequirementError: The state folder cannot be written, or its disk is full.
        StateError: Another shell adopts this job at the same time.
    """
    with written(jobs_folder()):
        private_folder(jobs_folder())
        while True:
            folder = jobs_folder().resolve() / (adopted[0] if adopted else new_id())
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700)
                break
            if adopted:
                raise StateError(
                    f"another shell adopts the job {folder.name} at this moment; see it with: "
                    f"pyreactant jobs status {folder.name}"
                )
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        record = Record(
            folder=folder,
            id=folder.name,
            what=what,
            target=target,
            settings=dict(settings),
            origin=origin,
            created=adopted[1] if adopted else time.time(),
            host=os.uname().nodename,
            pid=os.getpid(),
            spec=spec,
        )
        data = {**dataclasses.asdict(record), "folder": str(folder), "schema": SCHEMA}
        _write(folder / "job.json", data)
    _locks[record.id] = lock
    return record


def new_id() -> str:
    """An id, by the time; another process may choose the same in the same second."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    return f"{stamp}-{secrets.token_hex(2)}"


_locks: dict[str, int] = {}


def lock_of(record: Record) -> int:
    """The descriptor by which this process holds the lock of a job that it has created.

    The lock is free once this descriptor, and every copy that a child inherited, is closed.
    """
    return _locks[record.id]


def release(record: Record) -> None:
    """Stop holding the lock of a job that this process has created."""
    if (lock := _locks.pop(record.id, None)) is not None:
        os.close(lock)


def draft(what: str, target: str, settings: Mapping[str, Any], **spec: Any) -> Record:
    """A record that is not on the disk, for `Target.plan`."""
    folder = jobs_folder() / "ID"
    return Record(folder, folder.name, what, target, settings, spec=spec)


def load(folder: Path) -> Record:
    """The record in a folder.

    Raises:
        FileError: It is not a job's folder, is damaged, was moved, or belongs to another user.
    """
    try:
        data = json.loads(_content(f"{folder}/job.json"))
        schema = data.pop("schema")
        if schema == _VERSION_0_1:
            data = _from_version_0_1(data)
        elif schema != SCHEMA:
            raise FileError(
                f"{folder} was written by another version of pyreactant; use that version for it"
            )
        noted = data.pop("folder")
        record = Record(folder=folder if noted == str(folder) else Path(noted), **data)
        if not is_made_of(Record, data):
            raise ValueError("this version writes other fields")
    except PermissionError:
        raise FileError(f"the job {folder.name} belongs to {_owner(folder)}, not to you") from None
    except FileNotFoundError:
        raise FileError(f"{folder} is not the folder of a job: it has no job.json") from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DamagedError(folder, "job.json", error) from None
    if os.stat(folder).st_uid != os.geteuid():  # noqa: PTH116 - for a thousand jobs
        raise FileError(f"the job {folder.name} belongs to {_owner(folder)}, not to you")
    if record.folder is not folder and record.folder.resolve() != folder.resolve():
        raise FileError(
            f"the folder of the job {record.id} was moved from {record.folder} to {folder}; move "
            "it back, since its keeper writes there"
        )
    return record


def _from_version_0_1(data: dict[str, Any]) -> dict[str, Any]:
    """The content of job.json as this version has it."""
    more = data.pop("more")
    settings = data["settings"] | ({"name": more["name"]} if "name" in more else {})
    return {**data, "settings": settings, "spec": {"out": more.get("run")}}


def private_folder(folder: Path) -> None:
    """Make a folder, and those above it, that only the user can read."""
    check_home(folder)
    with contextlib.suppress(FileExistsError):  # another thread or process may make it, too
        try:
            folder.mkdir(mode=0o700)
        except FileNotFoundError:
            private_folder(folder.parent)
            folder.mkdir(mode=0o700)
        return
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))


@contextlib.contextmanager
def private_file(path: Path) -> Iterator[Any]:
    """Open a file to write bytes that only the user can read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        yield file


@contextlib.contextmanager
def written(
    what: Path, advice: str = "set XDG_STATE_HOME to a folder that you can write"
) -> Iterator[None]:
    """Turn system errors of writing into a message.

    Args:
        what: What is written.
        advice: What to do if that is not possible at all.

    Raises:
        RequirementError: The disk is full, or the folder cannot be written.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            advice = (
                "free some space, remove old jobs with: pyreactant jobs clean, or set "
                "XDG_STATE_HOME to another disk"
            )
        raise RequirementError(f"cannot write {what}: {error.strerror}; {advice}") from error


def changed(folder: Path) -> contextlib.AbstractContextManager[None]:
    """As `written`, for the folder of a job that exists."""
    return written(folder, "make it writable, and try again")


def _write(path: Path, data: Mapping[str, Any]) -> None:
    with replacing(path) as partial, private_file(partial) as file:
        file.write(json.dumps(data).encode())


def _content(path: str) -> bytes:
    """The content of a small file; pathlib would take half of the time of a long list."""
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123
        return file.readall()


def _owner(folder: Path) -> str:
    try:
        return pwd.getpwuid(folder.stat().st_uid).pw_name
    except (OSError, KeyError):
        return "another user"
