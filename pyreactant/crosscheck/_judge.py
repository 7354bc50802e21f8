"""From the numbers of one block to its verdict."""

from collections.abc import Sequence

from .._array import Device, Shard
from .._draw import block_text
from .._sharding import Index
from ._explain import explain, matching
from ._values import Numbers
from ._verdict import BlockVerdict, Kind, plain_index
from ._wrong import Subject, Wrong


def judge(
    subject: Subject | None,
    name: str,
    shard: Shard,
    expected: Index | None,
    numbers: Numbers,
    method: str,
    hints: Sequence[Kind] = (),
) -> BlockVerdict:
    """The verdict about a block of the right shape.

    Args:
        subject: What the block may be compared with; None where no oracle is behind it.
        name: Of the array.
        shard: The block.
        expected: Which block belongs on that device; None where the device is not in the mesh.
        numbers: How it differs from the block that it is said to be.
        method: How that was found.
        hints: What other wrong blocks of the array look like.
    """
    kinds: list[Kind] = []
    matches, words = None, []
    if numbers.wrong:
        assert subject is not None
        reasons, found = explain(
            Wrong(subject, shard.device.position, shard.data, shard.index, numbers), hints
        )
        kinds = list(dict.fromkeys(kind for kind, _ in reasons))
        matches = [plain_index(index) for index in found]
        words = [_values(numbers), " or ".join(text for _, text in reasons)]
    if shard.index != expected:
        kinds.append(Kind.WRONG_DEVICES)
        words.insert(0, _belongs(expected))
    where = f"{name} on {_on(shard.device)}, block {block_text(shard.index)}"
    return BlockVerdict(
        name,
        shard.device.position,
        shard.device.process_index,
        plain_index(shard.index),
        None if expected is None else plain_index(expected),
        not kinds,
        method,
        numbers.error,
        numbers.allowed,
        numbers.ratio,
        numbers.ulps,
        numbers.relative_norm,
        numbers.wrong,
        numbers.non_finite,
        numbers.worst,
        tuple(kinds),
        matches,
        f"{where}: {'; '.join(words)}" if words else "",
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


def _values(numbers: Numbers) -> str:
    assert numbers.worst is not None
    worst = numbers.worst
    return (
        f"{numbers.wrong} of {numbers.elements} elements are wrong, the worst at "
        f"{tuple(worst['element'])} is {worst['got']} and must be {worst['expected']} "
        f"(within {worst['allowed']:.3g})"
    )


def _belongs(expected: Index | None) -> str:
    if expected is None:
        return "the device is not in the mesh"
    return f"{block_text(expected)} belongs there"


def _on(device: Device) -> str:
    return f"device {device.position} (process {device.process_index})"
