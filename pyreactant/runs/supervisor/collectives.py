"""Who waited for whom: the collective operations of a profile, compared over its processes."""

import json
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ...arrays.text import seconds_text
from ...base.document.parts import (
    Bar,
    Cell,
    Label,
    Legend,
    Lines,
    Part,
    Picture,
    Piece,
    Rectangle,
    Section,
    Table,
)
from ...base.document.terminal import text_of
from .state import processes_text
from .timeline import Trace

TITLE = "Who waited for whom"

_Times: TypeAlias = dict[int, tuple[int, int]]
"""When each process came to an operation and when it left, in nanoseconds by one clock."""

_ROWS = 12
"""Collectives in the table; those with the most waiting are the first ones."""

_DRAWN = 32
"""Processes in the picture."""

_WIDTH, _STEP, _NAME, _TIME = 640, 20, 80, 70
"""Of the picture: its width, the height of a process, and the room for its name and its time."""


@dataclass(slots=True)
class _Waits:
    """The waiting at one operation of a program, over all its calls."""

    times: int = 0
    total: int = 0
    waits: int = 0
    worst: int = 0
    waiting: int | None = None
    last: Counter[int] = field(default_factory=Counter)


def waits_of(traces: Sequence[Trace]) -> tuple[dict[str, Any], list[str]]:
    """Who waited for whom.

    A process waits from when it comes to an operation until the last of the others comes, but no
    longer than it is in the operation: those that come later are no part of its group. Processes
    whose times differ by no more than the clocks' error waited for nobody.

    Args:
        traces: The processes in the timeline.

    Returns:
        Plain data for the report: "rows", a collective each, and "drawn", the call with the longest
        wait; and sentences about what is missing.
    """
    calls: dict[tuple[str, str, int, int], _Times] = defaultdict(dict)
    without: dict[str, list[int]] = {}
    for trace in traces:
        try:
            for module, operation, run, number, begin, end in json.loads(
                trace.collectives.read_text()
            ):
                call = calls[module, operation, run, number]
                call[trace.process] = trace.began_ns + begin, trace.began_ns + end
        except (OSError, ValueError, TypeError) as error:
            without.setdefault(str(error), []).append(trace.process)
    notes = [
        f"the collectives of {processes_text(some)} cannot be read: {why}"
        for why, some in without.items()
    ]
    found: dict[tuple[str, str], _Waits] = defaultdict(_Waits)
    drawn: tuple[str, str, _Times] | None = None
    longest = 0
    errors = {trace.process: trace.error_ns for trace in traces}
    for (module, operation, _, _), attended in sorted(calls.items()):
        if len(attended) > 1:
            worst = _add(found[module, operation], attended, errors)
            if worst > longest:
                drawn, longest = (module, operation, attended), worst
    hosts = {trace.process: trace.host for trace in traces}
    rows = [
        _row(module, operation, waits, hosts)
        for (module, operation), waits in sorted(found.items(), key=lambda pair: -pair[1].total)
    ]
    return {"rows": rows, "drawn": drawn and _drawn(*drawn)}, notes


def _add(waits: _Waits, times: _Times, errors: Mapping[int, int]) -> int:
    """Add a call; the longest wait in it."""
    order = sorted(times, key=lambda process: times[process][0])
    begins = [times[process][0] for process in order]
    waits.times += 1
    longest, last = 0, None
    for process in order[:-1]:
        begin, end = times[process]
        other = order[bisect_right(begins, end) - 1]
        wait = times[other][0] - begin
        if wait <= errors[process] + errors[other]:
            wait = 0
        waits.total += wait
        waits.waits += 1
        if wait > longest:
            longest, last = wait, other
        if wait > waits.worst:
            waits.worst, waits.waiting = wait, process
    if last is not None:
        waits.last[last] += 1
    return longest


def _row(module: str, operation: str, waits: _Waits, hosts: Mapping[int, str]) -> dict[str, Any]:
    last = max(waits.last, key=lambda process: waits.last[process], default=None)
    return {
        "collective": operation,
        "program": module,
        "times": waits.times,
        "mean_seconds": waits.total / waits.waits / 1e9,
        "worst_seconds": waits.worst / 1e9,
        "waiting": waits.waiting,
        "last": last,
        "last_times": 0 if last is None else waits.last[last],
        "last_host": None if last is None else hosts[last],
    }


def _drawn(module: str, operation: str, times: _Times) -> dict[str, Any]:
    """The call with the longest wait; of many processes the first ones to come and the last."""
    order = sorted(times, key=lambda process: times[process][0])
    shown = order if len(order) <= _DRAWN else [*order[: _DRAWN // 2], *order[-_DRAWN // 2 :]]
    first = times[order[0]][0]
    return {
        "collective": operation,
        "program": module,
        "processes": [
            [process, *((at - first) / 1e9 for at in times[process])] for process in shown
        ],
        "left_out": len(order) - len(shown),
    }


def text_parts(waits: Mapping[str, Any]) -> list[Section]:
    """What a terminal and report.txt show."""
    if not waits.get("rows"):
        return []
    text = text_of([table(waits["rows"])], 120).strip("\n")
    return [Section(TITLE.lower(), [Lines(text)])]


def page_parts(waits: Mapping[str, Any]) -> list[Part]:
    """What a page shows: the table, and a picture of the call with the longest wait."""
    if not waits.get("rows"):
        return []
    drawn = waits["drawn"]
    return [table(waits["rows"]), *(_picture(drawn) if drawn else [])]


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The collectives, those with the most waiting first."""
    lines: list[list[Cell | str]] = [
        [
            row["collective"],
            row["program"],
            str(row["times"]),
            seconds_text(row["mean_seconds"]),
            seconds_text(row["worst_seconds"]),
            "-" if row["waiting"] is None else f"process {row['waiting']}",
            "-" if row["last"] is None else f"process {row['last']} on {row['last_host']}",
            str(row["last_times"]),
        ]
        for row in rows[:_ROWS]
    ]
    head = [
        "collective",
        "program",
        "calls",
        "mean wait",
        "longest",
        "of",
        "last to come, most often",
        "in calls",
    ]
    caption = "How long the processes waited for the last one to come"
    left_out = max(0, len(rows) - _ROWS)
    return Table(caption, head, lines, numbers=(2, 3, 4, 7), left_out=left_out, wraps=True)


def _picture(drawn: Mapping[str, Any]) -> list[Part]:
    rows = drawn["processes"]
    last = max(begin for _, begin, _ in rows)
    whole = max(*(end for _, _, end in rows), last) or 1e-9
    scale = (_WIDTH - _NAME - _TIME) / whole
    rectangles, labels = [], []
    for place, (process, begin, end) in enumerate(rows):
        y, until = _STEP * place, min(last, end)
        wait, name = until - begin, f"process {process}"
        labels.append(Label(0, y + 8, name, look="strong" if begin == last else ""))
        labels.append(Label(_WIDTH, y + 8, seconds_text(wait), "end", "faint"))
        for start, stop, colour, what in (
            (begin, until, 2, "waits"),
            (until, end, 1, "takes part"),
        ):
            x, width = _NAME + start * scale, max((stop - start) * scale, 0.5)
            title = f"{name} {what}: {seconds_text(stop - start)}"
            rectangles.append(
                Rectangle(round(x, 1), y + 2, round(width, 1), 12, colour, title=title)
            )
    more = (
        f"; {drawn['left_out']} processes between them are not drawn" if drawn["left_out"] else ""
    )
    legend = [Piece("waits", 0, 0, 2), Piece("takes part", 0, 0, 1)]
    return [
        Picture(
            text="When each process came to the collective, and how long it waited for the last",
            width=_WIDTH,
            height=_STEP * len(rows),
            rectangles=rectangles,
            labels=labels,
            caption=f"The longest wait: {drawn['collective']} of {drawn['program']}",
            detail=f"{seconds_text(last)} until the last came{more}",
        ),
        Legend([Bar("", legend)]),
    ]
