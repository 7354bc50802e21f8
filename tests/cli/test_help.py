"""Help and tables: short enough, complete, and without spaces at the ends of lines."""

import pytest
from typer.testing import CliRunner

from pyreactant.cli._main import app
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
