"""Make a page from its template: one file, without scripts and without external resources."""

import abc
import functools
import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._errors import FileError, RequirementError
from .._system.files import write_text
from .._version import __version__
from .parts import legend_of

if TYPE_CHECKING:
    from jinja2 import Environment

_PIECES = re.compile(r"[^\W_]*(?:[\W_]+|$)")
_TEMPLATES = Path(__file__).parent / "templates"


class HasPage(abc.ABC):
    """A report that can be shown as a page."""

    __slots__ = ()

    @abc.abstractmethod
    def _page(self) -> str:
        """The page."""

    def to_html(self, path: str | Path | None = None) -> str:
        """The report as one self-contained page; also written to `path` if given.

        Raises:
            RequirementError: jinja2, which makes the page, is not installed.
            FileError: The file cannot be written.
        """
        page = self._page()
        if path is not None:
            write_text(page, Path(path))
        return page


def can_render() -> bool:
    """Whether the package that makes pages is installed."""
    return importlib.util.find_spec("jinja2") is not None


def check_page(path: Path | None, option: str = "--html") -> None:
    """Check before anything runs that a page can be made and written.

    Args:
        path: The file of the page; None if none is requested.
        option: The option that names it.

    Raises:
        RequirementError: jinja2 is not installed.
        FileError: The folder of the file does not exist.
    """
    if path is None:
        return
    _check_jinja()
    if not path.absolute().parent.is_dir():
        raise FileError(f"{option} {path}: its folder does not exist; create it first")


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
