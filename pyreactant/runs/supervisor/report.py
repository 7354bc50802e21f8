"""The report of a run: as JSON, as text and as a page; the same with every launcher."""

import itertools
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ...arrays.text import ranges_text, seconds_text
from ...base.counted import counted
from ...base.document.page import HasPage
from ...base.document.parts import (
    NEUTRAL,
    Bar,
    Cell,
    Document,
    Items,
    Legend,
    Lines,
    Paragraph,
    Part,
    Piece,
    Section,
    Table,
    commit_text,
)
from ...base.document.parts import facts as facts_table
from ...base.document.terminal import text_of
from ...base.errors import FileError, PyReactantError, RequirementError
from ...base.facts import facts
from ...base.files import write_json, write_text
from ...process.events import ClockCompared, Compiled, Profiled, Raised
from .cause import EXIT_CODES, Failure, failure
from .collectives import TITLE, page_parts, text_parts
from .output import own_lines, plain, say
from .state import ProcessState, processes_text, utc

SCHEMA = 1

Row = Mapping[str, Any]
"""A process of the report."""

_NAMED = 16
"""Ends of processes, killed processes, and logs that are not complete, that the text names."""

_LISTED = 50
"""Killed processes, stalls and restarts that the page lists, of each."""

_SHOWN = 48
"""Processes with a line of their own on the page; the table of ends counts all."""

_HOSTS = 4
"""Hosts that a line names; more are counted."""

_LAST_LINES = 40
"""Lines of a traceback or of a log that the text has."""

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
        folder: Folder of logs and report; "" if there is none.
        command: The program and its arguments.
        restarts: Cause, summary and time of each failure that was followed by a restart, the
            processes that were there, and from which step of a checkpoint they had gone on.
        last_start: The same two of the last start; the step is None if the programs told none.
        stalls: Summary, time and file with the stacks of each report that a process made no
            progress.
        facts: Versions and settings of process 0 (the same on all, unless they may differ).
        git: Commit and changed files of the working directory.
        refused: Connections that the roll-call refused, with the reasons.
        mutual_tls: Whether JAX's coordinator used it: "on", or "off: " and the reason.
        notes: Sentences about the run that its user should know, whatever its cause.
        waits: Who waited for whom in collective operations, of a run with a profile.
        job: Slurm's number of the job in which it ran; "" if it ran in none.
    """

    cause: str
    exit_code: int
    summary: str
    first_error: Mapping[str, Any] | None
    processes: Sequence[Row]
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
    waits: Mapping[str, Any] = field(default_factory=dict)
    job: str = ""
    last_start: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "RunReport | None":
        """The report of which this is the data; None if it is none that this version wrote."""
        later = ("waits", "job", "last_start")
        needed = {each.name for each in fields(cls) if each.name not in later}
        if not data.keys() >= {"schema", *needed} or data["schema"] != SCHEMA:
            return None
        return cls(**{name: data[name] for name in cls.__slots__ if name in data})

    def retold(self, cause: str, why: str) -> "RunReport":
        """This report with the cause that somebody knows who sees more than the processes.

        Args:
            cause: A key of `EXIT_CODES`.
            why: What comes before the sentence that the supervisor wrote.
        """
        summary = f"{why}; {self.summary}"
        return replace(self, cause=cause, exit_code=EXIT_CODES[cause], summary=summary)

    def moved(self, folder: Path) -> "RunReport":
        """This report with logs in another folder, into which they were copied."""
        rows = [
            {**row, "log": row["log"] and str(folder / Path(row["log"]).name)}
            for row in self.processes
        ]
        return replace(self, folder=str(folder), processes=rows)

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
                of one that failed in the same way; its last lines are not printed again.
        """
        return plain(text_of(_text_parts(self, above=above), None))

    def waits_text(self) -> str:
        """Who waited for whom, as text for a terminal; "" without a profile."""
        return plain(text_of(text_parts(self.waits), None)).strip("\n")

    def __str__(self) -> str:
        return self.to_text()

    def document(self) -> Document:
        """What the page shows."""
        good, count = self.exit_code == 0, len(self.processes)
        command = shlex.join(self.command)
        failed = _failure_table(self)
        left = [_titled(title, text) for title, text in _last_words(self.first_error or {})]
        timeline, bars = _timeline(self)
        return Document(
            title=f"{self.cause}: {command}"[:200],
            mark=Cell("Done", "good") if good else Cell(f"Failed: {self.cause}", "bad"),
            heading=command if len(command) <= 200 else f"{command[:200]}…",
            summary=self.summary,
            small=[
                f"exit code {self.exit_code}",
                counted(count, "process"),
                f"{seconds_text(self.seconds)} from {self.started}",
            ],
            sections=[
                Section("The first failure", [failed, *left] if failed.rows else []),
                Section("Processes", [_end_table(self), Legend(bars), timeline]),
                Section(TITLE, page_parts(self.waits)),
                *_lists(self),
                Section("Versions and settings", [_fact_table(self)]),
            ],
        )

    def with_page(self, page: Path | None, *, overwrite: bool) -> "RunReport":
        """Write the page if it has a path.

        Args:
            page: The file of the page.
            overwrite: Whether the page may replace a file that is no report of pyreactant.

        Returns:
            This report; if all ended well but the page cannot be written, one of that failure.
        """
        if page is None:
            return self
        try:
            self.to_html(page, overwrite=overwrite)
        except FileError as error:
            if not self.exit_code:
                return replace(self, cause="user", exit_code=error.exit_code, summary=str(error))
            say(str(error))
        return self

    def write(self, folder: Path | None, name: str = "report") -> bool:
        """Write NAME.json and NAME.txt, each whole or not at all; false if that fails.

        Args:
            folder: Where they go; None writes nothing.
            name: The beginning of their names.
        """
        if folder is None:
            return True
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_text(self.to_text(), folder / f"{name}.txt")
            indent = 2 if len(self.processes) <= _INDENTED else None
            write_json(self.to_dict(), folder / f"{name}.json", indent=indent)
        except OSError as error:
            say(f"the report cannot be written to {folder} ({error.strerror})")
            return False
        except FileError as error:
            say(str(error))
            return False
        return True


def _text_parts(report: RunReport, *, above: bool) -> Iterator[Part]:
    """What the text has, in order."""
    yield Paragraph(f"{report.cause}: {report.summary}")
    yield Paragraph(
        f"exit code {report.exit_code}, after {report.seconds:.1f} s, started {report.started}"
    )
    error = report.first_error or {}
    if error.get("traceback"):
        error = {**error, "stacks": ""}  # they show how the process ends, not what it did
    if above:
        trace = "" if _has_traceback(error) else error.get("traceback")
        error = {**error, "traceback": trace, "log_tail": ""}
    ends = _ends(report.processes, error.get("process"))
    more = sum(len(group) for _, group in ends[_NAMED:])
    lines = [_end_line(state, group) for state, group in ends[:_NAMED]]
    yield _untitled(Items([*lines, f"and {more} more, in report.json"] if more else lines))
    for title, text in _last_words(error):
        last = "\n".join(text.rstrip().splitlines()[-_LAST_LINES:])
        yield _untitled(Lines(last, title))
    for title, items in (
        ("killed, because their programs left them behind", _killed(report)),
        ("logs that are not complete", report.broken_logs),
        ("starts", _starts(report)),
    ):
        if items:
            yield Section(title, [Items(items[:_NAMED], max(0, len(items) - _NAMED))])
    for text in (*(f"refused: {refused}" for refused in report.refused), *report.notes):
        yield _untitled(Paragraph(text))
    yield from text_parts(report.waits)
    if report.folder:  # a process that never joined has none, unless it is named
        yield _untitled(Paragraph(f"logs and report: {report.folder}"))


def _untitled(part: Part) -> Section:
    return Section("", [part], titled=False)


def _titled(title: str, text: str) -> Lines:
    return Lines(text, title[0].upper() + title[1:])


def _end_line(state: str, group: Sequence[Row]) -> str:
    """One kind of end, with its processes and hosts."""
    hosts = list(dict.fromkeys(row["host"] for row in group if row["host"]))
    where = f" on {', '.join(hosts)}" if hosts else ""
    if len(hosts) > _HOSTS:
        where = f" on {len(hosts)} hosts"
    return f"{processes_text([row['index'] for row in group])}{where}: {state}"


def _starts(report: RunReport) -> list[str]:
    """Each start of a run that was restarted, or that went on from a checkpoint."""
    last = {**report.last_start, "cause": report.cause, "summary": "", "at": ""}
    starts = [*report.restarts, last]
    if len(starts) == 1 and last.get("from_step") is None:
        return []
    return [_start_line(number, start) for number, start in enumerate(starts, 1)]


def _start_line(number: int, start: Mapping[str, Any]) -> str:
    step, processes = start.get("from_step"), start.get("processes", ())
    who = f", {processes_text(processes)}" if processes else ""
    since = "" if step is None else f", from step {step}"
    until = f", until {start['at']}" if start["at"] else ""
    why = f": {start['summary']}" if start["summary"] else ""
    return f"start {number}{who}{since}{until}: {start['cause']}{why}"


def _killed(report: RunReport) -> list[str]:
    return [f"process {row['index']}: {what}" for row in report.processes for what in row["killed"]]


def _has_traceback(error: Mapping[str, Any]) -> bool:
    """Whether a process printed its traceback, as Python does unless the program changes that."""
    lines = (error.get("traceback") or "").splitlines()
    return bool(lines) and lines[-1] in (error.get("log_tail") or "").splitlines()


def _last_words(error: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the process that broke the run left, with titles: the traceback, or its last lines."""
    process, trace = error.get("process"), str(error.get("traceback") or "")
    printed, left_out = own_lines(str(error.get("log_tail") or ""))
    without = f" (without {left_out} of Gloo)" if left_out else ""
    left = [
        (f"traceback of process {process}", trace),
        (f"last lines that process {process} printed{without}", "" if trace else printed),
        (f"Python stacks of process {process}", str(error.get("stacks") or "")),
    ]
    return [(title, text) for title, text in left if text.strip()]


def _ends(rows: Sequence[Row], culprit: int | None) -> list[tuple[str, list[Row]]]:
    """The processes by how they ended: what broke the run, other failures, and then the rest."""
    groups: dict[str, list[Row]] = {}
    for row in _ordered(rows, culprit):
        groups.setdefault(str(row["state"]), []).append(row)
    return list(groups.items())


def _ordered(rows: Iterable[Row], culprit: int | None) -> list[Row]:
    """The processes, those that say most about the failure first."""
    return sorted(
        rows,
        key=lambda r: (
            r["index"] != culprit,
            r["exit_code"] == 0,
            r["by_supervisor"],
            r["index"],
        ),
    )


# What a process does after it has entered a phase, and the colour of it.
_AFTER = {
    "joined": ("waiting for the others", 5),
    "spawned": ("starting", 4),
    "started": ("running", 1),
    "initializing": ("initializing", 2),
    "initialized": ("running", 1),
    "leaving": ("ending", 3),
    "shutdown": ("ending", 3),
    "ending": ("ending", 3),
}
_FAILURES = ("error", "stalled", "lost", "gave_up")


def first_error(failure: Failure, states: Sequence[ProcessState], now: float) -> dict[str, Any]:
    """The failure with host, phase, log and exception of its process."""
    details: dict[str, Any] = {
        "process": failure.process,
        "seconds_before_end": round(now - failure.at, 3),
        "time": utc(now - failure.at),
    }
    if failure.process is None:
        return details
    state = states[failure.process]
    details |= {
        "host": state.host,
        "phase": state.phase,
        "log": state.log,
        "log_tail": state.log_tail,
        "stacks": state.stacks,
    }
    if state.error is not None:
        details |= _exception(state.error)
    return details


def process_row(state: ProcessState, began: float) -> dict[str, Any]:
    """One process as a row of the report; `began` is when the run did."""
    return {
        "index": state.index,
        "process_index": state.process_index,
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
        "programs": state.compiled and _programs(state.compiled),
        "profile": state.profiled and _profile(state.profiled, state.clock),
        "killed": state.killed,
        "stacks": state.stacks,
        "log": state.log,
        "log_tail": state.log_tail,
        "log_error": state.log_error,
    }


def _programs(told: Compiled) -> dict[str, Any]:
    """What a process compiled and loaded; seconds are sums."""
    return {
        "compiled": told.compiled,
        "compile_seconds": round(told.compile_seconds, 3),
        "loaded": told.loaded,
        "load_seconds": round(told.load_seconds, 3),
        "cache": told.cache,
    }


def _profile(told: Profiled, clock: ClockCompared | None) -> dict[str, Any]:
    """What became of the profile of a process, and what places it on the clock of process 0."""
    return {
        "file": told.file,
        "note": told.note,
        "began_ns": told.began_ns,
        "clock_offset_ns": clock and clock.offset_ns,
        "clock_error_ns": clock and clock.error_ns,
    }


def _exception(error: Raised) -> dict[str, str]:
    return {name: getattr(error, name) for name in ("exception", "message", "traceback")}


def alone(
    state: ProcessState,
    error: PyReactantError,
    *,
    joined: bool,
    began: float,
    folder: Path | None,
    command: Sequence[str],
) -> RunReport:
    """The report of one process alone, because process 0 is gone or was never reached."""
    now = time.monotonic()
    head = ProcessState(0)
    cause = "environment" if isinstance(error, RequirementError) else "rendezvous"
    broken = failure("lost" if joined else cause, f"{state.name()}: {error}", head, now)
    return RunReport(
        cause=broken.cause,
        exit_code=broken.exit_code,
        summary=broken.summary,
        first_error=first_error(broken, [head], now),
        processes=[process_row(state, began)],
        seconds=round(now - began, 3),
        started=utc(now - began),
        folder="" if folder is None else str(folder.resolve()),
        command=list(command),
        facts=facts(),
    )


def _failure_table(report: RunReport) -> Table:
    """Where and when the run broke; its header says what happened."""
    error = report.first_error or {}
    process, before = error.get("process"), error.get("seconds_before_end")
    at = None if before is None else max(0.0, report.seconds - before)
    row = next((r for r in report.processes if r["index"] == process), None)
    facts = {
        "process": "" if process is None else str(process),
        "host": str(error.get("host") or ""),
        "after": "" if at is None else seconds_text(at),
        "time": str(error.get("time") or ""),
        "while": "" if row is None or at is None else _doing(row, at, report.seconds),
        "exception": str(error.get("exception") or ""),
        "log": str(error.get("log") or ""),
    }
    shown = {name: text for name, text in facts.items() if text}
    rows = [list(shown.values())] if shown else []
    return Table("Where and when", list(shown), rows)


def _doing(row: Row, at: float, end: float) -> str:
    done = [name for name, _, start, _ in _periods(row["times"], end) if start <= at]
    return done[-1] if done else ""


def _end_table(report: RunReport) -> Table:
    culprit = (report.first_error or {}).get("process")
    lines: list[list[Cell | str]] = [
        [
            _end(next(filter(_innocent, group), group[0])),
            str(len(group)),
            str(len({row["host"] for row in group})),
            ranges_text(row["index"] for row in group),
        ]
        for _, group in _ends(report.processes, culprit)
    ]
    head = ["end", "number", "hosts", "processes"]
    return Table("How the processes ended", head, lines, numbers=(1, 2))


def _end(row: Row) -> Cell:
    """How a process ended; without a look if its supervisor ended it."""
    look = "good" if row["exit_code"] == 0 else "" if _innocent(row) else "bad"
    return Cell(str(row["state"]), look)


def _timeline(report: RunReport) -> tuple[Table, list[Bar]]:
    """The phases of the processes that matter most, what broke the run first."""
    culprit = (report.first_error or {}).get("process")
    errors_first = sorted(_ordered(report.processes, culprit), key=lambda r: not r["error"])
    shown = sorted(errors_first, key=lambda r: r["index"] != culprit)[:_SHOWN]
    end = max([report.seconds, 1e-3, *(t for r in shown for t in r["times"].values())])
    bars = [_bar(row, end) for row in shown]
    rows: list[list[Cell | str]] = [
        [
            Cell(str(row["index"]), "bad" if row["index"] == culprit else ""),
            str(row["host"] or "-"),
            _end(row),
            str(row["collectives"]),
            Cell("", bar=bar),
        ]
        for row, bar in zip(shown, bars, strict=True)
    ]
    table = Table(
        f"Phases of each process, from 0 to {seconds_text(end)}",
        ["process", "host", "end", "collectives", "phases"],
        rows,
        numbers=(3,),
        left_out=len(report.processes) - len(shown),
    )
    return table, bars


def _bar(row: Row, end: float) -> Bar:
    parts, words = [], []
    for name, colour, start, stop in _periods(row["times"], end):
        parts.append(Piece(name, start / end, (stop - start) / end, colour))
        words.append(f"{name} until {seconds_text(stop)}")
    exited = row["times"].get("exited", end)
    failed = min(_failures(row), default=exited if row["exit_code"] else None)
    if failed is not None:
        at, until = _clamped(failed, end), _clamped(exited, end)
        name, colour = ("ended by the supervisor", NEUTRAL) if _innocent(row) else ("failed", 0)
        parts.append(Piece(name, min(at / end, 0.99), max((until - at) / end, 0.01), colour))
        words.append(f"{name} after {seconds_text(at)}")
    return Bar(", ".join(words) or "no phase was reported", parts)


def _failures(row: Row) -> list[float]:
    """When a process failed by itself, in any way but its exit code."""
    return [row["times"][kind] for kind in _FAILURES if kind in row["times"]]


def _innocent(row: Row) -> bool:
    """Whether a process ended only because its supervisor ended it."""
    return row["by_supervisor"] and not _failures(row)


def _periods(times: Mapping[str, float], end: float) -> Iterator[tuple[str, int, float, float]]:
    """Name, colour, start and end of what a process did one after the other."""
    reached = sorted((at, name) for name, at in times.items() if name in (*_AFTER, "exited"))
    stops = [*(at for at, _ in reached), times.get("lost", end)][1:]  # none without a phase
    periods = [
        (*_after(name, times), _clamped(at, end), _clamped(stop, end))
        for (at, name), stop in zip(reached, stops, strict=True)
        if name != "exited"
    ]
    for (name, colour), group in itertools.groupby(periods, lambda p: p[:2]):
        joined = list(group)
        if joined[-1][3] > joined[0][2]:
            yield name, colour, joined[0][2], joined[-1][3]


def _after(phase: str, times: Mapping[str, float]) -> tuple[str, int]:
    """What a process does in a phase.

    A command says nothing of its start, so it runs from the beginning. A program that initializes
    a runtime starts until then.
    """
    initializes = "initializing" in times or "initialized" in times
    if phase == "spawned" and "started" not in times and not initializes:
        phase = "started"
    elif phase == "started" and initializes:
        phase = "spawned"
    return _AFTER[phase]


def _clamped(at: float, end: float) -> float:
    return min(max(at, 0.0), end)


def _lists(report: RunReport) -> Iterator[Section]:
    """What else happened."""
    stalls = [", ".join(map(str, each.values())) for each in report.stalls]
    for title, lines in (
        ("Notes", list(report.notes)),
        ("Starts", _starts(report)),
        ("Without progress", stalls),
        ("Killed, because their programs left them behind", _killed(report)),
        ("Refused connections", list(report.refused)),
    ):
        if lines:
            yield Section(title, [Items(lines[:_LISTED], max(0, len(lines) - _LISTED))])


def _fact_table(report: RunReport) -> Table:
    rows = [
        ("command", shlex.join(report.command)),
        ("folder", report.folder),
        ("commit", commit_text(report.git)),
        ("mutual TLS", report.mutual_tls if report.mutual_tls == "on" else ""),
        *((str(key), str(value)) for key, value in report.facts.items()),
    ]
    return facts_table("The run", rows)
