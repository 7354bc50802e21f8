"""What a report shows, as plain data: a `Document` of paragraphs, tables, pictures and lists.

Two renderers show it: `terminal`, and `page` by templates.
"""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from ..counted import counted

SIGNS = {"good": "✓", "bad": "✗", "warn": "!"}
"""The sign of each look: colours alone do not carry a meaning."""


NEUTRAL = 6
"""Number of the colour of an end that is neither good nor bad."""


class Piece(NamedTuple):
    """A piece of a bar.

    Attributes:
        name: What it stands for; the legend has each name once.
        start: Its beginning, as a share of the bar.
        length: Its length, as a share of the bar.
        colour: Number of its colour in the style sheet, 1 to 5; 0 is the colour of a failure,
            `NEUTRAL` that of an end that is none.
    """

    name: str
    start: float
    length: float
    colour: int


class Bar(NamedTuple):
    """A linear bar of pieces, from left to right; `text` is for readers who do not see it."""

    text: str
    parts: Sequence[Piece]


class Cell(NamedTuple):
    """A cell of a table, or a mark.

    Attributes:
        text: Its text.
        look: "good", "bad" or "warn" for a sign and a colour; "" for none.
        detail: A second line in small letters.
        share: A part of a whole, drawn as a bar; values above 1 fill it. None draws no bar.
        link: Id of the part of the page that it leads to.
        bar: A bar of pieces below the text.
    """

    text: str
    look: str = ""
    detail: str = ""
    share: float | None = None
    link: str = ""
    bar: Bar | None = None

    @property
    def sign(self) -> str:
        """The sign before the text."""
        return SIGNS.get(self.look, "")

    @property
    def filled(self) -> float:
        """The length of the bar in per cent."""
        share = self.share or 0.0
        return round(100 * min(max(share, 0.0), 1.0), 1)


class Table(NamedTuple):
    """A table with headed columns; its first column names the rows.

    Attributes:
        caption: What the table shows.
        head: Column titles.
        rows: Cells; plain text stands for a cell without a look.
        numbers: Positions of the columns with numbers, which are aligned to the right.
        groups: Titles above the columns, each with the number of columns that it spans; "" for
            columns without one. They name the columns together with `head`.
        left_out: Number of rows that are not shown.
        look: On a narrow page each row of "cards" becomes a card, in place of a line. "facts" are
            names and values, which a terminal shows without a head. "mesh" colours whole cells.
        wraps: Whether a terminal may break the text of cells into lines, of whole words. If not,
            columns stand close to each other.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    numbers: Collection[int] = ()
    groups: Sequence[tuple[str, int]] = ()
    left_out: int = 0
    look: str = "cards"
    wraps: bool = False

    @property
    def lines(self) -> list[list[Cell]]:
        """The rows, all of cells."""
        return [[Cell(c) if isinstance(c, str) else c for c in row] for row in self.rows]

    @property
    def labels(self) -> list[str]:
        """The name of each column where the titles above the table are not shown."""
        first = self._first
        return [first.get(place, title) or title for place, title in enumerate(self.head)]

    @property
    def looks(self) -> list[str]:
        """The class of each column in the style sheet."""
        kinds = ["number" if place in self.numbers else "words" for place in range(len(self.head))]
        first = self._first
        return [f"{kind} first" if first.get(i) else kind for i, kind in enumerate(kinds)]

    @property
    def _first(self) -> dict[int, str]:
        """The title of each group, by the position of its first column."""
        places = itertools.accumulate((span for _, span in self.groups), initial=0)
        return {place: title for place, (title, _) in zip(places, self.groups, strict=False)}


def facts(caption: str, rows: Sequence[tuple[str, Cell | str]]) -> Table:
    """A table of names and values, without those that have none."""
    return Table(caption, ["fact", "value"], [row for row in rows if row[1]], look="facts")


def legend_of(bars: Iterable[Bar]) -> list[Piece]:
    """The pieces that a legend of these bars explains: the first of each name."""
    pieces: dict[str, Piece] = {}
    for bar in bars:
        for piece in bar.parts:
            pieces.setdefault(piece.name, piece)
    return list(pieces.values())


def commit_text(git: Mapping[str, Any]) -> str:
    """The commit and the number of changed files, as `GitState` reports them; "" without one."""
    if not git.get("commit"):
        return ""
    count = len(git.get("changed_files", ()))
    return f"{git['commit'][:12]}, {counted(count, 'file')} changed"


class Paragraph(NamedTuple):
    """A paragraph; its look is as that of a cell, or "small"."""

    text: str
    look: str = ""


class Lines(NamedTuple):
    """Text with the line breaks that it has, such as a traceback or a command."""

    text: str
    title: str = ""


class Items(NamedTuple):
    """A list of texts, or of cells with a link and the text behind that.

    `more` is the number of items that are not shown.
    """

    items: Sequence[str | tuple[Cell, str]]
    more: int = 0
    look: str = ""

    @property
    def pairs(self) -> list[tuple[Cell, str]]:
        """The items, all as a cell and a text."""
        return [(Cell(""), item) if isinstance(item, str) else item for item in self.items]


class Legend(NamedTuple):
    """What the colours of bars mean."""

    bars: Sequence[Bar]


class Group(NamedTuple):
    """Parts beside each other where there is room.

    Its look is "side", "figures", "figures narrow" or "maps".
    """

    parts: Sequence["Part"]
    look: str


class Rectangle(NamedTuple):
    """A rectangle of a picture; `x` and `y` are its upper left corner, in the picture's units.

    Attributes:
        colour: Number of its colour, as that of a `Piece`; None for an outline on paper.
        title: What a pointer above it shows.
    """

    x: float
    y: float
    width: float
    height: float
    colour: int | None = None
    opacity: float = 1.0
    title: str = ""


class Label(NamedTuple):
    """A text in a picture.

    Attributes:
        y: Its middle.
        anchor: "start", "middle" or "end": what is at `x`.
        look: "strong", "faint" or "".
    """

    x: float
    y: float
    text: str
    anchor: str = "start"
    look: str = ""


class Picture(NamedTuple):
    """A picture of rectangles and labels.

    Attributes:
        text: What it shows, for readers who do not see it.
        width: Its width in units of its own; one is about a pixel.
        labels: The labels, in front of all rectangles.
        detail: Small text behind the caption.
        note: Small text below it.
        look: "wide", "narrow", or "map": a grid that is stretched to one size.
    """

    text: str
    width: float
    height: float
    rectangles: Sequence[Rectangle]
    labels: Sequence[Label] = ()
    caption: str = ""
    detail: str = ""
    note: str = ""
    look: str = "wide"


class Figure(NamedTuple):
    """Parts below a caption, on a card."""

    caption: str
    parts: Sequence["Part"]


class Folded(NamedTuple):
    """Parts below a title that shows or hides them.

    Attributes:
        note: Small text behind the title.
        id: What links to it name.
        open: Whether the parts are shown at first.
    """

    title: Cell
    parts: Sequence["Part"]
    note: str = ""
    id: str = ""
    open: bool = False


class Section(NamedTuple):
    """A section; without parts it is left out.

    A title that is not shown is for readers who do not see the page.
    """

    title: str
    parts: Sequence["Part"]
    titled: bool = True


class Document(NamedTuple):
    """A report for people.

    Attributes:
        title: Its name, as in the title of a window.
        mark: The outcome.
        heading: What it is about.
        summary: The outcome in a sentence or two.
        small: Facts below the summary.
        sections: The rest.
        footer: A remark at the end.
    """

    title: str
    mark: Cell
    heading: str
    summary: str
    small: Sequence[str]
    sections: Sequence[Section]
    footer: str = ""


Part: TypeAlias = (
    Bar | Table | Paragraph | Lines | Items | Legend | Group | Picture | Figure | Folded | Section
)
"""A part of a document; a macro of the pages' templates has the name of its class."""
