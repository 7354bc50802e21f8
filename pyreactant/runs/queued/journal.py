"""Journal of this machine's queued resources, so that `gc` finds those of killed launchers.

An entry is written before the resource is requested, and removed once it is deleted. Its launcher
holds a lock beside it, which the kernel releases when the launcher ends, however it ends. For `gc`
on machines that cannot see the launcher, there is a sign of life on the nodes of a resource.
"""

import contextlib
import enum
import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from ...base.errors import RequirementError
from ...base.files import check_home, earlier_state_folder, replacing, state_folder
from ...base.settings import JOB
from ..spec import is_made_of
from .request import HEARTBEAT_LABEL, KEPT_LABEL, RESOURCE_PATH, Node, SliceRequest

_SCHEMA = 1
_NAME = "queued-resources"

CLOCK_TOLERANCE = 60.0
"""Difference of two clocks, in seconds, above which a warning appears; `gc` allows ten times it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A requested queued resource and the process that is responsible for it.

    Attributes:
        path: Full name of the resource.
        run: Label of the run on the resource.
        host: Name of the launcher's machine.
        pid: Process id of the launcher, for messages.
        asked: Time of the request, in seconds since the epoch.
        lifetime: Seconds for which the nodes may exist, kept or not.
        kept: Whether the user asked to keep the resource.
        accelerator_type: Cloud TPU's name for a slice; "" in entries of earlier versions.
        slice_count: Number of slices.
        valid_for: Seconds after `asked` within which the nodes are created; None for no limit.
        job: Id of the job whose slices they are; "" for none.
        trouble: Why the deletion has not succeeded so far; "" if it was not tried or not refused.
    """

    path: str
    run: str
    host: str
    pid: int
    asked: float
    lifetime: float
    kept: bool = False
    accelerator_type: str = ""
    slice_count: int = 1
    valid_for: float | None = None
    job: str = ""
    trouble: str = ""

    @property
    def over(self) -> float | None:
        """When its lifetime is over at the latest; None if it may wait without a limit."""
        return None if self.valid_for is None else self.asked + self.valid_for + self.lifetime


def entry(
    request: SliceRequest, run: str, *, asked: float, kept: bool, active: bool = False
) -> Entry:
    """The entry of a resource for which this process is responsible.

    Args:
        asked: Time of the request, or a time at which it is ACTIVE.
    """
    return Entry(
        path=request.path,
        run=run,
        host=socket.gethostname(),
        pid=os.getpid(),
        asked=asked,
        lifetime=request.lifetime,
        kept=kept,
        accelerator_type=request.accelerator_type,
        slice_count=request.slice_count,
        valid_for=0.0 if active else request.valid_for,
        job=os.environ.get(JOB, ""),
    )


class Launcher(enum.Enum):
    """What is known of the process that is responsible for a resource."""

    ALIVE = enum.auto()
    DEAD = enum.auto()
    UNKNOWN = enum.auto()


class Journal:
    """A folder with one file for each run.

    Args:
        state: The folder that has it; None is this user's.
    """

    def __init__(self, state: Path | None = None) -> None:
        self.folder = (state or state_folder()) / _NAME
        earlier = earlier_state_folder() if state is None else None
        self._folders = (self.folder,) if earlier is None else (self.folder, earlier / _NAME)
        self._locks: dict[str, IO[bytes]] = {}  # open ones, by run

    def write(self, entry: Entry) -> None:
        """Write an entry to disk, and lock it until this process ends or forgets it.

        Call this before requesting the resource.

        Raises:
            RequirementError: The entry cannot be written or locked; then the resource must not be
                requested.
        """
        text = json.dumps({"schema": _SCHEMA, **asdict(entry)}, indent=1)
        first = entry.run not in self._locks
        try:
            check_home(self.folder)
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if first:
                lock = (self.folder / f"{entry.run}.lock").open("wb")
                fcntl.flock(lock, fcntl.LOCK_EX)
                self._locks[entry.run] = lock
            with replacing(self.folder / f"{entry.run}.json", durable=True) as partial:
                partial.write_text(text, encoding="utf-8")
        except OSError as error:
            if first:
                with contextlib.suppress(OSError):
                    self.forget(entry.run)  # a lock without its entry
            raise RequirementError(
                f"the journal folder {self.folder} cannot be written and locked "
                f"({error.strerror}); set XDG_STATE_HOME to a folder on this machine"
            ) from None

    def entries_of(self, *, job: str = "", path: str = "") -> list[Entry]:
        """The entries of a job's slices, or of one resource."""
        return [
            entry
            for entry in self.entries()
            if isinstance(entry, Entry) and (entry.job == job if job else entry.path == path)
        ]

    def note_trouble(self, run: str, trouble: str, *, first: bool = False) -> None:
        """Write to a run's entry, if there is one, why its deletion has not succeeded so far.

        A disk that is full, or cannot be written, does not end the deletion.

        Args:
            trouble: Why; "" if there is no trouble any more.
            first: Whether to leave an entry that has a trouble unchanged.
        """
        for folder in self._folders:
            file = folder / f"{run}.json"
            with contextlib.suppress(OSError, ValueError, TypeError):
                data = json.loads(file.read_text(encoding="utf-8"))
                if data.get("trouble", "") == trouble or (first and data.get("trouble")):
                    continue
                with replacing(file) as partial:
                    partial.write_text(json.dumps({**data, "trouble": trouble}, indent=1))

    def forget(self, run: str) -> None:
        """Remove the entry of a deleted resource."""
        for folder in self._folders:
            for end in ("json", "lock"):
                with contextlib.suppress(FileNotFoundError):
                    (folder / f"{run}.{end}").unlink()
        if run in self._locks:
            self._locks.pop(run).close()

    def launcher(self, entry: Entry) -> Launcher:
        """What is known of an entry's launcher.

        It is alive if it holds its lock, be it in another container. A lock that is free says
        nothing about a launcher on another machine: not every network file system shares locks.
        """
        for folder in self._folders:
            try:
                with (folder / f"{entry.run}.lock").open("r+b") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except FileNotFoundError:
                continue
            except BlockingIOError:
                return Launcher.ALIVE
            except OSError:
                return Launcher.UNKNOWN
            return Launcher.DEAD if entry.host == socket.gethostname() else Launcher.UNKNOWN
        return Launcher.UNKNOWN

    def entries(self) -> Iterator[Entry | Path]:
        """All entries; the path of each file that is damaged."""
        for file in sorted(file for folder in self._folders for file in folder.glob("*.json")):
            try:
                data = json.loads(file.read_text(encoding="utf-8"))
                if data.pop("schema") != _SCHEMA:
                    raise ValueError
                data.pop("started", None)  # earlier versions wrote it
                named = data["run"] == file.stem and RESOURCE_PATH.fullmatch(data["path"])
                if not named or not is_made_of(Entry, data):
                    raise ValueError
                yield Entry(**data)
            except FileNotFoundError:
                continue  # the run removed it since glob listed it
            except (OSError, ValueError, TypeError, KeyError, AttributeError):
                yield file


DEAD_AFTER = 600.0
"""Age of a sign of life, in seconds, from which its launcher counts as dead."""


class Heartbeat(threading.Thread):
    """Calls `renew` now and again and again, until `stop`.

    A renewal that fails ends nothing; the user sees each reason once.
    """

    def __init__(
        self, renew: Callable[[], None], tell: Callable[[str], None], interval: float
    ) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self._renew, self._tell, self._interval = renew, tell, interval
        self._stopped, self._trouble = threading.Event(), ""
        self._try()  # before ssh begins: gcloud writes its keys to the same nodes
        self.start()

    def stop(self) -> None:
        """End the renewals; one that is under way may still arrive."""
        self._stopped.set()

    def run(self) -> None:
        """Renew until the end."""
        while not self._stopped.wait(self._interval):
            self._try()

    def _try(self) -> None:
        try:
            self._renew()
        except Exception as error:  # the run matters more than its sign of life
            if str(error) != self._trouble and not self._stopped.is_set():
                self._trouble = str(error)
                self._tell(
                    "the label that shows that this launcher lives was not written; without it "
                    f"for {DEAD_AFTER / 60:.0f} minutes, `pyreactant tpu gc` on another machine "
                    f"may delete the nodes: {error}"
                )


@dataclass(frozen=True, slots=True)
class Signs:
    """What the nodes of a resource show.

    Attributes:
        age: Seconds since the first node was created; None if there is no node.
        silent: Seconds since the last sign of life; None if there was none.
        kept: Whether the user keeps the resource.
    """

    age: float | None
    silent: float | None
    kept: bool

    @property
    def launcher(self) -> Launcher:
        """What they say of the launcher."""
        if self.kept or self.silent is None:
            return Launcher.UNKNOWN
        return Launcher.DEAD if self.silent > DEAD_AFTER else Launcher.ALIVE


def signs(nodes: Sequence[Node]) -> Signs:
    """The signs on the nodes of one resource."""
    now = time.time()
    texts = [node.labels.get(HEARTBEAT_LABEL, "") for node in nodes]
    beats = [float(text) for text in texts if text.isdecimal()]
    # One from the future is of a wrong clock, and says nothing.
    last = max((beat for beat in beats if beat < now + 10 * CLOCK_TOLERANCE), default=None)
    born = min((node.created for node in nodes if node.created is not None), default=None)
    return Signs(
        age=None if born is None else now - born,
        silent=None if last is None else now - last,
        kept=any(KEPT_LABEL in node.labels for node in nodes),
    )
