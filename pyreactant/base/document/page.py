"""Pages of documents: one file each, without scripts and without external resources."""

import abc
import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..._version import __version__
from ..outputs import write_output
from .parts import Cell, Document, Table, legend_of

if TYPE_CHECKING:
    from jinja2 import Environment

_PIECES = re.compile(r"[^\W_]*(?:[\W_]+|$)")
_TEMPLATES = Path(__file__).parent / "templates"


class HasPage(abc.ABC):
    """A report that can be shown as a page."""

    __slots__ = ()

    @abc.abstractmethod
    def document(self) -> Document:
        """What the page shows."""

    def to_html(self, path: str | Path | None = None, *, overwrite: bool = False) -> str:
        """The report as one self-contained page; also written to `path` if given.

        Args:
            path: The file; an earlier report in it is replaced. "-" is standard output.
            overwrite: Whether to replace a file with other content, too.

        Raises:
            FileError: The file cannot be written, or must not be replaced.
        """
        page = _filled("document.html", document=self.document())
        if path is not None:
            write_output(page, Path(path), overwrite=overwrite)
        return page


def fragment(mark: Cell, table: Table) -> str:
    """A mark and a table for a notebook, without styles of their own."""
    return _filled("fragment.html", mark=mark, table=table)


def _filled(template: str, **data: Any) -> str:
    return _environment().get_template(f"{template}.j2").render(**data)


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
