"""What Gloo, which does the collectives of processes on CPUs, prints among a program's output."""

import re

# Gloo prints at any time, also within a line of the program.
GLOO = re.compile(
    r"\[Gloo\] Rank \d+ is connected to \d+ peer ranks\. "
    r"Expected number of connected peer ranks is : \d+\n(?:\[\d+\] )?"
)
# Its threads print part by part, so that on a busy machine the parts of lines are mixed.
PARTS = re.compile(
    r"\[Gloo\] Rank \d*| is connected to \d*| peer ranks\. "
    r"|Expected number of connected peer ranks is : \d*"
)
NUMBER_ALONE = re.compile(r"^(?:\[\d+\] +|  \| )\d*(?:\n|\Z)|^\d+(?:\n|\Z)", re.MULTILINE)


def without_gloo(text: str) -> str:
    """The text without what Gloo prints; the program's own words stay, also within Gloo's lines."""
    if "Gloo" not in text:
        return text
    return NUMBER_ALONE.sub("", PARTS.sub("", GLOO.sub("", text)))
