"""What mkdocs does to each page: links to files outside of docs/ become plain text."""

import re
from typing import Any

OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?:examples|julia|slurm|gcloud|CONTRIBUTING)[^)]*\)")
SIBLING = re.compile(r"\[([^\]]+)\]\(\w+\.py\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    return SIBLING.sub(r"\1", OUTSIDE.sub(r"\1", markdown))
