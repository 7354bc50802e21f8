"""The fenced blocks of a Markdown page, and what a comment above a block says about it.

A comment directly above a block may say `run by: FILE`, `not run: REASON` or `exit code N`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.harness import REPOSITORY

BLOCK = re.compile(
    r"(?:^<!-- (?P<note>[^\n]*) -->\n+)?"
    r'^```(?P<language>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<code>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)
RUNNABLE = {"bash", "console", "python", "py", "julia", "toml", "yaml"}


@dataclass(frozen=True)
class Block:
    """A fenced block; `note` is the comment above it, `title` a file's name."""

    line: int
    language: str
    title: str
    code: str
    note: str

    @property
    def elsewhere(self) -> bool:
        return self.note.startswith(("run by: ", "not run: "))

    @property
    def exit_code(self) -> int:
        return int(self.note.removeprefix("exit code ")) if self.note.startswith("exit") else 0


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in BLOCK.finditer(text):
        line = text.count("\n", 0, found.start("language")) + 1
        words = {key: value or "" for key, value in found.groupdict().items()}
        yield Block(line, words["language"], words["title"], words["code"], words["note"])


def pages() -> list[Path]:
    """All pages of the documentation, and the README."""
    return [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]


def followed() -> list[Path]:
    """The pages that a reader follows from top to bottom: one folder, one session each."""
    docs = REPOSITORY / "docs"
    return [
        docs / "tutorial.md",
        *sorted(docs.glob("howto/*.md")),
        *sorted(docs.glob("concepts/*.md")),
    ]


def matches(wanted: str, printed: str) -> bool:
    """Whether `wanted` stands in `printed`; ``...`` is any text, and lines may break elsewhere."""
    parts = [re.escape(" ".join(part.split())) for part in wanted.split("...")]
    return re.search(".*?".join(parts), " ".join(printed.split())) is not None
