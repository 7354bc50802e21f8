"""Pages of reports: what a page consists of, as plain data, and the page made from its template.

A page is one file, without scripts and without external resources. Templates lay out the marks,
cells, tables and bars.
"""

import abc
import functools
import importlib.util
import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..._version import __version__
from ..errors import RequirementError
from ..outputs import write_output

if TYPE_CHECKING:
    from jinja2 import Environment

SIGNS = {"good": "✓", "bad": "✗", "warn": "!"}
"""The sign of each look: colours alone do not carry a meaning."""


NEUTRAL = 6
"""Number of the colour of an end that is neither good nor bad."""


@dataclass(frozen=True, slots=True)
class Part:
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


@dataclass(frozen=True, slots=True)
class Bar:
    """A linear bar of pieces.

    Attributes:
        text: What it shows, for readers who do not see it.
        parts: Its pieces, from left to right.
    """

    text: str
    parts: Sequence[Part]


@dataclass(frozen=True, slots=True)
class Cell:
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


@dataclass(frozen=True, slots=True)
class Table:
    """A table with headed columns; its first column names the rows.

    Attributes:
        caption: What the table shows.
        head: Column titles.
        rows: Cells; plain text stands for a cell without a look.
        numbers: Positions of the columns with numbers, which are aligned to the right.
        groups: Titles above the columns, each with the number of columns that it spans; "" for
            columns without one. They name the columns together with `head`.
        left_out: Number of rows that are not shown.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    numbers: Collection[int] = ()
    groups: Sequence[tuple[str, int]] = ()
    left_out: int = 0

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


def facts(caption: str, rows: Sequence[tuple[str, str]]) -> Table:
    """A table of names and values, without those that have none."""
    return Table(caption, ["fact", "value"], [row for row in rows if row[1]])


def legend_of(bars: Iterable[Bar]) -> list[Part]:
    """The pieces that a legend of these bars explains: the first of each name."""
    found: dict[str, Part] = {}
    for bar in bars:
        for part in bar.parts:
            found.setdefault(part.name, part)
    return list(found.values())


def commit_text(git: Mapping[str, Any]) -> str:
    """The commit and the number of changed files, as `GitState` reports them; "" without one."""
    if not git.get("commit"):
        return ""
    count = len(git.get("changed_files", ()))
    return f"{git['commit'][:12]}, {count} file{'' if count == 1 else 's'} changed"


_PIECES = re.compile(r"[^\W_]*(?:[\W_]+|$)")
_TEMPLATES = Path(__file__).parent / "templates"


class HasPage(abc.ABC):
    """A report that can be shown as a page."""

    __slots__ = ()

    @abc.abstractmethod
    def _page(self) -> str:
        """The page."""

    def to_html(self, path: str | Path | None = None, *, overwrite: bool = False) -> str:
        """The report as one self-contained page; also written to `path` if given.

        Args:
            path: The file; an earlier report in it is replaced. "-" is standard output.
            overwrite: Whether to replace a file with other content, too.

        Raises:
            RequirementError: jinja2, which makes the page, is not installed.
            FileError: The file cannot be written, or must not be replaced.
        """
        page = self._page()
        if path is not None:
            write_output(page, Path(path), overwrite=overwrite)
        return page


def can_render() -> bool:
    """Whether the package that makes pages is installed."""
    return importlib.util.find_spec("jinja2") is not None


def check_page(path: Path | None) -> None:
    """Check before anything runs that a page can be made.

    Args:
        path: The file of the page; None if none is requested.

    Raises:
        RequirementError: jinja2 is not installed.
    """
    if path is not None:
        _check_jinja()


def render(template: str, **data: Any) -> str:
    """A page; the same data always gives the same text.

    Args:
        template: Name of a template, such as "run.html".
        data: What the template shows. Text is escaped.

    Raises:
        RequirementError: jinja2 is not installed.
    """
    _check_jinja()
    return _environment().get_template(f"{template}.j2").render(**data)


def _check_jinja() -> None:
    if not can_render():
        raise RequirementError(
            "the page needs jinja2, which is not installed; run python -m pip install "
            "'pyreactant[report]'"
        )


@functools.cache
def _environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup, escape

    def breakable(name: str) -> Markup:
        """A name whose line may end after each of its signs, such as "package.module:program"."""
        return Markup("<wbr>").join(escape(part) for part in _PIECES.findall(name) if part)

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["breakable"] = breakable
    environment.globals |= {"version": __version__, "legend_of": legend_of}
    return environment
