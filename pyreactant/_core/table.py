"""A table that fits: on a narrow terminal each row becomes lines of its own."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table


@dataclass(frozen=True, slots=True)
class Fitting:
    """What rich prints of a table, without a broken word.

    Attributes:
        table: The table.
        wraps: Whether cells may have several lines, of whole words.
    """

    table: "Table"
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
            yield self._with_widths(_shared(room, least, most))
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

    def _with_widths(self, widths: Sequence[int]) -> "Table":
        """The table with these widths of columns: rich's own would break words before lines."""
        table = copy.copy(self.table)
        pairs = zip(table.columns, widths, strict=True)
        table.columns = [replace(column, width=width) for column, width in pairs]
        return table


def _shared(room: int, least: Sequence[int], most: Sequence[int]) -> list[int]:
    """Widths of columns: each its longest word, and a share of the rest by what it lacks."""
    spare, lack = room - sum(least), sum(most) - sum(least)
    return [a + spare * (b - a) // lack for a, b in zip(least, most, strict=True)]


def _line(name: str, cell: Any, *, first: bool) -> Any:
    from rich.text import Text

    start = f"{'' if first else '  '}{f'{name}: ' if name else ''}"
    return Text.assemble(start, cell if isinstance(cell, Text) else Text.from_markup(str(cell)))
