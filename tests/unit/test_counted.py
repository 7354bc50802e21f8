"""A number with its noun: one is singular, in the one function that decides that."""

import re
from pathlib import Path

import pytest

import pyreactant
from pyreactant.base.counted import counted


@pytest.mark.parametrize(
    ("number", "words", "text"),
    [
        (0, ("device",), "0 devices"),
        (1, ("device",), "1 device"),
        (2, ("device",), "2 devices"),
        (1, ("process",), "1 process"),
        (3, ("process",), "3 processes"),
        (1, ("leaf", "leaves"), "1 leaf"),
        (2, ("leaf", "leaves"), "2 leaves"),
    ],
)
def test_one_is_singular(number: int, words: tuple[str, ...], text: str) -> None:
    assert counted(number, *words) == text


def test_no_other_place_decides_it() -> None:
    """None writes an ending by hand behind a number, as "{n} device{'s' if n > 1 else ''}"."""
    files = Path(pyreactant.__file__).parent.rglob("*.py")
    hand = re.compile(r"""\} [\w ]+\{('(e?s)?'|"(e?s)?") if """)
    own = [path.name for path in files if hand.search(path.read_text(encoding="utf-8"))]
    assert own == []
