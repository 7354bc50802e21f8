"""The report of a run: the same JSON on every launcher, and a readable form of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .._errors import FileError
from .._system.files import write_json, write_text
from ._cause import Failure
from ._output import terminals
from ._state import ProcessState

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class RunReport:
    """How a run ended.

    Attributes:
        cause: "done", or why it failed: "user", "lost", "out of memory", "preempted",
            "rendezvous", "environment", "timeout" or "interrupted".
        exit_code: Of the run.
        summary: One sentence that names the process.
        first_error: Process, host, time and, where there are any, exception and last log lines
            of what broke the run; None where nothing did.
        processes: How each stands.
        seconds: From start to end.
        started: When, in UTC.
        folder: Where logs and report are.
        command: What was run.
        restarts: How often the programs were started again, and why.
        facts: Versions and settings of process 0 (all the same unless allowed to differ).
        git: Commit and changed files of the working directory.
        refused: Peers that the roll-call turned away.
    """

    cause: str
    exit_code: int
    summary: str
    first_error: Mapping[str, Any] | None
    processes: Sequence[Mapping[str, Any]]
    seconds: float
    started: str
    folder: str
    command: Sequence[str]
    restarts: Sequence[Mapping[str, Any]] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    git: Mapping[str, Any] = field(default_factory=dict)
    refused: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        return {"schema": SCHEMA} | {name: getattr(self, name) for name in self.__slots__}

    def to_text(self) -> str:
        """For reading."""
        lines = [
            f"{self.cause}: {self.summary}",
            f"exit code {self.exit_code}, after {self.seconds:.1f} s, started {self.started}",
            "",
        ]
        error = self.first_error or {}
        rows = _few(self.processes, error.get("process"))
        lines += [
            f"  process {p['index']}{' on ' + p['host'] if p['host'] else ''}: {p['state']}"
            for p in rows
        ]
        if len(rows) < len(self.processes):
            lines.append(f"  and {len(self.processes) - len(rows)} more, in report.json")
        for title, text in (
            ("traceback", error.get("traceback")),
            ("last lines it printed", "" if error.get("traceback") else error.get("log_tail")),
            ("Python stacks", error.get("stacks")),
        ):
            if text:
                lines += ["", f"{title} of process {error['process']}:", _indent(text)]
        for refused in self.refused:
            lines += ["", f"turned away: {refused}"]
        return "\n".join([*lines, "", f"logs and report: {self.folder}"]) + "\n"

    def write(self, folder: Path, name: str = "report") -> bool:
        """Write NAME.json and NAME.txt, each whole or not at all; false where it cannot."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_text(self.to_text(), folder / f"{name}.txt")
            write_json(self.to_dict(), folder / f"{name}.json")
        except OSError as error:
            say(f"the report cannot be written to {folder} ({error.strerror})")
            return False
        except FileError as error:
            say(str(error))
            return False
        return True


def first_error(failure: Failure, states: Sequence[ProcessState], now: float) -> dict[str, Any]:
    """What is known of the failure."""
    found: dict[str, Any] = {
        "process": failure.process,
        "seconds_before_end": round(now - failure.at, 3),
        "time": utc(now - failure.at),
    }
    if failure.process is None:
        return found
    state = states[failure.process]
    found |= {
        "host": state.host,
        "phase": state.phase,
        "log": state.log,
        "log_tail": state.log_tail,
        "stacks": state.stacks,
    }
    if state.error is not None:
        found |= {key: state.error.get(key) for key in ("exception", "message", "traceback")}
    return found


def process_row(state: ProcessState) -> dict[str, Any]:
    """One process for the report."""
    return {
        "index": state.index,
        "host": state.host,
        "pid": state.pid,
        "phase": state.phase,
        "state": state.ending(),
        "exit_code": state.code,
        "error": state.error
        and {key: state.error.get(key) for key in ("exception", "message", "traceback")},
        "collectives": state.collectives,
        "stacks": state.stacks,
        "log": state.log,
        "log_tail": state.log_tail,
        "log_error": state.log_error,
    }


def utc(seconds_ago: float = 0.0) -> str:
    """A time as ISO 8601."""
    at = datetime.now(UTC).timestamp() - seconds_ago
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def say(text: str) -> None:
    """A line to whoever looks at the terminal, in turn with what the programs print."""
    _, err = terminals()
    err.put(f"pyreactant: {text}\n".encode(errors="backslashreplace"))


def _few(
    rows: Sequence[Mapping[str, Any]], culprit: int | None, limit: int = 16
) -> Sequence[Mapping[str, Any]]:
    """All rows of a small run; of a large one what broke it and what did not end well, first."""
    if len(rows) <= limit:
        return rows
    order = sorted(rows, key=lambda r: (r["index"] != culprit, r["exit_code"] == 0, r["index"]))
    return order[:limit]


def _indent(text: str) -> str:
    return "\n".join(f"  | {line}" for line in text.rstrip().splitlines()[-40:])
