"""The commands of the command line, found in the app itself."""

from collections.abc import Iterator
from typing import Any

import typer.core
import typer.main

from pyreactant.cli.app import app
from pyreactant.cli.command import Command

TREE: Any = typer.main.get_command(app)


def _walk(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    for name, child in getattr(command, "commands", {}).items():
        yield from _walk(child, (*words, name))


COMMANDS = [words for words, _ in _walk(TREE, ())]
"""The words of each command and group; () is the whole."""

LEAVES: dict[str, Command] = {
    " ".join(words): command
    for words, command in _walk(TREE, ())
    if not isinstance(command, typer.core.TyperGroup)
}
"""Commands without the groups."""
