"""Parts of documents as text: with rich, and without where no table is drawn."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from pyreactant.base.document.parts import (
    Bar,
    Cell,
    Items,
    Lines,
    Paragraph,
    Part,
    Section,
    Table,
    facts,
)
from pyreactant.base.document.terminal import HasText, text_of

PARTS = [
    Paragraph("it is right", "good"),
    facts("The run", [("mesh", "2x2"), ("commit", ""), ("program", Cell("heat", "bad"))]),
    Section("killed", [Items(["a child", (Cell("a.b"), ": why")], more=3)]),
    Lines("one\n  two\n", "traceback"),
    Lines("pyreactant run"),
]
TEXT = """\
it is right
mesh     2x2
program  heat

killed:
  a child
  a.b: why
  and 3 more
traceback:
  | one
  |   two
pyreactant run
"""


@pytest.mark.parametrize("width", [None, 80])
def test_parts_as_text(width: int | None) -> None:
    assert text_of(PARTS, width) == TEXT


def test_lines_and_only_lines_are_whole_on_a_narrow_terminal() -> None:
    text = text_of([Paragraph("word " * 10), Lines("option " * 10)], 20)
    assert max(map(len, text.splitlines())) == 69
    assert text.count("\n") == 4


def test_a_report_has_one_text_for_all() -> None:
    class Report(HasText):
        def parts(self) -> Iterator[Part]:
            yield Table("", ["word", "look"], [["word " * 10, "-"]], wraps=True)

    assert max(map(len, Report().to_text(30).splitlines())) <= 30
    assert str(Report()) == Report().to_text(120)


def test_a_part_that_a_terminal_cannot_show_is_an_error() -> None:
    with pytest.raises(TypeError, match="only a page shows a bar"):
        text_of([Bar("", [])], None)


def test_text_without_tables_needs_no_rich() -> None:
    """It ends each run, whose time it would lengthen."""
    code = (
        "import sys\nfrom pyreactant.base.document.parts import Paragraph\n"
        "from pyreactant.base.document.terminal import text_of\n"
        "text_of([Paragraph('a')], None)\nassert 'rich' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
