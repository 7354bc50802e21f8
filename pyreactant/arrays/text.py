"""Meshes, specs, blocks, seconds and bytes as short text; lines that fit a terminal.

Command lines and environment variables give meshes and specs in this form too.
"""

import itertools
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TextIO

from ..base.counted import counted
from ..base.errors import InvalidArgumentError, ShardingError

if TYPE_CHECKING:
    from .mesh import Mesh

_DEFAULT_AXES = "xyzuvw"

MESH_HELP = "sizes as 2x4 (axes x, y, ...) or names with sizes as data=2,model=4"
SPEC_HELP = "one entry per dimension as x,y ; None is not sharded, x+y is over both, x first"


def parse_mesh(text: str, device_ids: Sequence[int] | None = None) -> "Mesh":
    """The mesh that a text describes.

    Args:
        text: "2x4" has axes x and y; "data=2,model=4" names them.
        device_ids: As for `Mesh`.

    Raises:
        ShardingError: It has another form.
    """
    wrong = ShardingError(f"cannot read mesh {text!r}; write {MESH_HELP}")
    if "=" in text:
        pairs = [part.split("=") for part in text.split(",")]
        if not all(len(pair) == 2 for pair in pairs):
            raise wrong
        names, sizes = zip(*((name.strip(), size.strip()) for name, size in pairs), strict=True)
    else:
        sizes = tuple(part.strip() for part in text.lower().split("x"))
        names = tuple(_DEFAULT_AXES[: len(sizes)])
    # More digits than any machine has devices are a mistake, and int() refuses very long ones.
    if not all(re.fullmatch("[0-9]{1,9}", size) for size in sizes) or len(names) != len(sizes):
        raise wrong
    from .mesh import Mesh

    return Mesh([int(size) for size in sizes], names, device_ids)


def format_mesh(mesh: "Mesh") -> str:
    """The text that `parse_mesh` reads back, without device ids."""
    if mesh.axis_names == tuple(_DEFAULT_AXES[: len(mesh.shape)]):
        return "x".join(map(str, mesh.shape))
    return ",".join(f"{n}={size}" for n, size in zip(mesh.axis_names, mesh.shape, strict=True))


def parse_spec(text: str) -> tuple[str | tuple[str, ...] | None, ...]:
    """The partition spec that a text describes: "x,y", "x,None", "x+y,None".

    Raises:
        ShardingError: It has another form. `NamedSharding` checks that the axes exist.
    """
    return tuple(_parse_entry(entry.strip(), text) for entry in text.split(","))


def _parse_entry(entry: str, text: str) -> str | tuple[str, ...] | None:
    if entry in ("None", "none", "-"):
        return None
    names = tuple(name.strip() for name in entry.split("+"))
    if not all(name.isidentifier() for name in names):
        raise ShardingError(f"cannot read partition spec {text!r}; write {SPEC_HELP}")
    return names[0] if len(names) == 1 else names


def spec_text(spec: Sequence[str | Sequence[str] | None]) -> str:
    """The text that `parse_spec` reads back: "x,None", "x+y,None"; "" for a scalar."""
    entries = (entry if isinstance(entry, str) else "+".join(entry or ()) for entry in spec)
    return ",".join(entry or "None" for entry in entries)


def specs_text(specs: Iterable[Sequence[str | Sequence[str] | None]], joint: str = " ") -> str:
    """Several partition specs; "-" for a scalar's."""
    return joint.join(spec_text(spec) or "-" for spec in specs)


def parse_sizes(
    size: int | None, m: int | None, k: int | None, n: int | None
) -> tuple[int, int, int] | None:
    """Sizes (m, k, n) of a product from --size or --m, --k and --n; None without any.

    Raises:
        InvalidArgumentError: Both forms are given, or only some of the three.
    """
    if size is not None:
        if (m, k, n) != (None, None, None):
            raise InvalidArgumentError("give --size, or --m, --k and --n, not both")
        return size, size, size
    if m is None and k is None and n is None:
        return None
    if m is None or k is None or n is None:
        raise InvalidArgumentError("give --m, --k and --n together, or --size")
    return m, k, n


def parse_shape(text: str) -> tuple[int, ...]:
    """The shape that a text describes: "1024x512"; "" for a scalar; or InvalidArgumentError."""
    sides = text.lower().split("x") if text else []
    if not all(re.fullmatch("[0-9]{1,18}", side) for side in sides):
        raise InvalidArgumentError(
            f"a shape is whole numbers with x between them, as 1024x512, got {text!r}; all "
            "sizes are fixed, so give the largest that you need and pad to it"
        )
    return tuple(map(int, sides))


def block_text(index: Sequence[slice] | Sequence[Sequence[int]] | None) -> str:
    """A block as Python slices it: "[0:4, 2:4]"; "no block" for None.

    Args:
        index: One slice per dimension, or [start, stop] as in JSON.
    """
    if index is None:
        return "no block"
    ends = ((s.start, s.stop) if isinstance(s, slice) else s for s in index)
    return "[" + ", ".join(f"{start}:{stop}" for start, stop in ends) + "]"


def seconds_text(value: float) -> str:
    """Seconds with three digits and a unit, such as "948 us"."""
    if not value:
        return "0 s"
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if value >= scale:
            return f"{_three_digits(value / scale)} {unit}"
    return f"{_three_digits(value / 1e-6)} us"


def bytes_text(value: float | None) -> str:
    """Bytes with three digits and a binary unit, such as "1.5 GiB"; "-" for None."""
    if value is None:
        return "-"
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(value) >= scale:
            return f"{_three_digits(value / scale)} {unit}"
    return f"{value:.0f} B"


def percent_text(part: float, digits: int = 3) -> str:
    """A fraction in per cent, such as "0.04 %"; never rounded to nothing."""
    return f"{100 * part:.{digits}g} %" if part < 1 else f"{100 * part:.0f} %"


def ranges_text(numbers: Iterable[int], limit: int = 12) -> str:
    """Numbers as ranges, in order: "0-3, 7"; those beyond the limit are counted."""
    groups = itertools.groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0])
    ranges = [[number for _, number in group] for _, group in groups]
    texts = [f"{g[0]}-{g[-1]}" if len(g) > 2 else ", ".join(map(str, g)) for g in ranges]
    more = len(texts) - limit
    return ", ".join(texts[:limit]) + (f" and {counted(more, 'more range')}" if more > 0 else "")


def _three_digits(value: float) -> str:
    """Three digits, or all of those before the point; never an exponent such as 1e+03."""
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:.0f}"


_ROOM = 24
"""Characters that a line must have beside its beginning; else the text goes below that."""

_BELOW = 4


def width_of(stream: TextIO) -> int | None:
    """Characters in a line of a terminal; None for a file or a pipe, whose lines have no end."""
    try:
        if not stream.isatty():
            return None
        given = os.environ.get("COLUMNS", "")
        columns = int(given) if given.isascii() and given.isdigit() else 0
        return columns or os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):
        return None


def hanging(start: str, text: str, width: int | None) -> str:
    """Text after a beginning, broken between words, with its later lines below its first.

    Where little room is beside the beginning, the text goes below that, 4 spaces in. Words that are
    longer than a line stay whole, such as paths. Without a width all is one line.
    """
    if width is None or len(start) + len(text) <= width:
        return f"{start}{text}".rstrip()
    beside = len(start) if width - len(start) >= _ROOM else 0
    indent = " " * (beside or min(_BELOW, len(start)))
    lines = _wrap(text, width, indent)
    if beside:
        return "\n".join([start + lines[0][beside:], *lines[1:]])
    return "\n".join([*_wrap(start, width), *lines])


def _wrap(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        max(width, len(indent) + 1),
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def break_lines(text: str, stream: TextIO | None = None) -> str:
    """The lines of a text, broken between words where they are too long for a terminal."""
    width = width_of(stream or sys.stderr)
    return "\n".join(
        hanging(line[: len(line) - len(line.lstrip())], line.lstrip(), width)
        for line in text.split("\n")
    )
