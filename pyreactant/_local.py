"""Which part of a global array a process holds, from the placement oracle alone."""

import math
from collections.abc import Callable, Sequence

from ._errors import ShardingError
from ._sharding import Index, NamedSharding


def process_local_blocks(
    sharding: NamedSharding, shape: tuple[int, ...], positions: Sequence[int]
) -> tuple[tuple[int, ...], Callable[[Index], Index]]:
    """The blocks of some devices, put together to one local array.

    Args:
        sharding: Mesh and partition spec.
        shape: Global shape.
        positions: The devices of one process.

    Returns:
        The local array's shape, and a function from a block's global index to its index in
        the local array.

    Raises:
        ShardingError: The blocks are not all combinations of their rows, columns, ...
    """
    placement = sharding.devices_indices_map(shape)
    block = sharding.shard_shape(shape)
    blocks = {tuple(s.start for s in placement[position]) for position in positions}
    starts = [sorted({start[d] for start in blocks}) for d in range(len(shape))]
    if len(blocks) != math.prod(len(s) for s in starts):
        raise ShardingError(
            f"the blocks of devices {tuple(positions)} with {sharding} do not form one array "
            f"(they are {len(blocks)} of {math.prod(len(s) for s in starts)} combinations); use "
            "from_callback, or a mesh whose device_ids keep a process's devices together"
        )
    order = [{start: i for i, start in enumerate(s)} for s in starts]

    def place(index: Index) -> Index:
        return tuple(
            slice(order[d][s.start] * block[d], (order[d][s.start] + 1) * block[d])
            for d, s in enumerate(index)
        )

    return tuple(len(s) * n for s, n in zip(starts, block, strict=True)), place
