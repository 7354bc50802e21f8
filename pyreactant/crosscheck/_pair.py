"""Pair: what a comparison of two runs says about a program."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

NOT_COMPARED = "not compared"


@dataclass(frozen=True, slots=True)
class Pair:
    """Whether two runs agree about a program.

    Attributes:
        first: Runtime or folder.
        second: The other one.
        passed: Whether they agree.
        kind: "" where they do; otherwise what kind of difference it looks like.
        text: One sentence.
        difference: Largest distance between two elements.
        allowed: Of the block where difference over allowed is largest.
        ulps: Largest distance in units in the last place.
        relative_norm: Euclidean norm of the difference over that of the first, over all blocks.
        blocks: How many were compared.
        device: Where they differ most, if they do.
        worst: Array, process, block, element (global) and the two values.
    """

    first: str
    second: str
    passed: bool
    kind: str
    text: str
    difference: float = 0.0
    allowed: float = 0.0
    ulps: float = 0.0
    relative_norm: float = 0.0
    blocks: int = 0
    device: int | None = None
    worst: Mapping[str, Any] | None = None

    @property
    def compared(self) -> bool:
        """Whether there was something to compare on both sides."""
        return self.kind != NOT_COMPARED


def differ(names: tuple[str, str], kind: str, text: str) -> Pair:
    """Two runs that do not agree, for a reason other than values."""
    return Pair(*names, passed=False, kind=kind, text=text)


def block_text(index: Any) -> str:
    """A block as Python slices it: [0:4, 4:8]; "no block" where there is none."""
    if index is None:
        return "no block"
    return "[" + ", ".join(f"{start}:{stop}" for start, stop in index) + "]"
