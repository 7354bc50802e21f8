"""The tags, ids and references of a page."""

import re
from html.parser import HTMLParser


class Outline(HTMLParser):
    """Collect open tags, ids and references of a page."""

    VOID = ("meta", "br", "wbr", "link", "img", "hr", "input")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append((tag, found))
        if tag not in self.VOID:
            self.stack.append(tag)
        if found.get("id"):
            self.ids.append(str(found["id"]))
        self.references += (found.get("aria-labelledby") or "").split()
        if (found.get("href") or "").startswith("#"):
            self.references.append(str(found["href"])[1:])
        self.references += re.findall(r"url\(#([^)]*)\)", " ".join(map(str, found.values())))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.stack.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag
