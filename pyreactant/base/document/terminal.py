"""Parts of documents on a terminal, by rich."""

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .parts import Lines, Paragraph, Table

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Table as RichTable

STYLES = {"good": "green", "bad": "bold red", "warn": "yellow", "strong": "bold"}
"""How rich shows each look."""


def printed(
    parts: Iterable[Paragraph | Lines | Table], *, wraps: bool = False
) -> "Iterator[RenderableType]":
    """What rich prints of parts, in order.

    Args:
        parts: The parts. Lines are not wrapped, so that they can be copied.
        wraps: Whether cells of tables may have several lines, of whole words. If not, columns stand
            close to each other.
    """
    from rich.text import Text

    for part in parts:
        match part:
            case Paragraph():
                yield Text(part.text, STYLES.get(part.look, ""))
            case Lines():
                yield Text(part.text, no_wrap=True, overflow="ignore")
            case Table():
                yield Fitting(_rich(part, close=not wraps), wraps)


def _rich(table: Table, *, close: bool) -> "RichTable":
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=close,
        caption=table.caption or None,
        caption_justify="left",
    )
    for place, title in enumerate(table.head):
        justify: Any = "right" if place in table.numbers else "left"
        shown.add_column(title, justify=justify, overflow="fold")
    for cells in table.lines:
        shown.add_row(*(Text(cell.text, STYLES.get(cell.look, "")) for cell in cells))
    return shown


@dataclass(frozen=True, slots=True)
class Fitting:
    """What rich prints of a table, without a broken word.

    Attributes:
        table: The table.
        wraps: Whether cells may have several lines, of whole words.
    """

    table: "RichTable"
    wraps: bool = False

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        """The table, or lines such as "  chips: 16" if it is wider than the terminal."""
        from rich.measure import Measurement

        wide = options.update(width=10_000)
        measured = Measurement.get(console, wide, self.table)
        room = options.max_width
        if measured.maximum <= room:
            yield self.table
            return
        columns = [
            [Measurement.get(console, wide, cell) for cell in (column.header, *column.cells)]
            for column in self.table.columns
        ]
        least = [max(m.minimum for m in cells) for cells in columns]
        most = [max(m.maximum for m in cells) for cells in columns]
        room -= measured.maximum - sum(most)  # what lies between columns
        if self.wraps and sum(least) <= room:
            yield self._with_widths(_divide_room(room, least, most))
            return
        names = [str(column.header).replace("\n", " ") for column in self.table.columns]
        if self.wraps:
            yield ""  # as above a table
        for row in zip(*(column.cells for column in self.table.columns), strict=True):
            for number, (name, cell) in enumerate(zip(names, row, strict=True)):
                yield _line(name, cell, first=number == 0)
        if self.table.caption:
            yield self.table.caption
        if self.wraps:
            yield ""

    def _with_widths(self, widths: Sequence[int]) -> "RichTable":
        """The table with these widths of columns: rich's own would break words before lines."""
        table = copy.copy(self.table)
        pairs = zip(table.columns, widths, strict=True)
        table.columns = [replace(column, width=width) for column, width in pairs]
        return table


def _divide_room(room: int, least: Sequence[int], most: Sequence[int]) -> list[int]:
    """Widths of columns: each its longest word, and a share of the rest by what it lacks."""
    spare, lack = room - sum(least), sum(most) - sum(least)
    return [a + spare * (b - a) // lack for a, b in zip(least, most, strict=True)]


def _line(name: str, cell: Any, *, first: bool) -> Any:
    from rich.text import Text

    start = f"{'' if first else '  '}{f'{name}: ' if name else ''}"
    return Text.assemble(start, cell if isinstance(cell, Text) else Text.from_markup(str(cell)))
