"""Journal of this machine's queued resources, so that `gc` finds those of killed launchers.

An entry is written before the resource is requested, and removed once it is deleted.
"""

import contextlib
import json
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from .._errors import FileError
from .._system.files import replacing

_SCHEMA = 1


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
        environ: ``XDG_STATE_HOME`` and ``HOME`` say where it is.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        state = environ.get("XDG_STATE_HOME") or Path(environ.get("HOME") or "~", ".local", "state")
        self.folder = Path(state).expanduser() / "pyreactant" / "queued-resources"

    def write(self, made: Entry) -> None:
        """Write an entry to disk; call this before requesting the resource.

        Raises:
            FileError: The entry cannot be written; then the resource must not be requested.
        """
        text = json.dumps({"schema": _SCHEMA, **asdict(made)}, indent=1)
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with replacing(self._file(made.run), durable=True) as partial:
                partial.write_text(text, encoding="utf-8")
        except OSError as error:
            raise FileError(
                f"the journal folder {self.folder} cannot be written ({error.strerror}); set "
                "XDG_STATE_HOME to a writable folder"
            ) from None

    def forget(self, run: str) -> None:
        """Remove the entry of a deleted resource."""
        with contextlib.suppress(FileNotFoundError):
            self._file(run).unlink()

    def entries(self) -> Iterator[Entry | Path]:
        """All entries; the path of each file that is damaged."""
        for file in sorted(self.folder.glob("*.json")):
            try:
                data = json.loads(file.read_text(encoding="utf-8"))
                if data.pop("schema") != _SCHEMA:
                    raise ValueError
                yield Entry(**data)
            except FileNotFoundError:
                continue  # the run removed it since glob listed it
            except (OSError, ValueError, TypeError, KeyError, AttributeError):
                yield file

    def _file(self, run: str) -> Path:
        return self.folder / f"{run}.json"


def _started(pid: int) -> str:
    """Field 22 of /proc/PID/stat (proc(5)); "" if the process or /proc does not exist."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()  # skip the name, which may contain spaces
    return "" if fields[0] in ("Z", "X") else fields[19]
