"""A table that fits: on a narrow terminal each row becomes lines of its own."""

from dataclasses import dataclass
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
        if (measured.minimum if self.wraps else measured.maximum) <= options.max_width:
            yield self.table
            return
        names = [str(column.header).replace("\n", " ") for column in self.table.columns]
        for row in zip(*(column.cells for column in self.table.columns), strict=True):
            for number, (name, cell) in enumerate(zip(names, row, strict=True)):
                yield _line(name, cell, first=number == 0)
        if self.table.caption:
            yield self.table.caption


def _line(name: str, cell: Any, *, first: bool) -> Any:
    from rich.text import Text

    start = f"{'' if first else '  '}{f'{name}: ' if name else ''}"
    return Text.assemble(start, cell if isinstance(cell, Text) else Text.from_markup(str(cell)))
