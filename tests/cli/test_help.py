"""Help and tables: short enough, complete, and without spaces at the ends of lines."""

import re

import pytest
from typer.testing import CliRunner

from pyreactant.cli._main import app
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
    lines = [line for line in text.splitlines() if not line.startswith("Usage:")]
    long = [line for line in lines if len(line) > 80 and "  pyreactant " not in line]
    assert not long
    assert not [line for line in lines if line.endswith("...")], "it is cut off"


def test_a_table_has_no_spaces_at_the_ends_of_its_lines() -> None:
    lines = printed("topology", "--all").splitlines()
    assert len(lines) > 10
    assert not [line for line in lines if line != line.rstrip()]


@pytest.mark.parametrize("columns", [40, 60])
def test_a_narrow_terminal_breaks_no_word(columns: int) -> None:
    code, text = terminal.run(["topology", "--all"], columns=columns)
    assert code == 0, text
    lines = re.sub(r"\x1b\[[\d;]*m", "", text).splitlines()
    assert not [line for line in lines if line != line.rstrip() or len(line) > columns]
    assert "  runtime version: v2-alpha-tpuv6e" in lines
    assert "slice: v6e-16" in lines
