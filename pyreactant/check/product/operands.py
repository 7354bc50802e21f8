"""Whether the devices hold the blocks of an operand that its source has, by a digest of each block.

The digest is the first word of that which JAX's devices compute (`arrays/runtimes/jax/digest`). One
wrong word always shows; another block has the same digest with a probability of about 2**-32.
"""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from ...arrays.array import ShardedArray
from ...arrays.mixed import weights
from ...arrays.runtimes.collective import exchange_json
from ...arrays.runtimes.runtime import current
from ...arrays.sharding import Index
from ...arrays.source import Source
from ...arrays.text import block_text
from ...base.facts import usable_cores
from ..bounds.verdict import ON_DEVICES, Verdict
from ..regions import pieces

_TILE_WORDS = 2**18  # stay in a core's cache

_NAMED = 4  # wrong blocks of each process in the message to the others


def misplaced(sources: Sequence[Source], operands: Sequence[ShardedArray]) -> Verdict | None:
    """Compare the blocks that the devices hold with those of the sources. Collective.

    Args:
        sources: Sources of x and y.
        operands: The placed x and y.

    Returns:
        A verdict that names a wrong block; None if all are right.
    """
    running, mine = current(), []
    for name, source, array in zip("xy", sources, operands, strict=True):
        wanted: dict[str, int] = {}
        held = running.backend.block_digests(array._value)
        for shard in array.addressable_shards:
            block = block_text(shard.index)
            if block not in wanted:
                wanted[block] = _digest(source, shard.index)
            if int(held[shard.device.position][0]) != wanted[block]:
                mine.append([name, shard.device.process_index, str(shard.device), block])
    everyone = exchange_json(running.backend, running.group, [len(mine), *mine[:_NAMED]])
    wrong = [block for _, *blocks in everyone for block in blocks]
    if not wrong:
        return None
    return Verdict(
        ON_DEVICES,
        ratio=math.inf,
        wrong=sum(count for count, *_ in everyone),
        note="devices hold other blocks of an operand than its source has",
        worst=dict(zip(("operand", "process", "device", "block"), wrong[0], strict=True)),
    )


def _digest(source: Source, index: Index) -> int:
    """The digest of a block of the source, tile by tile."""
    rows, columns = index
    step = max(1, _TILE_WORDS // max(1, columns.stop - columns.start))
    with ThreadPoolExecutor(usable_cores()) as pool:
        return sum(pool.map(partial(_of_tile, source, index), pieces(rows, step))) % 2**32


def _of_tile(source: Source, index: Index, rows: slice) -> int:
    tile = source.read((rows, index[1]))
    before, length = rows.start - index[0].start, index[0].stop - index[0].start
    total = 0
    for number, part in enumerate((tile.real, tile.imag) if tile.dtype.kind == "c" else (tile,)):
        size = min(4, part.dtype.itemsize)
        words = np.ascontiguousarray(part).view(f"u{size}").ravel().astype(np.uint32)
        first = (number * length + before) * (words.size // len(tile))
        places = (np.arange(words.size, dtype=np.uint64) + first).astype(np.uint32)
        total += int((words * weights(places)).sum(dtype=np.uint32))
    return total
