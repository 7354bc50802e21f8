"""A picture of a slice: the VM of each chip, readable with and without colour."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ._topology import Topology

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.text import Text

# Distinct in light and dark themes; the numbers carry the same information.
COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "red", "white", "bright_black")
_MOST_LAYERS = 16
_GAP = "   "


def layer(found: Topology, z: int) -> list[list[int]]:
    """The VM of each chip of one layer, as one list of numbers (by x) for each y."""
    columns, rows = found.shape[:2]
    return [[found.host_of((x, y, z)) for x in range(columns)] for y in range(rows)]


@dataclass(frozen=True, slots=True)
class SlicePicture:
    """The chips of one slice with the number of their VM; lines separate the VMs.

    Slices of three dimensions are drawn layer by layer along z, side by side if they fit.
    """

    topology: Topology

    def __rich_console__(
        self, console: "Console", options: "ConsoleOptions"
    ) -> "Iterator[RenderableType]":
        from rich.text import Text

        found = self.topology
        deep = found.shape[2] if len(found.shape) == 3 else 1
        pictures = [_layer(found, z) for z in range(min(deep, _MOST_LAYERS))]
        width = pictures[0][-1].cell_len + len(_GAP)
        beside = max(1, (options.max_width + len(_GAP)) // width)
        for start in range(0, len(pictures), beside):
            for lines in zip(*pictures[start : start + beside], strict=True):
                yield Text(_GAP).join(lines)
        if deep > _MOST_LAYERS:
            yield Text(f"... and {deep - _MOST_LAYERS} more layers, up to VM {_last(found)}")


def _last(found: Topology) -> int:
    return found.hosts // found.num_slices - 1


def _layer(found: Topology, z: int) -> "list[Text]":
    """The lines of one layer, all of the same width: title, x, then each row of chips."""
    from rich.text import Text

    cell = len(str(_last(found))) + 1
    every_x, every_y = found.host_bounds[:2]
    rows = layer(found, z)
    name = len(f"y={len(rows) - 1}")
    groups = [min(every_x, len(rows[0]) - x) for x in range(0, len(rows[0]), every_x)]
    bars = ["─" * (cell * n + 1) for n in groups]
    heads = "  ".join("".join(f"{x:>{cell}}" for x in part) for part in _parts(rows[0], every_x))
    lines = [Text(f"{'x=':>{name + 2}}{heads}  ")]
    if len(found.shape) == 3:
        lines.insert(0, Text(f"{'':>{name}} z={z}"))
    for y, row in enumerate(rows):
        if y % every_y == 0:
            left, middle, right = "┌┬┐" if y == 0 else "├┼┤"
            lines.append(Text(" " * (name + 1) + left + middle.join(bars) + right))
        line = Text(f"{f'y={y}':>{name}} │")
        for host, same in itertools.groupby(row):
            line.append("".join(f"{host:>{cell}}" for _ in same), COLOURS[host % len(COLOURS)])
            line.append(" │")
        lines.append(line)
    lines.append(Text(" " * (name + 1) + "└" + "┴".join(bars) + "┘"))
    longest = max(line.cell_len for line in lines)
    for line in lines:
        line.pad_right(longest - line.cell_len)
    return lines


def _parts(row: list[int], size: int) -> Iterator[range]:
    for start in range(0, len(row), size):
        yield range(start, min(start + size, len(row)))
