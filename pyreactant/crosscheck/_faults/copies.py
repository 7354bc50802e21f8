"""Copies of a block, and repeated calls, compared with each other by digests of their bits."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..._core.text import block_text
from .._records.records import ProcessRecord
from .._records.verdict import BlockVerdict

Differing = list[BlockVerdict]
"""The copies of one block that have other bits than most copies of it, or than the first ones."""


def must_be_equal(records: Sequence[ProcessRecord]) -> dict[int, str]:
    """For each process a name; copies must have equal bits on processes of the same name.

    On GPUs, atomic additions and the choice of kernels for each device may differ by rounding;
    on CPUs of several hosts, the instructions. So these are only noted.
    """
    if records[0].platform == "gpu":
        return {}
    one = records[0].platform == "tpu"
    return {record.process: "" if one else record.host for record in records}


def differing(
    blocks: Iterable[BlockVerdict], names: Mapping[int, str] | None = None
) -> list[Differing]:
    """The copies that differ, for each block of which copies differ.

    Args:
        blocks: Verdicts on the blocks of all processes.
        names: Which copies to compare: those on processes of the same name; None compares all.
    """
    groups: dict[tuple[str, ...], dict[str, list[BlockVerdict]]] = {}
    for block in sorted(blocks, key=lambda b: (b.array, b.device)):
        if block.digest and (names is None or block.process in names):
            name = "" if names is None else names[block.process]
            alike = groups.setdefault((block.array, str(block.index), name), {})
            alike.setdefault(block.digest, []).append(block)
    found = []
    for alike in groups.values():
        most = max(alike.values(), key=len)
        if len(alike) > 1:
            found.append([b for same in alike.values() if same is not most for b in same])
    return found


def copies_text(found: Sequence[Differing]) -> str:
    """Which copies differ, in a few words."""
    first = found[0]
    devices = ", ".join(str(b.device) for b in first[:8])
    more = f" and {len(first) - 8} more" if len(first) > 8 else ""
    others = f"; so do copies of {len(found) - 1} other blocks" if len(found) > 1 else ""
    plural = "s" if len(first) > 1 else ""
    return (
        f"block {block_text(first[0].index)} of {first[0].array} has other bits on device{plural} "
        f"{devices}{more} than on other devices with a copy of it{others}"
    )


def repeats_text(repeats: Sequence[Mapping[str, Any]]) -> str:
    """Which call on which device differed, in a few words."""
    one = repeats[0]
    more = f", and {len(repeats) - 1} more blocks differ" if len(repeats) > 1 else ""
    return (
        f"call {one['call']} gave other bits than call {one['first']} with the same inputs: "
        f"{one['array']} on device {one['device']} (process {one['process']}){more}"
    )
