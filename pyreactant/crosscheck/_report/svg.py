"""Convert a matplotlib figure to an SVG element with unique ids and the page's colours.

Colours come from the page's style sheet, so one picture serves light and dark mode. Text stays
text: it is small, searchable and in the page's font.
"""

import importlib.util
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from ..._errors import RequirementError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Placeholder colours; each is replaced by a variable of the page's style sheet.
INK, MUTED, LINE, PAPER = "#010101", "#020202", "#030303", "#040404"
GOOD, BAD = "#050505", "#060606"
SERIES = ("#0a0a0a", "#0b0b0b", "#0c0c0c", "#0d0d0d")
_VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    LINE: "--line",
    PAPER: "--paper",
    GOOD: "--good",
    BAD: "--bad",
    **{colour: f"--series-{number}" for number, colour in enumerate(SERIES, 1)},
}

SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "pyreactant",
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": LINE,
    "legend.frameon": False,
    "hatch.color": BAD,
    "hatch.linewidth": 0.8,
    "path.simplify": False,
}


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing, and its numbers as a table.

    Attributes:
        title: Title of the picture.
        svg: The drawing.
        head: Column titles of the table.
        rows: Rows of the table.
    """

    title: str
    svg: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def check_matplotlib() -> None:
    """Check that pictures can be drawn.

    Raises:
        RequirementError: matplotlib is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise RequirementError(
            "the page needs matplotlib, which draws the pictures and is not installed; run "
            "python -m pip install 'pyreactant[report]'"
        )


def styled() -> Any:
    """A context with the settings that `to_svg` requires of figures."""
    import matplotlib as mpl

    settings: Any = SETTINGS
    return mpl.rc_context(settings)


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure; width and height are in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height))


def to_svg(figure: "Figure", name: str, title: str, description: str) -> str:
    """The figure as an <svg> element; the same figure always gives the same text.

    Args:
        figure: Drawn under `SETTINGS`.
        name: Unique within the page; every id begins with it.
        title: Title of the picture.
        description: Text alternative of the picture.
    """
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    for nothing in (
        r"<metadata>.*?</metadata>",
        r"<style.*?</style>",  # its rules would apply to the whole page
        r' xmlns(:\w+)?="[^"]*"| version="1.1"| (width|height)="[0-9.]+pt"',
        r' transform="rotate\(-?0 [^"]*"',
        r"font(-family)?: ?'[^;\"]*;? ?",
    ):
        text = re.sub(nothing, "", text, flags=re.DOTALL)
    text = re.sub(r"\s+", " ", re.sub(r">\s+<", "><", text)).replace("xlink:href", "href")
    used = set(re.findall(r"(?:href=\"|url\()#([^\")]+)", text))
    text = re.sub(r' id="([^"]+)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in used else "", text)
    text = re.sub(r"(href=\"|url\()#([^\")]+)", rf"\1#{name}-\2", text)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    width = round(figure.get_figwidth() * 96)
    return (
        text.strip()
        .replace(
            "<svg",
            f'<svg role="img" aria-labelledby="{name}-title {name}-desc" '
            f'style="max-width: {width}px"',
            1,
        )
        .replace(
            ">",
            f'><title id="{name}-title">{escape(title)}</title>'
            f'<desc id="{name}-desc">{escape(description)}</desc>',
            1,
        )
    )
