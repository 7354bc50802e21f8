"""A picture of layouts in a terminal: the time of a call against the bytes on each device."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..._core.text import bytes_text, seconds_text

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
