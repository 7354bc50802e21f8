"""The report of a run, as JSON and as text; the same with every launcher."""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ...arrays.text import break_lines, ranges_text
from ...base.document.page import HasPage
from ...base.document.parts import Document
from ...base.errors import FileError
from ...base.facts import facts
from ...base.files import write_json, write_text
from ...process.events import Raised
from . import page as _page
from .cause import Failure, failure
from .output import terminals
from .page import Row, ends, texts
from .state import ProcessState

SCHEMA = 1

_MAX_NAMED = 16
"""Killed processes, and logs that are not complete, that the text names; report.json has more."""

_ENDS = 16
"""Ends of processes that the text lists; report.json has all."""

_HOSTS = 4
"""Hosts that a line names; more are counted."""

_INDENTED = 256
"""Processes of a run whose report.json is indented; members of a larger one wait for it."""


@dataclass(frozen=True, slots=True)
class RunReport(HasPage):
    """How a run ended.

    Attributes:
        cause: "done", or why it failed: "user", "lost", "out of memory", "preempted",
            "rendezvous", "environment", "timeout" or "interrupted".
        exit_code: Exit code of the run.
        summary: One sentence that names the process.
        first_error: The failure that broke the run: process, host, time, and the exception and
            last log lines if there are any; None if nothing failed.
        processes: State of each process, by index; its times are seconds from the start of the
            run until it reached a phase, or failed.
        seconds: Duration of the run.
        started: Start time in UTC, in ISO 8601.
        folder: Folder of logs and report.
        command: The program and its arguments.
        restarts: Cause, summary and time of each failure that was followed by a restart.
        stalls: Summary, time and file with the stacks of each report that a process made no
            progress.
        facts: Versions and settings of process 0 (the same on all, unless they may differ).
        git: Commit and changed files of the working directory.
        refused: Connections that the roll-call refused, with the reasons.
        mutual_tls: Whether JAX's coordinator used it: "on", or "off: " and the reason.
        notes: Sentences about the run that its user should know, whatever its cause.
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
    stalls: Sequence[Mapping[str, str]] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    git: Mapping[str, Any] = field(default_factory=dict)
    refused: Sequence[str] = ()
    mutual_tls: str = ""
    notes: Sequence[str] = ()

    @property
    def broken_logs(self) -> list[str]:
        """Paths of logs that could not be written, or were deleted, each with the reason."""
        return [row["log_error"] for row in self.processes if row.get("log_error")]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        return {"schema": SCHEMA} | {name: getattr(self, name) for name in self.__slots__}

    @property
    def on_process_0(self) -> bool:
        """Whether process 0, whose output is on the terminal, failed first, or in the same way."""
        first = self.first_error or {}
        error = next((row["error"] for row in self.processes if row["index"] == 0), None) or {}
        same = bool(error) and error.get("traceback") == first.get("traceback")
        return same or first.get("process") == 0

    def to_text(self, *, above: bool = False) -> str:
        """The report as text for a terminal.

        Args:
            above: Whether the terminal already has the output of the process that failed first, or
                of one that failed in the same way; a traceback in it is not printed again.
        """
        lines = [
            f"{self.cause}: {self.summary}",
            f"exit code {self.exit_code}, after {self.seconds:.1f} s, started {self.started}",
            "",
        ]
        error = self.first_error or {}
        if above and _has_traceback(error):
            error = {**error, "traceback": "", "log_tail": ""}
        lines += _end_lines(self.processes, error.get("process"))
        for title, text in texts(error):
            lines += ["", f"{title}:", _indent(text)]
        killed = [(row["index"], what) for row in self.processes for what in row["killed"]]
        if killed:
            lines += ["", "killed, because their programs left them behind:"]
            lines += [f"  process {index}: {what}" for index, what in killed[:_MAX_NAMED]]
        if self.broken_logs:
            lines += ["", "logs that are not complete:"]
            lines += [f"  {text}" for text in self.broken_logs[:_MAX_NAMED]]
        for refused in self.refused:
            lines += ["", f"refused: {refused}"]
        for note in self.notes:
            lines += ["", note]
        return _plain("\n".join([*lines, "", f"logs and report: {self.folder}"]) + "\n")

    def __str__(self) -> str:
        return self.to_text()

    def document(self) -> Document:
        """What the page shows."""
        return _page.document(self)

    def write(
        self,
        folder: Path | None,
        name: str = "report",
        page: Path | None = None,
        *,
        overwrite: bool = False,
    ) -> bool:
        """Write NAME.json and NAME.txt, and the page if it has a path; false if that fails.

        Each file is written whole or not at all.

        Args:
            folder: Where NAME.json and NAME.txt go; None writes only the page.
            name: The beginning of their names.
            page: The file of the page.
            overwrite: Whether the page may replace a file that is no report of pyreactant.
        """
        try:
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
                write_text(self.to_text(), folder / f"{name}.txt")
                indent = 2 if len(self.processes) <= _INDENTED else None
                write_json(self.to_dict(), folder / f"{name}.json", indent=indent)
            if page is not None:
                self.to_html(page, overwrite=overwrite)
        except OSError as error:
            say(f"the report cannot be written to {folder} ({error.strerror})")
            return False
        except FileError as error:
            say(str(error))
            return False
        return True


_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, and movements of the cursor
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # such as a window's title
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
    r"|[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"  # turn the text that follows around
)


def _plain(text: str) -> str:
    """The text without control characters, which could hide it on a terminal; line ends stay."""
    return _CONTROL.sub(lambda found: "" if len(found[0]) > 1 else ascii(found[0])[1:-1], text)


def _has_traceback(error: Mapping[str, Any]) -> bool:
    """Whether a process printed its traceback, as Python does unless the program changes that."""
    lines = (error.get("traceback") or "").splitlines()
    return bool(lines) and lines[-1] in (error.get("log_tail") or "").splitlines()


def first_error(failure: Failure, states: Sequence[ProcessState], now: float) -> dict[str, Any]:
    """The failure with host, phase, log and exception of its process."""
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
        found |= _exception(state.error)
    return found


def process_row(state: ProcessState, began: float) -> dict[str, Any]:
    """One process as a row of the report; `began` is when the run did."""
    return {
        "index": state.index,
        "host": state.host,
        "pid": state.pid,
        "phase": state.phase,
        "state": state.ending(),
        "times": {name: round(at - began, 3) for name, at in state.times.items()},
        "exit_code": state.code,
        "by_supervisor": state.by_supervisor,
        "error": state.error
        and {
            **_exception(state.error),
            "time": utc(time.monotonic() - state.times.get("error", 0.0)),
        },
        "collectives": state.collectives,
        "killed": state.killed,
        "stacks": state.stacks,
        "log": state.log,
        "log_tail": state.log_tail,
        "log_error": state.log_error,
    }


def _exception(error: Raised) -> dict[str, str]:
    return {name: getattr(error, name) for name in ("exception", "message", "traceback")}


def alone(
    state: ProcessState,
    why: str,
    *,
    joined: bool,
    began: float,
    folder: Path | None,
    command: Sequence[str],
) -> RunReport:
    """The report of one process alone, because process 0 is gone or was never reached.

    Args:
        state: The process, as its own supervisor knows it.
        why: What happened.
        joined: Whether it had joined the roll-call.
        began: When its supervisor began, in monotonic seconds.
        folder: As in `RunOptions`.
        command: The program and its arguments.
    """
    now = time.monotonic()
    head = ProcessState(0)
    found = failure("lost" if joined else "rendezvous", f"{state.name()}: {why}", head, now)
    return RunReport(
        cause=found.cause,
        exit_code=found.exit_code,
        summary=found.summary,
        first_error=first_error(found, [head], now),
        processes=[process_row(state, began)],
        seconds=round(now - began, 3),
        started=utc(now - began),
        folder=str(folder or Path.cwd()),
        command=list(command),
        facts=facts(),
    )


def utc(seconds_ago: float = 0.0) -> str:
    """The UTC time so many seconds ago, in ISO 8601 with milliseconds."""
    at = datetime.now(UTC).timestamp() - seconds_ago
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def say(text: str) -> None:
    """Print a line to stderr, in order with the output of the programs."""
    _, err = terminals()
    err.put(f"{break_lines(f'pyreactant: {_plain(text)}')}\n".encode(errors="backslashreplace"))


def _end_lines(rows: Sequence[Row], culprit: int | None) -> list[str]:
    """One line for each kind of end, with its processes and hosts."""
    groups = ends(rows, culprit)
    lines = []
    for state, group in groups[:_ENDS]:
        hosts = list(dict.fromkeys(row["host"] for row in group if row["host"]))
        where = f" on {', '.join(hosts)}" if hosts else ""
        if len(hosts) > _HOSTS:
            where = f" on {len(hosts)} hosts"
        some = "process" if len(group) == 1 else "processes"
        lines.append(f"  {some} {ranges_text(row['index'] for row in group)}{where}: {state}")
    more = sum(len(group) for _, group in groups[_ENDS:])
    return [*lines, f"  and {more} more, in report.json"] if more else lines


def _indent(text: str) -> str:
    return "\n".join(f"  | {line}" for line in text.rstrip().splitlines()[-40:])
