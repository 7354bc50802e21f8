"""Help and tables: short enough, complete, and without spaces at the ends of lines."""

import re

import pytest
from typer.testing import CliRunner

from pyreactant.arrays.text import hanging
from pyreactant.cli.app import app
from tests.cli import terminal
from tests.cli.tree import COMMANDS


def printed(*argv: str) -> str:
    done = CliRunner().invoke(app, argv, terminal_width=80, prog_name="pyreactant")
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words) or "root")
def test_help(words: tuple[str, ...]) -> None:
    text = printed(*words, "-h")
    assert text == printed(*words, "--help")
    lines = text.splitlines()
    assert not [line for line in lines if len(line) > 80]
    lines = [line for line in lines if not line.startswith("Usage:")]
    assert not [line for line in lines if line.endswith("...")], "it is cut off"


def test_a_table_has_no_spaces_at_the_ends_of_its_lines() -> None:
    lines = printed("topology", "--all").splitlines()
    assert len(lines) > 10
    assert not [line for line in lines if line != line.rstrip()]


def shown(line: str, columns: int) -> list[str]:
    """The lines of a command on a terminal, without colours."""
    code, text = terminal.run(line.split(), columns=columns)
    assert code == 0, text
    return re.sub(r"\x1b\[[\d;]*m", "", text).splitlines()


@pytest.mark.parametrize("columns", [40, 60])
def test_a_narrow_terminal_breaks_no_word_of_a_table(columns: int) -> None:
    lines = shown("topology --all", columns)
    assert not [line for line in lines if line != line.rstrip() or len(line) > columns]
    assert "  runtime version: v2-alpha-tpuv6e" in lines
    assert "slice: v6e-16" in lines


@pytest.mark.parametrize("line", ["--help", "jobs --help", "setup --help", "crosscheck --list"])
def test_a_narrow_terminal_breaks_no_word_of(line: str) -> None:
    lines = shown(line, 40)
    examples = [text for text in lines if "  pyreactant " in text]
    assert not [text for text in lines if len(text) > 40 and text not in examples]
    assert not [text for text in lines if text.endswith("...") and "ARGS" not in text], "cut off"


def test_text_behind_a_beginning() -> None:
    text = "not checked: juliacall is not installed"
    assert hanging("  pass  Julia  ", text, None) == f"  pass  Julia  {text}"
    assert hanging("  pass  Julia  ", text, 40).splitlines() == [
        "  pass  Julia  not checked: juliacall is",
        "               not installed",
    ]
    assert hanging("  pass  Reactant devices  ", text, 40).splitlines() == [
        "  pass  Reactant devices",
        "    not checked: juliacall is not",
        "    installed",
    ]
    assert hanging("", "in /a/path/without/a/space", 10).splitlines() == [
        "in",
        "/a/path/without/a/space",
    ]
