"""The page of a run: what broke it, how the processes ended, and when each was in which phase."""

import itertools
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...arrays.text import ranges_text, seconds_text
from ...base.document.parts import (
    NEUTRAL,
    Bar,
    Cell,
    Document,
    Items,
    Legend,
    Lines,
    Piece,
    Section,
    Table,
    commit_text,
    facts,
)
from .output import own_lines

if TYPE_CHECKING:
    from .report import RunReport

Row = Mapping[str, Any]
"""A process of the report."""


def texts(error: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the process that broke the run left, with titles: the traceback, or its last lines."""
    process, trace = error.get("process"), str(error.get("traceback") or "")
    printed, left_out = own_lines(str(error.get("log_tail") or ""))
    without = f" (without {left_out} of Gloo)" if left_out else ""
    found = [
        (f"traceback of process {process}", trace),
        (f"last lines that process {process} printed{without}", "" if trace else printed),
        (f"Python stacks of process {process}", str(error.get("stacks") or "")),
    ]
    return [(title, text) for title, text in found if text.strip()]


def ends(rows: Sequence[Row], culprit: int | None) -> list[tuple[str, list[Row]]]:
    """The processes by how they ended: what broke the run, other failures, and then the rest."""
    order = sorted(
        rows,
        key=lambda r: (
            r["index"] != culprit,
            r["exit_code"] == 0,
            r["by_supervisor"],
            r["index"],
        ),
    )
    found: dict[str, list[Row]] = {}
    for row in order:
        found.setdefault(str(row["state"]), []).append(row)
    return list(found.items())


_SHOWN = 48
"""Processes with a line of their own; the table of ends counts all."""

_LISTED = 50
"""Killed processes, stalls and restarts that the page lists, of each."""

# What a process does after it has entered a phase, and the colour of it.
_AFTER = {
    "joined": ("waiting for the others", 5),
    "spawned": ("starting", 4),
    "started": ("running", 1),
    "initializing": ("initializing", 2),
    "initialized": ("running", 1),
    "shutdown": ("ending", 3),
    "ending": ("ending", 3),
}
_FAILURES = ("error", "stalled", "lost", "gave_up")


def document(report: "RunReport") -> Document:
    """What the page shows."""
    good, count = report.exit_code == 0, len(report.processes)
    command = shlex.join(report.command)
    failure = _failure(report)
    left = texts(report.first_error or {})
    lines = [Lines(text, title[0].upper() + title[1:]) for title, text in left]
    timeline, bars = _timeline(report)
    return Document(
        title=f"{report.cause}: {command}"[:200],
        mark=Cell("Done", "good") if good else Cell(f"Failed: {report.cause}", "bad"),
        heading=command if len(command) <= 200 else f"{command[:200]}…",
        summary=report.summary,
        small=[
            f"exit code {report.exit_code}",
            f"{count} process{'' if count == 1 else 'es'}",
            f"{seconds_text(report.seconds)} from {report.started}",
        ],
        sections=[
            Section("The first failure", [failure, *lines] if failure.rows else []),
            Section("Processes", [_ends(report), Legend(bars), timeline]),
            *_lists(report),
            Section("Versions and settings", [_facts(report)]),
        ],
    )


def _failure(report: "RunReport") -> Table:
    """Where and when the run broke; its header says what happened."""
    error = report.first_error or {}
    process, before = error.get("process"), error.get("seconds_before_end")
    at = None if before is None else max(0.0, report.seconds - before)
    row = next((r for r in report.processes if r["index"] == process), None)
    found = {
        "process": "" if process is None else str(process),
        "host": str(error.get("host") or ""),
        "after": "" if at is None else seconds_text(at),
        "time": str(error.get("time") or ""),
        "while": "" if row is None or at is None else _doing(row, at, report.seconds),
        "exception": str(error.get("exception") or ""),
        "log": str(error.get("log") or ""),
    }
    shown = {name: text for name, text in found.items() if text}
    rows = [list(shown.values())] if shown else []
    return Table("Where and when", list(shown), rows)


def _doing(row: Row, at: float, end: float) -> str:
    """What a process did at a time."""
    found = [name for name, _, start, _ in _periods(row["times"], end) if start <= at]
    return found[-1] if found else ""


def _ends(report: "RunReport") -> Table:
    """How many processes ended in which way."""
    culprit = (report.first_error or {}).get("process")
    lines: list[list[Cell | str]] = [
        [
            _end(next(filter(_innocent, group), group[0])),
            str(len(group)),
            str(len({row["host"] for row in group})),
            ranges_text(row["index"] for row in group),
        ]
        for _, group in ends(report.processes, culprit)
    ]
    head = ["end", "number", "hosts", "processes"]
    return Table("How the processes ended", head, lines, numbers=(1, 2))


def _end(row: Row) -> Cell:
    """How a process ended; without a look if its supervisor ended it."""
    look = "good" if row["exit_code"] == 0 else "" if _innocent(row) else "bad"
    return Cell(str(row["state"]), look)


def _timeline(report: "RunReport") -> tuple[Table, list[Bar]]:
    """The phases of the processes that matter most, what broke the run first."""
    culprit = (report.first_error or {}).get("process")
    order = sorted(
        report.processes,
        key=lambda r: (
            r["index"] != culprit,
            not r["error"],
            r["exit_code"] == 0,
            r["by_supervisor"],
            r["index"],
        ),
    )
    shown = order[:_SHOWN]
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
        left_out=len(order) - len(shown),
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
        found = list(group)
        if found[-1][3] > found[0][2]:
            yield name, colour, found[0][2], found[-1][3]


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


def _lists(report: "RunReport") -> Iterator[Section]:
    """What else happened."""
    killed = [f"process {r['index']}: {what}" for r in report.processes for what in r["killed"]]
    restarts = [f"{one['at']}: {one['summary']}" for one in report.restarts]
    stalls = [", ".join(map(str, one.values())) for one in report.stalls]
    for title, lines in (
        ("Notes", list(report.notes)),
        ("Restarts", restarts),
        ("Without progress", stalls),
        ("Killed, because their programs left them behind", killed),
        ("Refused connections", list(report.refused)),
    ):
        if lines:
            yield Section(title, [Items(lines[:_LISTED], max(0, len(lines) - _LISTED))])


def _facts(report: "RunReport") -> Table:
    rows = [
        ("command", shlex.join(report.command)),
        ("folder", report.folder),
        ("commit", commit_text(report.git)),
        ("mutual TLS", report.mutual_tls if report.mutual_tls == "on" else ""),
        *((str(key), str(value)) for key, value in report.facts.items()),
    ]
    return facts("The run", rows)
