"""Each page is followed as its reader would; each block is run, or says above it why not."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from tests.docs.from_wheel import PAGES
from tests.docs.pages import RUNNABLE, blocks, followed, pages
from tests.docs.session import Session
from tests.gloo import without_gloo
from tests.harness import REPOSITORY, environment, require

LONGEST = 200  # four screens
NAMES = {path: str(path.relative_to(REPOSITORY)) for path in pages()}


def session(folder: Path) -> Session:
    """A reader with this environment's packages."""
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    settings = environment(PATH=tools, COLUMNS="200")
    return Session(folder, settings, sys.executable)


@pytest.mark.parametrize("page", [p for p in followed() if NAMES[p] not in PAGES], ids=NAMES.get)
def test_a_reader_who_follows_the_page(page: Path, tmp_path: Path) -> None:
    """The other pages, and the README, are followed by tests.docs.from_wheel, in CI."""
    reader = session(tmp_path)
    for block in blocks(page):
        if block.language == "bash" and "preflight" in block.code:
            require(importlib.util.find_spec("libtpu"), "libtpu, of jax[tpu]")
        reader.follow(block)


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


@pytest.mark.parametrize(
    ("printed", "own"),
    [
        (
            "[0] [Gloo] Rank 0lengths: [1. 1.]\n"
            "[0]  is connected to 1 peer ranks. Expected number of connected peer ranks is : 1\n"
            "done\n",
            "[0] lengths: [1. 1.]\ndone\n",
        ),
        (
            "(without 3 lines of Gloo):\n  | 7\n  | step 1 64.0\n",
            "(without 3 lines of Gloo):\n  | step 1 64.0\n",
        ),
        ("the page has no such lines\n42\n", "the page has no such lines\n42\n"),
    ],
)
def test_what_gloo_mixes_into_a_line_hides_nothing(printed: str, own: str) -> None:
    assert without_gloo(printed) == own
