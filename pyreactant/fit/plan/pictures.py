"""The pictures on the page of a plan: the times of its layouts, and an array's blocks."""

from collections.abc import Sequence

from ...arrays.sharding import NamedSharding
from ...arrays.text import seconds_text, spec_text
from ...base.document.parts import Bar, Label, Legend, Part, Picture, Piece, Rectangle
from .candidate import Candidate

WIDTH = 360.0
"""Width of a picture in its own units; one is about a pixel."""

_STEP = 42
"""Height of a layout in the picture of times: a line of text, and up to three bars."""

_ROOM = 44
"""Characters beside the time of a layout."""

_LEAST = 0.3
"""Smallest ratio of sides of a drawn matrix."""

_MOST_NAMED = 8
"""Blocks along a side up to which each block names its devices."""


def times_picture(
    rows: Sequence[tuple[str, Candidate]], best: Candidate | None, measured: bool
) -> list[Part]:
    """The time of each layout that has one, and a legend; nothing without any.

    Args:
        rows: The candidates with their labels, the fastest first.
        best: The chosen candidate.
        measured: Whether times were measured rather than estimated.
    """
    timed = [(label, candidate) for label, candidate in rows if candidate.seconds]
    most = max((candidate.seconds or 0.0 for _, candidate in timed), default=1.0)
    rectangles: list[Rectangle] = []
    labels: list[Label] = []
    pieces: dict[str, Piece] = {}
    for number, (label, candidate) in enumerate(timed):
        top = _STEP * number
        text = f"{candidate.mesh_text}; {'; '.join(candidate.layout.texts())}"
        text = text if len(text) <= _ROOM else f"{text[:_ROOM]}…"  # the table has it whole
        time = f"{'at least ' * candidate.at_least}{seconds_text(candidate.seconds or 0.0)}"
        look = "strong" if candidate is best else ""
        labels += [
            Label(0, top + 8, f"{label}  {text}", look=look),
            Label(WIDTH, top + 8, time, "end", "faint"),
        ]
        times = {"measured" if measured else "estimate": candidate.seconds}
        if not measured:
            times |= {"XLA": candidate.xla_seconds, "links": candidate.link_seconds}
        bars = [(name, seconds) for name, seconds in times.items() if seconds]
        for place, (name, seconds) in enumerate(bars):
            colour = [*times].index(name) + 1
            length = round(WIDTH * seconds / most, 1)
            y = top + 17 + 6 * place
            rectangles.append(Rectangle(0, y, length, 5, colour, title=f"{label}, {name}"))
            pieces.setdefault(name, Piece(name, 0, 0, colour))
    if not timed:
        return []
    picture = Picture(
        text="Time of a call by layout; the table has the numbers",
        width=WIDTH,
        height=_STEP * len(timed),
        rectangles=rectangles,
        labels=labels,
    )
    return [picture, Legend([Bar("", list(pieces.values()))])]


def blocks_picture(name: str, shape: tuple[int, ...], sharding: NamedSharding) -> Picture:
    """The blocks of an array, and the devices that hold them if they are few.

    It shows the last two dimensions; those before are drawn as one.
    """
    devices_of: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for device, index in sharding.devices_indices_map(shape).items():
        flat = [(0, 1), (0, 1), *((s.start, s.stop) for s in index)]
        devices_of.setdefault(tuple(flat[-2:]), []).append(device)
    rows, columns = ([1, 1, *shape])[-2:]
    height = WIDTH * min(1.0, max(_LEAST, rows / columns))
    width = WIDTH * min(1.0, max(_LEAST, columns / rows))
    down, right = (len({place[side] for place in devices_of}) for side in (0, 1))
    named = max(down, right) <= _MOST_NAMED
    rectangles, labels = [], []
    for ((top, bottom), (left, end)), devices in devices_of.items():
        x, y = round(width * left / columns, 2), round(height * top / rows, 2)
        across, along = width * (end - left) / columns, height * (bottom - top) / rows
        text = _ranges(devices) if named else ""
        title = f"devices {text}" if named else ""
        rectangles.append(Rectangle(x, y, round(across, 2), round(along, 2), title=title))
        if named:
            labels.append(Label(round(x + across / 2, 2), round(y + along / 2, 2), text, "middle"))
    notes = [] if named else [f"{down} x {right} blocks"]
    notes += ["of its last two dimensions"] if len(shape) > 2 else []
    size = "x".join(map(str, shape)) or "scalar"
    return Picture(
        text=f"Blocks of {name} and the devices that hold them",
        width=WIDTH,
        height=round(height, 2),
        rectangles=rectangles,
        labels=labels,
        caption=name,
        detail=f"{size} by {spec_text(sharding.axes(len(shape)))}",
        note="; ".join(notes),
        look="narrow",
    )


def _ranges(numbers: list[int]) -> str:
    """Whole numbers in short form: "0-3", "0, 4"; the first ones of many."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    texts = [str(a) if a == b else f"{a}-{b}" for a, b in runs]
    return ", ".join(texts[:3]) + (", ..." if len(texts) > 3 else "")
