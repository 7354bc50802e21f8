"""What kind of wrong a block looks like: every explanation that its values fit.

Each explanation is computed: what would the block hold if just that had gone wrong? Where that
is what it holds, as exactly as a right block must be what it should be, the explanation fits.
Only a tile around the worst element is compared, so that this is quick for blocks of any size.
"""

import math
from collections.abc import Sequence

import numpy as np

from ..._bounds.compare import Verdict, fits
from ..._core.device import Device, Shard
from ..._core.sharding import Index, plain_index
from ..._core.text import block_text
from .._oracle.tiles import around, moved
from .._records.verdict import BlockVerdict, Kind
from .hypotheses import LAST_REASONS, REASONS, Reason, Test
from .orders import blocks_of
from .subject import TILE, Subject, Wrong

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


def block_verdict(
    subject: Subject | None,
    name: str,
    shard: Shard,
    expected: Index | None,
    verdict: Verdict,
    hints: Sequence[Kind] = (),
) -> BlockVerdict:
    """The verdict about a block of the right shape.

    Args:
        subject: What the block may be compared with; None if there is no oracle.
        name: Of the array.
        shard: The block.
        expected: Which block belongs on that device; None where the device is not in the mesh.
        verdict: How it differs from the block that its index names, and how that was found.
        hints: What other wrong blocks of the array look like.
    """
    kinds: list[Kind] = []
    matches, parts = None, []
    if not verdict.passed:
        assert subject is not None
        reasons, found = explain(
            Wrong(subject, shard.device.position, shard.data, shard.index, verdict), hints
        )
        kinds = list(dict.fromkeys(kind for kind, _ in reasons))
        matches = [plain_index(index) for index in found]
        parts = [_values(verdict), " or ".join(text for _, text in reasons)]
    if shard.index != expected:
        kinds.append(Kind.WRONG_DEVICES)
        parts.insert(0, _belongs(expected))
    where = f"{name} on {_on(shard.device)}, block {block_text(shard.index)}"
    return BlockVerdict(
        name,
        shard.device.position,
        shard.device.process_index,
        plain_index(shard.index),
        None if expected is None else plain_index(expected),
        not kinds,
        method=verdict.method,
        error=verdict.error,
        allowed=verdict.allowed,
        ratio=verdict.ratio,
        ulps=verdict.ulps,
        relative_norm=verdict.relative_norm,
        wrong=verdict.wrong,
        non_finite=verdict.non_finite,
        worst=None if verdict.passed else verdict.worst,
        kinds=tuple(kinds),
        matches=matches,
        text=f"{where}: {'; '.join(parts)}" if parts else "",
    )


def missing(name: str, device: Device, expected: Index) -> BlockVerdict:
    """The verdict about a device that holds nothing and should."""
    return BlockVerdict(
        name,
        device.position,
        device.process_index,
        None,
        plain_index(expected),
        False,
        kinds=(Kind.FEWER_DEVICES,),
        text=f"{name} on {_on(device)}: it holds no block, {block_text(expected)} belongs there",
    )


def misshapen(
    subject: Subject | None, name: str, shard: Shard, expected: Index | None, dtype: str
) -> BlockVerdict:
    """The verdict about a block that has not the shape or the dtype that its index says."""
    got = shard.data
    matches = None
    if subject is not None and got.dtype.name == dtype:
        matches = [plain_index(index) for index in matching(subject, got, shard.index)]
    return BlockVerdict(
        name,
        shard.device.position,
        shard.device.process_index,
        plain_index(shard.index),
        None if expected is None else plain_index(expected),
        False,
        kinds=(Kind.STRUCTURE,),
        matches=matches,
        text=f"{name} on {_on(shard.device)}: it holds {got.dtype.name}{list(got.shape)} for block "
        f"{block_text(shard.index)} of dtype {dtype}",
    )


def _values(verdict: Verdict) -> str:
    assert verdict.worst is not None
    worst = verdict.worst
    return (
        f"{verdict.wrong} of {verdict.elements} elements are wrong, the worst at "
        f"{tuple(worst['element'])} is {worst['got']} and must be {worst['expected']} "
        f"(within {worst['allowed']:.3g})"
    )


def _belongs(expected: Index | None) -> str:
    if expected is None:
        return "the device is not in the mesh"
    return f"{block_text(expected)} belongs there"


def _on(device: Device) -> str:
    return f"device {device.position} (process {device.process_index})"
