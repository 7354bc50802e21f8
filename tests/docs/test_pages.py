"""Each page is followed as its reader would; each block is run, or says above it why not."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import processes
from tests.docs.pages import RUNNABLE, Block, blocks, followed, matches, pages
from tests.harness import REPOSITORY, environment, require

LONGEST = 200  # four screens
NAMES = {path: str(path.relative_to(REPOSITORY)) for path in pages()}


class Session:
    """A reader's folder and shell."""

    def __init__(self, folder: Path) -> None:
        tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.folder, self.printed = folder, ""
        self.settings = environment(PATH=tools, COLUMNS="200")

    def follow(self, block: Block) -> None:
        if block.title:
            path = self.folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.code)
        if block.title or block.elsewhere:
            self.printed = ""
        elif block.language == "bash":
            self.run(block.code, block)
        elif block.language == "console":
            command, _, wanted = block.code.removeprefix("$ ").partition("\n")
            self.run(command, block)
            assert matches(wanted, self.printed), self.printed
            self.printed = ""
        elif block.language == "python":
            argv = [sys.executable, "-c", block.code]
            ran = processes.run(
                argv, env=self.settings, cwd=self.folder, imported=processes.WITH_JAX
            )
            assert ran.returncode == 0, ran.stderr
        elif block.language == "text" and self.printed:
            assert matches(block.code, self.printed), self.printed
            self.printed = ""

    def run(self, code: str, block: Block) -> None:
        if "preflight" in code:
            require(importlib.util.find_spec("libtpu"), "libtpu, of jax[tpu]")
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", code],
            env=self.settings,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert ran.returncode == block.exit_code, (block.line, ran.stdout)
        self.printed = ran.stdout


@pytest.mark.parametrize("page", followed(), ids=NAMES.get)
def test_a_reader_who_follows_the_page(page: Path, tmp_path: Path) -> None:
    session = Session(tmp_path)
    for block in blocks(page):
        session.follow(block)


@pytest.mark.parametrize("page", followed(), ids=NAMES.get)
def test_a_page_is_short(page: Path) -> None:
    assert len(page.read_text().splitlines()) <= LONGEST


@pytest.mark.parametrize("page", pages(), ids=NAMES.get)
def test_each_block_is_run_or_says_why_not(page: Path) -> None:
    """Pages that are not followed have their blocks run one by one by tests/test_readme.py."""
    for block in blocks(page):
        if block.note.startswith("run by: "):
            path = block.note.removeprefix("run by: ")
            assert (REPOSITORY / path).exists(), (block.line, path)
        elif block.language in RUNNABLE and page not in followed() and page.name != "commands.md":
            run = block.language in ("bash", "python")
            assert run or block.elsewhere, f"{NAMES[page]}:{block.line} has no comment above it"
