"""Every link leads to a file and a heading that exist; every page is found from the index."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import pages
from tests.harness import REPOSITORY

INDEX = REPOSITORY / "docs" / "README.md"
PAGES = [
    *pages(),
    REPOSITORY / "CHANGELOG.md",
    REPOSITORY / "CONTRIBUTING.md",
    *sorted((REPOSITORY / "examples").rglob("*.md")),
]
LONGEST_README = 150  # three screens


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def links(page: Path) -> list[str]:
    """The targets of a page's links within the repository."""
    found = re.findall(r"\]\(([^)\s]+)\)", prose(page))
    return [target for target in found if not re.match(r"\w+:", target)]


def anchors(page: Path) -> set[str]:
    """Those of a page's headings which GitHub and mkdocs name in the same way."""
    plain = [re.sub("`", "", text) for text in re.findall(r"^#+ (.*)", prose(page), re.MULTILINE)]
    kept = [re.sub(r"[^\w\- ]", "", text.strip().lower()) for text in plain]
    return {text.replace(" ", "-") for text in kept if "  " not in text and "--" not in text}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links(page: Path) -> None:
    for target in links(page):
        path, _, anchor = target.partition("#")
        there = page.parent / path if path else page
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), target


def test_every_page_is_found_from_the_index() -> None:
    found, left = set[Path](), [INDEX]
    while left:
        page = left.pop()
        if page not in found:
            found.add(page)
            paths = [(page.parent / link.partition("#")[0]).resolve() for link in links(page)]
            left += [path for path in paths if path.suffix == ".md" and path.exists()]
    absent = set((REPOSITORY / "docs").rglob("*.md")) - found
    assert not absent, "link these from docs/README.md, or from a page that it links"


def test_a_task_of_the_index_takes_at_most_two_pages() -> None:
    table = INDEX.read_text().partition("| I want to | read |")[2].partition("\n\n")[0]
    rows = table.splitlines()[2:]
    assert len(rows) >= 10
    assert all(1 <= row.count("](") <= 2 for row in rows)


def test_the_readme_is_short() -> None:
    assert len((REPOSITORY / "README.md").read_text().splitlines()) <= LONGEST_README
