"""A reader who follows a page: one folder and one shell for all blocks, in their order."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.docs.pages import Block, matches
from tests.gloo import without_gloo

INSTALLS = "not run: it installs packages"


class Session:
    """A reader's folder and shell.

    Args:
        folder: Where the reader works.
        settings: The environment of every command.
        python: The Python of blocks of Python.
        installs: Whether commands that install packages run: the environment is the reader's own.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str],
        python: str,
        *,
        installs: bool = False,
    ) -> None:
        self.folder, self.settings, self.python = folder, settings, python
        self.installs, self.printed = installs, ""

    def follow(self, block: Block) -> str:
        """What was done with the block, in words; AssertionError if the page is wrong."""
        if block.elsewhere and not (self.installs and block.note == INSTALLS):
            self.write(block)
            self.printed = ""
            return block.note
        if block.title:
            self.write(block)
            self.printed = ""
            return f"saved as {block.title}"
        if block.language == "bash":
            self.run(["bash", "-euo", "pipefail", "-c", block.code], block)
            return "ran"
        if block.language == "console":
            self.console(block)
            return "ran"
        if block.language == "python":
            self.run([self.python, "-c", block.code], block)
            self.printed = ""
            return "ran"
        if block.language == "text" and self.printed:
            self.expect(block.code)
            self.printed = ""
            return "was printed"
        return "is read"

    def write(self, block: Block) -> None:
        if block.title:
            path = self.folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.code)

    def console(self, block: Block) -> None:
        """Each line that begins with ``$`` is a command; the lines below it are its output."""
        for part in block.code.removeprefix("$ ").split("\n$ "):
            command, _, wanted = part.partition("\n")
            self.run(["bash", "-euo", "pipefail", "-c", command], block)
            self.expect(wanted)
        self.printed = ""

    def expect(self, wanted: str) -> None:
        """The page quotes what the last command printed."""
        assert matches(wanted, self.printed), f"this was printed:\n{self.printed}"

    def run(self, argv: list[str], block: Block) -> None:
        ran = subprocess.run(
            argv,
            env=self.settings,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        ended = f"line {block.line}: exit code {ran.returncode}, after this output:\n{ran.stdout}"
        assert ran.returncode == block.exit_code, ended
        self.printed = without_gloo(ran.stdout)
