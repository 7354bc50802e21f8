"""The smallest part of a list, of passes or operations, for which a condition holds: by halves."""

from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def smallest(items: Sequence[Item], holds: Callable[[Sequence[Item]], bool]) -> list[Item]:
    """A part of a list for which a condition still holds, of which no item can be left out.

    The condition must hold for the whole list. Halves are tried first, then quarters, and so on
    (A. Zeller and R. Hildebrandt, *Simplifying and Isolating Failure-Inducing Input*, IEEE Trans.
    Software Eng. 28, 2002).
    """
    left, parts = list(items), 2
    if left and holds([]):
        return []
    while len(left) > 1:
        step = -(-len(left) // parts)
        pieces = [left[first : first + step] for first in range(0, len(left), step)]
        rests = [[x for x in left if x not in piece] for piece in pieces if parts > 2]
        part = next(
            (part for part in [*pieces, *rests] if len(part) < len(left) and holds(part)), None
        )
        if part is not None:
            left, parts = part, 2
        elif step == 1:
            break
        else:
            parts *= 2
    return left


def part_that(items: Sequence[Item], holds: Callable[[Sequence[Item]], bool]) -> list[Item] | None:
    """The smallest part for which a condition holds that need not hold for all of them.

    Without some passes nothing compiles, so all of them are tried first, then each half, quarter
    and eighth.
    """
    for parts in (1, 2, 4, 8):
        step = -(-len(items) // parts)
        for first in range(0, len(items), step):
            piece = items[first : first + step]
            if holds(piece):
                return smallest(piece, holds)
    return next(([item] for item in items if holds([item])), None)
