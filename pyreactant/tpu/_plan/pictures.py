"""Pictures of a plan's page, as plain data: times by layout, and the blocks of the best layout."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..._core.sharding import NamedSharding
from ..._core.text import seconds_text, spec_text
from .words import mesh_text

if TYPE_CHECKING:
    from .report import Plan

WIDTH = 360.0
"""Width of a picture in its own units; one is about a pixel."""

_ROOM = 44
"""Characters beside the time of a layout."""

_LEAST = 0.3
"""Smallest ratio of sides of a drawn matrix."""

_MOST_NAMED = 8
"""Blocks along a side up to which each block names its devices."""


@dataclass(frozen=True, slots=True)
class Line:
    """A layout in the picture of times.

    Attributes:
        label: Its label in the table.
        text: Its mesh and specs.
        time: Its time, as text.
        bars: Name, colour of the style sheet and length of each part; the longest time is 1.
        best: Whether it is the best layout.
    """

    label: str
    text: str
    time: str
    bars: tuple[tuple[str, int, float], ...]
    best: bool


@dataclass(frozen=True, slots=True)
class Block:
    """A block of an array: its place and size in the picture, and the devices that hold it."""

    x: float
    y: float
    width: float
    height: float
    devices: str


@dataclass(frozen=True, slots=True)
class Blocks:
    """An array and its blocks.

    Attributes:
        name: Name of the array.
        text: Shape and spec.
        height: Height of the picture; its width is `WIDTH`.
        blocks: The blocks; without devices if there are too many to name.
        note: What the picture leaves out.
    """

    name: str
    text: str
    height: float
    blocks: tuple[Block, ...]
    note: str


def times(found: "Plan") -> list[Line]:
    """The time of each layout that has one, the fastest first."""
    rows = [(label, one, one.seconds) for label, one in found.rows if one.seconds]
    most = max((seconds for _, _, seconds in rows), default=1.0)
    lines = []
    for label, one, seconds in rows:
        parts = (
            [("measured", 1, one.seconds)]
            if found.measured
            else [
                ("estimate", 1, one.seconds),
                ("XLA", 2, one.xla_seconds),
                ("links", 3, one.link_seconds),
            ]
        )
        bars = tuple((name, colour, value / most) for name, colour, value in parts if value)
        text = f"{mesh_text(one)}; {'; '.join(one.texts())}"
        text = text if len(text) <= _ROOM else f"{text[:_ROOM]}…"  # the table has it whole
        time = f"{'at least ' if one.at_least else ''}{seconds_text(seconds)}"
        lines.append(Line(label, text, time, bars, one is found.best))
    return lines


def placement(found: "Plan") -> list[Blocks]:
    """The arrays of the best layout, each with its blocks and the devices that hold them."""
    best = found.best
    if best is None:
        return []
    shapes, specs = list(found.shapes), list(best.specs)
    names = [f"argument {number}" for number in range(len(shapes))]
    if found.program == "matmul":
        names = ["x", "y", "product"]
        shapes.append((shapes[0][0], shapes[1][1]))
        specs.append(best.out_spec or ())
    return [
        _blocks(name, shape, NamedSharding(best.mesh, spec))
        for name, shape, spec in zip(names, shapes, specs, strict=True)
    ]


def _blocks(name: str, shape: tuple[int, ...], sharding: NamedSharding) -> Blocks:
    """The last two dimensions of an array; those before are drawn as one."""
    held: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for device, index in sharding.devices_indices_map(shape).items():
        flat = [(0, 1), (0, 1), *((s.start, s.stop) for s in index)]
        held.setdefault(tuple(flat[-2:]), []).append(device)
    rows, columns = ([1, 1, *shape])[-2:]
    height = WIDTH * min(1.0, max(_LEAST, rows / columns))
    width = WIDTH * min(1.0, max(_LEAST, columns / rows))
    down, right = (len({place[side] for place in held}) for side in (0, 1))
    named = max(down, right) <= _MOST_NAMED
    blocks = tuple(
        Block(
            round(width * left / columns, 2),
            round(height * top / rows, 2),
            round(width * (end - left) / columns, 2),
            round(height * (bottom - top) / rows, 2),
            ranges(devices) if named else "",
        )
        for ((top, bottom), (left, end)), devices in held.items()
    )
    text = f"{'x'.join(map(str, shape)) or 'scalar'} by {spec_text(sharding.axes(len(shape)))}"
    note = f"{down} x {right} blocks" if not named else ""
    if len(shape) > 2:
        note = "; ".join(filter(None, [note, "of its last two dimensions"]))
    return Blocks(name, text, round(height, 2), blocks, note)


def ranges(numbers: list[int]) -> str:
    """Whole numbers in short form: "0-3", "0, 4"; the first ones of many."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    texts = [str(a) if a == b else f"{a}-{b}" for a, b in runs]
    return ", ".join(texts[:3]) + (", ..." if len(texts) > 3 else "")
