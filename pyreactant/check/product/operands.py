"""Whether the devices hold the blocks of an operand that its source has, by a digest of each block.

The digest is a sum of the block's words of up to 32 bits, times odd numbers that depend on the
word's place, modulo 2**32: the devices compute it in one pass over their blocks. One wrong word
always shows; another block has the same digest with a probability of about 2**-32.
"""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, cast

import numpy as np

from ...arrays.array import ShardedArray
from ...arrays.mixed import mixed
from ...arrays.program import Program
from ...arrays.runtimes.collective import exchange_json
from ...arrays.runtimes.compile import compile
from ...arrays.runtimes.operations import from_jax
from ...arrays.runtimes.runtime import current
from ...arrays.sharding import Index, NamedSharding
from ...arrays.source import Source
from ...arrays.text import block_text
from ...base.facts import usable_cores
from ..bounds.verdict import ON_DEVICES, Verdict

_DIGESTS = Program("digests of blocks", jax="pyreactant.check.product.operands:digests")

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
    mine = []
    for name, source, array in zip("xy", sources, map(copies_apart, operands), strict=True):
        rows_of_copy = source.shape[0]
        cuts = array.sharding.cuts(2)
        program = compile(_DIGESTS, array, out_sharding=array.sharding, static={"cuts": cuts})
        wanted: dict[str, int] = {}
        held = program(array).addressable_shards
        for shard, digest in zip(array.addressable_shards, held, strict=True):
            index = rows_in_copy(shard.index, rows_of_copy)
            block = block_text(index)
            if block not in wanted:
                wanted[block] = _digest(source, index)
            if int(digest.data[0, 0]) != wanted[block]:
                mine.append([name, shard.device.process_index, str(shard.device), block])
    running = current()
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


def copies_apart(array: ShardedArray) -> ShardedArray:
    """All copies of a matrix below each other, in blocks of their own; no device moves anything.

    A compiler may take the copies of a block for equal, and read a part of each; these it cannot.
    """
    rows, columns = array.sharding.axes(2)
    mesh = array.sharding.mesh
    spare = [axis for axis in mesh.axis_names if axis not in (*rows, *columns)]
    copies = math.prod(mesh.axis_size(axis) for axis in spare)
    if copies == 1:
        return array
    import jax

    (m, n), apart = array.shape, NamedSharding(mesh, ((*spare, *rows), columns))
    with jax.enable_x64(True):  # only to hold it; nothing is computed
        parts = [shard.data for shard in array.to_jax().addressable_shards]
        stacked = jax.make_array_from_single_device_arrays((copies * m, n), apart.to_jax(), parts)
        return cast(ShardedArray, from_jax(stacked))


def rows_in_copy(index: Index, m: int) -> Index:
    """The index in a matrix of m rows of an index in `copies_apart`."""
    rows, *others = index
    first = rows.start % m if m else 0
    return (slice(first, first + rows.stop - rows.start), *others)


def digests(x: Any, *, cuts: tuple[int, int]) -> Any:
    """The JAX body: the digest of each block of x, of shape `cuts`."""
    import jax.numpy as jnp
    from jax import lax

    parts = [x.real, x.imag] if jnp.iscomplexobj(x) else [x]
    size = min(4, parts[0].dtype.itemsize)
    words = [lax.bitcast_convert_type(part, f"uint{8 * size}") for part in parts]
    both = jnp.stack([word.reshape(*x.shape, -1) for word in words], axis=2)
    rows, columns = (length // cut for length, cut in zip(x.shape, cuts, strict=True))
    count = both.size // x.size
    blocks = both.reshape(cuts[0], rows, cuts[1], columns, count).astype(jnp.uint32)
    row, column, word = (lax.broadcasted_iota(jnp.uint32, blocks.shape, axis) for axis in (1, 3, 4))
    place = (row * jnp.uint32(columns) + column) * jnp.uint32(count) + word
    return (blocks * _weights(place)).sum(axis=(1, 3, 4), dtype=jnp.uint32)


def _digest(source: Source, index: Index) -> int:
    """The digest of a block of the source, tile by tile."""
    rows, columns = index
    step = max(1, _TILE_WORDS // max(1, columns.stop - columns.start))
    tiles = [
        slice(start, min(start + step, rows.stop)) for start in range(rows.start, rows.stop, step)
    ]
    with ThreadPoolExecutor(usable_cores()) as pool:
        return sum(pool.map(partial(_of_tile, source, index), tiles)) % 2**32


def _of_tile(source: Source, index: Index, rows: slice) -> int:
    tile = np.ascontiguousarray(source.read((rows, index[1])))
    words = tile.view(f"u{min(4, tile.dtype.itemsize)}").ravel().astype(np.uint32)
    first = (rows.start - index[0].start) * (words.size // max(1, rows.stop - rows.start))
    place = (np.arange(words.size, dtype=np.uint64) + first).astype(np.uint32)
    return int((words * _weights(place)).sum(dtype=np.uint32))


def _weights(place: Any) -> Any:
    """Odd numbers of 32 bits, by places of 32 bits; of NumPy or JAX."""
    return mixed(place) | np.uint32(1)
