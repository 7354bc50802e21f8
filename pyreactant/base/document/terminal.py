"""Parts of documents on a terminal, by rich; text without tables needs no rich."""

import abc
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .parts import Cell, Items, Lines, Paragraph, Part, Section, Table

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Table as RichTable
    from rich.text import Text

STYLES = {"good": "green", "bad": "bold red", "warn": "yellow", "strong": "bold"}
"""How rich shows each look."""

COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "red", "white", "bright_black")
"""Colours of things that are told apart by their numbers, distinct in light and dark themes."""


class HasText(abc.ABC):
    """A report that can be shown on a terminal; rich's `print` shows it in colours."""

    __slots__ = ()

    @abc.abstractmethod
    def parts(self) -> Iterable[Part]:
        """What a terminal shows."""

    def to_text(self, width: int = 120) -> str:
        """The report as plain text for a terminal of this width."""
        return text_of(self.parts(), width)

    def __str__(self) -> str:
        return self.to_text()

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        yield from printed(self.parts())


def printed(parts: Iterable[Part]) -> "Iterator[RenderableType]":
    """What rich prints of parts, in order.

    Lines are not wrapped, so that they can be copied. A section has an empty line and its title
    above it, a list and lines with a title are indented.
    """
    from rich.text import Text

    for line in _lines(parts):
        if isinstance(line, Table):
            yield _Fitting(line)
        elif line.whole:
            yield Text(line.text, no_wrap=True, overflow="ignore")
        else:
            yield Text.assemble(line.name, (line.text, STYLES.get(line.look, "")))


def text_of(parts: Iterable[Part], width: int | None) -> str:
    """Parts as plain text, without blanks at the ends of lines.

    Args:
        parts: The parts.
        width: Width of the text; None breaks no line, and takes no tables but facts.
    """
    if width is None:
        lines = [f"{x.name}{x.text}" for x in _lines(parts) if not isinstance(x, Table)]
    else:
        from rich.console import Console, Group

        console = Console(width=width, highlight=False, no_color=True, force_terminal=False)
        with console.capture() as captured:
            console.print(Group(*printed(parts)), crop=False)
        lines = captured.get().splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines)


@dataclass(frozen=True, slots=True)
class _Line:
    """A line, with what is before it and has no look."""

    text: str
    look: str = ""
    whole: bool = False
    name: str = ""


def _lines(parts: Iterable[Part]) -> Iterator[_Line | Table]:
    """The lines of parts, and the tables that are to be drawn."""
    for part in parts:
        match part:
            case Paragraph():
                yield _Line(part.text, part.look)
            case Lines(title=""):
                yield _Line(part.text, whole=True)
            case Lines():
                yield _Line(f"{part.title}:")
                for text in part.text.rstrip().splitlines():
                    yield _Line(f"  | {text}", whole=True)
            case Items():
                for cell, text in part.pairs:
                    yield _Line(f"  {cell.text}{text}", part.look)
                if part.more:
                    yield _Line(f"  and {part.more} more")
            case Section():
                yield _Line("")
                if part.titled:
                    yield _Line(f"{part.title}:")
                yield from _lines(part.parts)
            case Table(look="facts"):
                yield from _fact_lines(part.lines)
            case Table():
                yield part
            case _:
                raise TypeError(f"only a page shows a {type(part).__name__.lower()}")


def _fact_lines(rows: Sequence[Sequence[Cell]]) -> Iterator[_Line]:
    room = 2 + max((len(row[0].text) for row in rows), default=0)
    for name, *values in rows:
        text = "  ".join(value.text for value in values)
        yield _Line(text, values[0].look if values else "", name=name.text.ljust(room))


def _rich(table: Table, widths: Sequence[int] | None = None) -> "RichTable":
    from rich import box
    from rich.table import Table as RichTable

    shown = RichTable(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=not table.wraps,
        caption=table.caption or None,
        caption_justify="left",
    )
    for place, title in enumerate(table.head):
        justify: Any = "right" if place in table.numbers else "left"
        width = widths[place] if widths else None
        shown.add_column(title, justify=justify, overflow="fold", width=width)
    for cells in table.lines:
        shown.add_row(*map(_styled, cells))
    return shown


def _styled(cell: Cell) -> "Text":
    from rich.text import Text

    return Text(cell.text, STYLES.get(cell.look, ""))


@dataclass(frozen=True, slots=True)
class _Fitting:
    """What rich prints of a table, without a broken word."""

    table: Table

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        """The table, or lines such as "  chips: 16" if it is wider than the terminal."""
        from rich.measure import Measurement
        from rich.text import Text

        shown, wraps = _rich(self.table), self.table.wraps
        wide = options.update(width=10_000)
        measured = Measurement.get(console, wide, shown)
        room = options.max_width
        if measured.maximum <= room:
            yield shown
            return
        columns = [
            [Measurement.get(console, wide, cell) for cell in (column.header, *column.cells)]
            for column in shown.columns
        ]
        least = [max(m.minimum for m in cells) for cells in columns]
        most = [max(m.maximum for m in cells) for cells in columns]
        room -= measured.maximum - sum(most)  # what lies between columns
        if wraps and sum(least) <= room:  # rich's own widths would break words before lines
            yield _rich(self.table, _divide_room(room, least, most))
            return
        if wraps:
            yield ""  # as above a table
        for cells in self.table.lines:
            for place, (title, cell) in enumerate(zip(self.table.head, cells, strict=True)):
                name = title.replace("\n", " ")
                start = f"{'  ' if place else ''}{f'{name}: ' if name else ''}"
                yield Text.assemble(start, _styled(cell))
        if self.table.caption:
            yield self.table.caption
        if wraps:
            yield ""


def _divide_room(room: int, least: Sequence[int], most: Sequence[int]) -> list[int]:
    """Widths of columns: each its longest word, and a share of the rest by what it lacks."""
    spare, lack = room - sum(least), sum(most) - sum(least)
    return [a + spare * (b - a) // lack for a, b in zip(least, most, strict=True)]
