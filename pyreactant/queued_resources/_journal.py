"""Journal of this machine's queued resources, so that `gc` finds those of killed launchers.

An entry is written before the resource is requested, and removed once it is deleted.
"""

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from .._errors import FileError
from .._system.files import replacing
from .._system.folders import earlier_state_folder, state_folder

_SCHEMA = 1
_NAME = "queued-resources"


@dataclass(frozen=True, slots=True)
class Entry:
    """A requested queued resource and the process that is responsible for it.

    Attributes:
        path: Full name of the resource.
        run: Label of the run on the resource.
        host: Name of the launcher's machine.
        pid: Process id of the launcher.
        started: Start time of that process in clock ticks since boot, which tells it from a
            later process with the same pid.
        asked: Time of the request, in seconds since the epoch.
        lifetime: Seconds after which the resource may be deleted, kept or not.
        kept: Whether the user asked to keep the resource.
    """

    path: str
    run: str
    host: str
    pid: int
    started: str
    asked: float
    lifetime: float
    kept: bool = False

    def launcher(self) -> str:
        """State of the launcher: "alive", "dead", or "unknown" if it ran on another machine."""
        if self.host != socket.gethostname():
            return "unknown"
        return "alive" if self.started and _started(self.pid) == self.started else "dead"


def entry(path: str, run: str, *, asked: float, lifetime: float, kept: bool) -> Entry:
    """The entry of a resource for which this process is responsible."""
    pid = os.getpid()
    return Entry(
        path=path,
        run=run,
        host=socket.gethostname(),
        pid=pid,
        started=_started(pid),
        asked=asked,
        lifetime=lifetime,
        kept=kept,
    )


class Journal:
    """A folder with one file for each run.

    Args:
        state: The folder that has it; None is this user's.
    """

    def __init__(self, state: Path | None = None) -> None:
        self.folder = (state or state_folder()) / _NAME
        earlier = earlier_state_folder() if state is None else None
        self._folders = (self.folder,) if earlier is None else (self.folder, earlier / _NAME)

    def write(self, made: Entry) -> None:
        """Write an entry to disk; call this before requesting the resource.

        Raises:
            FileError: The entry cannot be written; then the resource must not be requested.
        """
        text = json.dumps({"schema": _SCHEMA, **asdict(made)}, indent=1)
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with replacing(self.folder / f"{made.run}.json", durable=True) as partial:
                partial.write_text(text, encoding="utf-8")
        except OSError as error:
            raise FileError(
                f"the journal folder {self.folder} cannot be written ({error.strerror}); set "
                "XDG_STATE_HOME to a writable folder"
            ) from None

    def forget(self, run: str) -> None:
        """Remove the entry of a deleted resource."""
        for folder in self._folders:
            with contextlib.suppress(FileNotFoundError):
                (folder / f"{run}.json").unlink()

    def entries(self) -> Iterator[Entry | Path]:
        """All entries; the path of each file that is damaged."""
        for file in sorted(file for folder in self._folders for file in folder.glob("*.json")):
            try:
                data = json.loads(file.read_text(encoding="utf-8"))
                if data.pop("schema") != _SCHEMA:
                    raise ValueError
                yield Entry(**data)
            except FileNotFoundError:
                continue  # the run removed it since glob listed it
            except (OSError, ValueError, TypeError, KeyError, AttributeError):
                yield file


def _started(pid: int) -> str:
    """Field 22 of /proc/PID/stat (proc(5)); "" if the process or /proc does not exist."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()  # skip the name, which may contain spaces
    return "" if fields[0] in ("Z", "X") else fields[19]
