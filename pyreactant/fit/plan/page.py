"""The page of a plan, with its pictures as plain data: times, and the best layout's blocks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ...arrays.sharding import NamedSharding
from ...arrays.text import bytes_text, seconds_text, spec_text
from ...base.document.parts import Cell, Document, Group, Lines, Paragraph, Section, Table
from .text import (
    LEGEND,
    MEASURED_LEGEND,
    array_names,
    considered_text,
    mesh_text,
    remarks,
    remarks_on_rows,
    shapes_text,
    times_of,
    verdict_text,
    where_text,
)

if TYPE_CHECKING:
    from .report import Candidate, Plan

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
class Times:
    """The picture of times.

    Attributes:
        lines: The layouts that have a time.
        names: Name and colour of the kinds of bars, for the legend.
        width: Width of the picture.
    """

    kind: ClassVar[str] = "times"
    lines: Sequence[Line]
    names: Sequence[tuple[str, int]]
    width: float = WIDTH


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
        height: Height of the picture.
        blocks: The blocks; without devices if there are too many to name.
        note: What the picture leaves out.
        room: Width of the picture.
    """

    kind: ClassVar[str] = "blocks"
    name: str
    text: str
    height: float
    blocks: tuple[Block, ...]
    note: str
    room: float = WIDTH


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
    if found.program == "matmul":
        shapes.append((shapes[0][0], shapes[1][1]))
        specs.append(best.out_spec or ())
    return [
        _blocks(name, shape, NamedSharding(best.mesh, spec))
        for name, shape, spec in zip(array_names(found), shapes, specs, strict=True)
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


def document(found: "Plan") -> Document:
    """What the page shows."""
    best, where, lines = found.best, where_text(found), times(found)
    word = "Nothing fits" if best is None else "Fastest layout"
    if len(found.tied) > 1:
        word = "Layouts tie"
    if found.interrupted:
        word += " so far"
    names = list(dict.fromkeys((name, colour) for line in lines for name, colour, _ in line.bars))
    arrays, commands = placement(found), found.commands()
    return Document(
        title=f"Plan of {found.program} on {where}",
        mark=Cell(word, "bad" if best is None else "good"),
        heading=f"{found.program} {shapes_text(found)} {found.dtype} on {where}",
        summary=_summary(found),
        small=["measured" if found.measured else "compiled, not run: all times are estimates"],
        sections=[
            Section("Time of a call", [Times(lines, names)] if lines else []),
            Section("Layouts", [_table(found), *map(_small, _remarks(found))], titled=False),
            Section(
                "Which device holds what",
                [_small(_PLACEMENT), Group(arrays, "figures narrow")] if arrays else [],
            ),
            Section(
                "Commands for the chosen layout",
                [
                    *map(_small, remarks(found) if commands else ()),
                    *(Lines(line, where) for where, line in commands.items()),
                ],
            ),
        ],
    )


_PLACEMENT = "The blocks of the chosen layout; the numbers are positions in pyreactant.devices()."


def _small(text: str) -> Paragraph:
    return Paragraph(text, "small")


def _summary(found: "Plan") -> str:
    best = found.best
    if best is None or best.seconds is None:
        limit = "" if found.hbm_bytes is None else f" the {bytes_text(found.hbm_bytes)} of"
        return f"No layout was found that fits{limit} a device."
    least = "at least " if best.at_least else ""
    specs, seconds = "; ".join(best.texts()), seconds_text(best.seconds)
    return f"{mesh_text(best)}, sharded by {specs}: {least}{seconds}. {verdict_text(found)}."


def _remarks(found: "Plan") -> list[str]:
    columns = MEASURED_LEGEND if found.measured else LEGEND
    legend = [f"{name}: {meaning}" for name, meaning in columns.items()]
    bars = "Bars under times are shares of the longest one"
    if found.hbm_bytes:
        bars += f"; bars under bytes are shares of a device's {bytes_text(found.hbm_bytes)}"
    return [f"{considered_text(found)}.", *legend, f"{bars}.", *remarks_on_rows(found)]


def _table(found: "Plan") -> Table:
    rows = found.rows
    names = array_names(found)
    times = ["measured"] if found.measured else ["estimate", "XLA", "links"]
    head = ["rank", "mesh", *names, *times, "sends", "per device"]
    first = 2 + len(names)
    troubles = any(one.trouble for _, one in rows)
    most = max((one.seconds or 0.0 for _, one in rows), default=0.0) or 1.0
    return Table(
        "Layouts, the fastest first",
        head + (["trouble"] if troubles else []),
        [_row(found, label, one, most)[: len(head) + troubles] for label, one in rows],
        numbers=range(first, first + len(times) + 2),
    )


def _row(found: "Plan", label: str, one: "Candidate", most: float) -> list[Cell | str]:
    first, *estimates = times_of(found, one)
    size, hbm = one.bytes_per_device, found.hbm_bytes
    memory = Cell(bytes_text(size), share=size / hbm if size and hbm else None)
    specs, arrays = list(one.texts()), len(array_names(found))
    specs += ["-"] * (arrays - len(specs))
    return [
        Cell(label, "good" if one is found.best else ""),
        mesh_text(one),
        *specs[:arrays],
        Cell(first, share=None if one.seconds is None else one.seconds / most),
        *estimates,
        bytes_text(one.sent_bytes),
        memory,
        one.trouble,
    ]
