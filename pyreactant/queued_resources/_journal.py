"""What this machine has asked for: written before it is asked, forgotten once it is deleted.

So that a launcher that was killed leaves a trace which `gc` finds.
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
    """A queued resource that was asked for, and the process that answers for it.

    Attributes:
        path: Its full name.
        run: The run's label on it.
        host: Where the launcher runs.
        pid: The launcher.
        started: When that process started, in clock ticks since boot, as Linux counts; with
            the pid it names one process for ever.
        asked: When, in seconds since 1970.
        lifetime: Seconds after which it may be deleted in any case.
        kept: Whether its user asked to keep it.
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
        """Whether it is "alive" or "dead"; "unknown" where it ran on another machine."""
        if self.host != socket.gethostname():
            return "unknown"
        return "alive" if self.started and _started(self.pid) == self.started else "dead"


def entry(path: str, run: str, asked: float, lifetime: float, kept: bool) -> Entry:
    """The entry of a resource that this process answers for."""
    pid = os.getpid()
    return Entry(path, run, socket.gethostname(), pid, _started(pid), asked, lifetime, kept)


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
        """Put an entry on the disk, whole, before anything is asked for.

        Raises:
            FileError: It cannot be written; then nothing may be asked for.
        """
        text = json.dumps({"schema": _SCHEMA, **asdict(made)}, indent=1)
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with replacing(self.folder / f"{made.run}.json", durable=True) as partial:
                partial.write_text(text, encoding="utf-8")
        except OSError as error:
            raise FileError(
                f"{self.folder} cannot be written ({error.strerror}), where pyreactant notes what "
                "it must delete; set XDG_STATE_HOME to a folder that can"
            ) from None

    def forget(self, run: str) -> None:
        """Remove an entry whose resource is gone."""
        for folder in self._folders:
            with contextlib.suppress(FileNotFoundError):
                (folder / f"{run}.json").unlink()

    def entries(self) -> Iterator[Entry | Path]:
        """All entries; the path of a file that is none."""
        for file in sorted(file for folder in self._folders for file in folder.glob("*.json")):
            try:
                data = json.loads(file.read_text(encoding="utf-8"))
                if data.pop("schema") != _SCHEMA:
                    raise ValueError
                yield Entry(**data)
            except FileNotFoundError:
                continue  # its run has just ended
            except (OSError, ValueError, TypeError, KeyError, AttributeError):
                yield file


def _started(pid: int) -> str:
    """Field 22 of /proc/PID/stat (proc(5)); "" where there is no such process, or no /proc."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()  # the name, in parentheses, may hold anything
    return "" if fields[0] in ("Z", "X") else fields[19]
