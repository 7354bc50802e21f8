"""A picture of a plan in text: time against bytes on each device."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

_WIDTH, _HEIGHT = 64, 12
_FAR_APART = 8.0


@dataclass(frozen=True, slots=True)
class Point:
    """A candidate: what it is called in the table, bytes on each device, seconds."""

    label: str
    size: float
    seconds: float


@dataclass(frozen=True, slots=True)
class _Scale:
    """From a value to a place: from 0, or by powers where values are far apart."""

    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float], high: float) -> "_Scale":
        low = min(values)
        return cls(low / 1.3 if 0 < low < high / _FAR_APART else 0.0, high or 1.0)

    def place(self, value: float) -> float:
        """From 0 to 1."""
        if not self.low:
            return min(1.0, value / self.high)
        return min(1.0, math.log(value / self.low) / math.log(self.high / self.low))

    def value(self, place: float) -> float:
        """What stands at a place."""
        if not self.low:
            return self.high * place
        return float(self.low * (self.high / self.low) ** place)


def scatter(
    points: Sequence[Point], limit: float | None = None, width: int = _WIDTH, height: int = _HEIGHT
) -> list[str]:
    """Lines of a picture: fast is low, small is left; the labels stand where the points are.

    A label that finds its place taken goes to the nearest free one to its right.

    Args:
        points: What to show.
        limit: Bytes that a device has; drawn where the picture reaches so far.
        width: Characters of the picture itself.
        height: Lines of the picture itself.
    """
    if not points:
        return []
    sizes, times = [p.size for p in points], [p.seconds for p in points]
    near = limit is not None and limit <= 4 * max(sizes)
    right = max(limit, *sizes) if near and limit is not None else 1.05 * max(sizes)
    across, up = _Scale.of(sizes, right), _Scale.of(times, max(times))
    grid = [[" "] * (width + 1) for _ in range(height)]
    if near and limit is not None:
        for row in grid:
            row[round(across.place(limit) * width)] = "┊"
    for point in points:
        row = grid[height - 1 - round(up.place(point.seconds) * (height - 1))]
        _write(row, round(across.place(point.size) * width), point.label)
    names = [
        seconds_text(up.value((height - 1 - i) / (height - 1))) if i % 3 == (height - 1) % 3 else ""
        for i in range(height)
    ]
    margin = max(map(len, names))
    lines = [
        f"{name:>{margin}} │{''.join(row).rstrip()}" for name, row in zip(names, grid, strict=True)
    ]
    left, end = bytes_text(across.low), bytes_text(right)
    lines.append(f"{'':>{margin}} └{'─' * (width + 1)}")
    lines.append(f"{'':>{margin}}  {left}{end:>{width + 1 - len(left)}}")
    note = "; ┊ is what a device has" if near else ""
    lines.append(f"{'':>{margin}}  time of a call, against bytes on each device{note}")
    return lines


def _write(row: list[str], column: int, label: str) -> None:
    column = max(0, min(column, len(row) - len(label)))
    for start in [*range(column, len(row) - len(label) + 1), *range(column, -1, -1)]:
        if all(c in " ┊" for c in row[start : start + len(label)]):
            row[start : start + len(label)] = label
            return


def seconds_text(value: float) -> str:
    """Seconds for people: "0.599 ms"."""
    if not value:
        return "0"
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-6:.3g} us"


def bytes_text(value: float) -> str:
    """Bytes for people: "288 MiB"."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= scale:
            return (
                f"{value / scale:.3g} {unit}"
                if value < 1000 * scale
                else f"{value / scale:.0f} {unit}"
            )
    return f"{value:.0f} B" if value else "0"
