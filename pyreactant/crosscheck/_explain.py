"""What kind of wrong a block looks like: every explanation that its values fit.

Each explanation is computed: what would the block hold if just that had gone wrong? Where that
is what it holds, as exactly as a right block must be what it should be, the explanation fits.
Only a tile around the worst element is compared, so that this is quick for blocks of any size.
"""

import math
from collections.abc import Sequence

import numpy as np

from .._draw import block_text
from .._sharding import Index
from ._orders import blocks_of
from ._reasons import LAST_REASONS, REASONS, Reason, Test
from ._tiles import around, moved
from ._values import fits
from ._verdict import Kind
from ._wrong import TILE, Subject, Wrong

_RUN = 8  # elements of another block that are looked at first


def explain(wrong: Wrong, hints: Sequence[Kind] = ()) -> tuple[list[Reason], list[Index]]:
    """Every reason that fits, the likeliest first, and the blocks whose values these are.

    Args:
        wrong: The block.
        hints: What other blocks of the array looked like; where one of these fits, others are
            not tried.
    """
    matches = matching(wrong.subject, wrong.got, wrong.block)
    permuted = [(Kind.PERMUTED, f"it holds block {block_text(one)}") for one in matches[:1]]
    for kinds in (hints, None):
        reasons = [
            reason
            for kind, test in (REASONS if kinds is None else REASONS + LAST_REASONS)
            if kinds is None or kind in kinds
            for reason in _fitting(test, wrong)
        ]
        if permuted and (kinds is None or Kind.PERMUTED in kinds):
            reasons += permuted
        if reasons:
            return sorted(reasons, key=lambda reason: _ORDER.index(reason[0])), matches
    for _, test in LAST_REASONS:
        reasons = _fitting(test, wrong)
        if reasons:
            return reasons, matches
    return [(Kind.WRONG, "its values look like nothing that is known")], matches


_ORDER = [Kind.UNINITIALISED, Kind.PERMUTED, *(kind for kind in Kind)]


def _fitting(test: Test, wrong: Wrong) -> list[Reason]:
    """What one test says; an oracle may be unable to compute what would have been."""
    try:
        return list(test(wrong))
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return []


def matching(subject: Subject, got: np.ndarray, block: Index) -> list[Index]:
    """Blocks of the array, other than this one, whose values a device holds."""
    if not got.size:
        return []
    local = tuple(slice(0, n) for n in got.shape)
    middle = [n // 2 for n in got.shape]
    run = tuple(
        slice(m, m + 1) if d < got.ndim - 1 else around(local, middle, _RUN)[d]
        for d, m in enumerate(middle)
    )
    side = max(2, math.floor(TILE ** (1 / max(1, got.ndim))))
    tile = around(local, middle, side)
    found = []
    for other in blocks_of(subject.plan.sharding, subject.plan.shape):
        if other == block or tuple(s.stop - s.start for s in other) != got.shape:
            continue
        if all(
            fits(got[part], subject.oracle.block(moved(part, local, other))) for part in (run, tile)
        ):
            found.append(other)
    return found
