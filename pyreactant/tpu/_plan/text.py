"""A plan as text: a table, a picture of time against memory, and command lines."""

import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..._core.text import Fitting, bytes_text, seconds_text
from .words import (
    LEGEND,
    MEASURED_LEGEND,
    considered_text,
    mesh_text,
    remarks,
    remarks_on_rows,
    shapes_text,
    verdict_text,
    where_text,
)

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table

    from .report import Plan

_FILE_WIDTH = 120


def text(found: "Plan") -> str:
    """The report as plain text of at most 120 columns, except for command lines."""
    from rich.console import Console

    file = io.StringIO()
    Console(file=file, width=_FILE_WIDTH, highlight=False, no_color=True).print(
        Shown(found), crop=False
    )
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


@dataclass(frozen=True, slots=True)
class Shown:
    """What rich prints of a plan, for the width of the terminal."""

    plan: "Plan"

    def __rich_console__(
        self, console: "Console", options: "ConsoleOptions"
    ) -> "Iterator[RenderableType]":
        """The parts in order. Command lines are not wrapped, so that they can be copied."""
        from rich.text import Text

        found = self.plan
        for line in _head(found):
            yield Text(line)
        if found.rows:
            yield Fitting(_table(found))
            yield from map(Text, _legend(found))
        yield from _picture(found, options.max_width)
        yield Text(verdict_text(found))
        lines = found.commands()
        if lines:
            yield Text("")
        for where, line in lines.items():
            yield Text(f"{where + ':':<12}{line}", no_wrap=True, overflow="ignore", end="\n")
        yield from map(Text, remarks(found))


def _head(found: "Plan") -> Iterator[str]:
    yield f"plan of {found.program} {shapes_text(found)} {found.dtype} for {where_text(found)}"
    yield considered_text(found)
    if not found.measured:
        yield "all times are estimates, nothing was run"
    if found.interrupted:
        yield "interrupted: these are the results so far"


def _legend(found: "Plan") -> Iterator[str]:
    columns = MEASURED_LEGEND if found.measured else LEGEND
    yield from (f"{name}: {meaning}" for name, meaning in columns.items())
    yield from remarks_on_rows(found)
    troubles: dict[str, list[str]] = {}
    for label, one in found.rows:
        if one.trouble:
            troubles.setdefault(one.trouble, []).append(label)
    for trouble, labels in troubles.items():
        yield f"{', '.join(labels)}: {trouble}"


def _picture(found: "Plan", width: int) -> "Iterator[RenderableType]":
    from rich.text import Text

    points = [
        Point(label, one.bytes_per_device or one.layout.memory_bytes, one.seconds)
        for label, one in found.rows
        if one.seconds is not None
    ]
    lines = scatter(points, found.hbm_bytes, min(width, WIDTH))
    if not lines:
        return
    yield Text("")
    yield Text("\n".join(lines), no_wrap=True, overflow="ignore")
    limit = "; ┊ is what a device has" if any("┊" in line for line in lines) else ""
    yield Text(f"time of a call (up), against bytes on each device (to the right){limit}")
    yield Text("")


def _table(found: "Plan") -> "Table":
    from rich import box
    from rich.table import Table

    matmul = found.program == "matmul"
    names = ["x", "y", "product"] if matmul else [f"argument {i}" for i in range(len(found.shapes))]
    times = ["measured"] if found.measured else ["estimate", "XLA", "links"]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for name in ("", "mesh", *names):
        table.add_column(name, overflow="fold")
    for name in (*times, "sends", "per device"):
        table.add_column(name, justify="right", overflow="fold")
    for label, one in found.rows:
        seconds = (
            [one.seconds] if found.measured else [one.seconds, one.xla_seconds, one.link_seconds]
        )
        numbers = ["-" if value is None else seconds_text(value) for value in seconds]
        if one.at_least:
            numbers[0] = f"> {numbers[0]}"
        sizes = (one.sent_bytes, one.bytes_per_device)
        numbers += ["-" if size is None else bytes_text(size) for size in sizes]
        table.add_row(
            label,
            mesh_text(one),
            *one.texts(),
            *numbers,
            style="bold" if one is found.best else None,
        )
    return table


WIDTH, _HEIGHT = 76, 12
_FAR_APART = 8.0


@dataclass(frozen=True, slots=True)
class Point:
    """A candidate in the picture: its label in the table, bytes on each device, seconds."""

    label: str
    size: float
    seconds: float


@dataclass(frozen=True, slots=True)
class _Scale:
    """The scale of an axis: linear from 0, or logarithmic if values are far apart."""

    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float], high: float) -> "_Scale":
        low = min(values)
        return cls(low / 1.3 if 0 < low < high / _FAR_APART else 0.0, high or 1.0)

    def place(self, value: float) -> float:
        """The position of a value, from 0 to 1."""
        if not self.low:
            return min(1.0, value / self.high)
        return min(1.0, math.log(value / self.low) / math.log(self.high / self.low))

    def value(self, place: float) -> float:
        """The value at a position."""
        if not self.low:
            return self.high * place
        return float(self.low * (self.high / self.low) ** place)


def scatter(
    points: Sequence[Point], limit: float | None = None, width: int = WIDTH, height: int = _HEIGHT
) -> list[str]:
    """Lines of a scatter plot: fast is low, small is left; each point is its label.

    ┊ is the memory of a device.

    A label whose position is taken moves to the nearest free one on its right.

    Args:
        points: The points.
        limit: Memory of a device in bytes; drawn if it is in range.
        width: Characters of a line, with the axis.
        height: Lines of the plot area.
    """
    if not points:
        return []
    sizes, times = [p.size for p in points], [p.seconds for p in points]
    near = limit is not None and limit <= 4 * max(sizes)
    right = max(limit, *sizes) if near and limit is not None else 1.05 * max(sizes)
    across, up = _Scale.of(sizes, right), _Scale.of(times, max(times))
    names = [
        seconds_text(up.value((height - 1 - i) / (height - 1))) if i % 3 == (height - 1) % 3 else ""
        for i in range(height)
    ]
    margin = max(map(len, names))
    width = max(8, width - margin - len(" │") - 1)
    grid = [[" "] * (width + 1) for _ in range(height)]
    if near and limit is not None:
        for row in grid:
            row[round(across.place(limit) * width)] = "┊"
    for point in points:
        row = grid[height - 1 - round(up.place(point.seconds) * (height - 1))]
        _write(row, round(across.place(point.size) * width), point.label)
    lines = [
        f"{name:>{margin}} │{''.join(row).rstrip()}" for name, row in zip(names, grid, strict=True)
    ]
    left, end = bytes_text(across.low), bytes_text(right)
    lines.append(f"{'':>{margin}} └{'─' * (width + 1)}")
    lines.append(f"{'':>{margin}}  {left}{end:>{width + 1 - len(left)}}")
    return lines


def _write(row: list[str], column: int, label: str) -> None:
    column = max(0, min(column, len(row) - len(label)))
    for start in [*range(column, len(row) - len(label) + 1), *range(column, -1, -1)]:
        if all(c in " ┊" for c in row[start : start + len(label)]):
            row[start : start + len(label)] = label
            return
