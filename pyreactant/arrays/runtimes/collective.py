"""Exchange small host data between the processes, by the laws that every runtime keeps.

Every function is collective, and free with one process.
"""

import hashlib
import json
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from ...base import errors
from ...process.group import ProcessGroup
from ..backend import AbstractBackend
from ..mesh import Mesh
from ..sharding import Aval, Index, NamedSharding
from ..text import block_text
from .guard.operation import values_digest

T = TypeVar("T")

_JSON_BYTES = 4096


def exchange(backend: AbstractBackend, group: ProcessGroup, mine: np.ndarray) -> np.ndarray:
    """Every process's array on every process: shape (num_processes, *mine.shape). Collective.

    Shape and dtype are the same on every process.
    """
    if group.num_processes == 1:
        return mine[None]
    if not mine.size:
        return np.empty((group.num_processes, *mine.shape), mine.dtype)
    first_device: dict[int, int] = {}
    for device in backend.devices():
        first_device.setdefault(device.process_index, device.position)
    # Bytes pass unchanged, whatever dtypes the runtime holds and whether x64 is on.
    raw = np.frombuffer(np.ascontiguousarray(mine).tobytes(), np.uint8)
    mesh = Mesh((group.num_processes,), ("process",), list(first_device.values()))
    sharding = NamedSharding(mesh, ("process",))
    shape = (group.num_processes, raw.size)

    def row(index: Index) -> np.ndarray:
        return raw[None]

    value = backend.from_blocks(shape, np.dtype(np.uint8), sharding, row)
    whole = backend.gather(value, sharding)
    return whole.copy().view(mine.dtype).reshape(group.num_processes, *mine.shape)


def total(backend: AbstractBackend, group: ProcessGroup, mine: np.ndarray) -> np.ndarray:
    """The sum over the processes, with equal bits on each. Collective."""
    return exchange(backend, group, mine).sum(axis=0, dtype=mine.dtype)


def exchange_json(backend: AbstractBackend, group: ProcessGroup, mine: Any) -> list[Any]:
    """The plain data of every process (at most 4096 bytes of JSON), by process. Collective."""
    text = json.dumps(mine).encode()
    if len(text) > _JSON_BYTES:
        raise ValueError(f"exchange_json takes {_JSON_BYTES} bytes, got {len(text)}")
    row = np.full(_JSON_BYTES, ord(" "), np.uint8)
    row[: len(text)] = np.frombuffer(text, np.uint8)
    return [json.loads(other.tobytes()) for other in exchange(backend, group, row)]


def everywhere(
    backend: AbstractBackend, group: ProcessGroup, what: str, action: Callable[[], T]
) -> T:
    """Run an action, not collective itself, on every process; if it fails on one, raise on all.

    Otherwise a process that raises would leave the others waiting in the next collective.

    Raises:
        PyReactantError: The action's own error, or one of its kind that names the other process.
    """
    if group.num_processes == 1:
        return action()
    error: Exception | None = None
    result: T | None = None
    try:
        result = action()
    except Exception as caught:
        error = caught
    mine = error and {"kind": type(error).__name__, "message": str(error)[: _JSON_BYTES // 8]}
    reports = exchange_json(backend, group, mine)
    if error is not None:
        raise error
    for process, report in enumerate(reports):
        if report:
            kind = errors.kind_of(report["kind"])
            told = kind(f"{what} failed on process {process}: {report['message']}")
            told.failed_process = process
            raise told
    return result  # type: ignore[return-value]


def equal_everywhere(
    backend: AbstractBackend, group: ProcessGroup, what: str, array: np.ndarray
) -> None:
    """Check by digest that every process holds the same array. Collective.

    Raises:
        MismatchError: The array of some processes differs from that of process 0.
    """
    digest = hashlib.blake2b(digest_size=32)
    digest.update(f"{array.dtype.name}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    rows = exchange(backend, group, np.frombuffer(digest.digest(), np.uint8))
    odd = [process for process, row in enumerate(rows) if not np.array_equal(row, rows[0])]
    if odd:
        raise errors.MismatchError(
            f"{what}: the global array must be the same on every process, but process "
            f"{', '.join(map(str, odd))} of {group.num_processes} differs from process 0 in shape, "
            f"dtype or values (here: process {group.process_index}, {array.dtype.name}"
            f"{list(array.shape)}); seed every process alike, or use from_process_local"
        )


def from_equal_blocks(
    backend: AbstractBackend,
    group: ProcessGroup,
    what: str,
    aval: Aval,
    read: Callable[[Index], np.ndarray],
) -> Any:
    """`AbstractBackend.from_blocks`, where copies of a block must be equal. Collective.

    A block may lie on devices of several processes, and each of these processes reads its own copy.

    Raises:
        MismatchError: The values of two copies differ, by their digests.
    """
    shape, dtype, sharding = aval.shape, aval.dtype, aval.sharding
    held = _block_numbers(backend, sharding, len(shape)) if math.prod(shape) else {}
    if not held:
        return backend.from_blocks(shape, dtype, sharding, read)
    sizes = sharding.shard_shape(shape)
    digests = np.zeros(max(map(len, held.values())), np.uint64)

    def read_and_digest(index: Index) -> np.ndarray:
        block = read(index)
        place = tuple(s.start // size for s, size in zip(index, sizes, strict=True))
        digests[held[group.process_index][place]] = int(values_digest(block), 16)
        return block

    value = backend.from_blocks(shape, dtype, sharding, read_and_digest)
    rows = exchange(backend, group, digests).tolist()
    first: dict[tuple[int, ...], int] = {}
    for process, numbers in held.items():
        for place, number in numbers.items():
            other = first.setdefault(place, process)
            if rows[process][number] != rows[other][held[other][place]]:
                block = tuple(
                    slice(i * size, (i + 1) * size) for i, size in zip(place, sizes, strict=True)
                )
                raise errors.MismatchError(
                    f"{what}: processes {other} and {process} both hold block {block_text(block)} "
                    f"of {dtype}{list(shape)} with {sharding}, but its values differ; give a block "
                    "the same values on every process that holds it"
                )
    return value


@lru_cache(maxsize=64)
def _block_numbers(
    backend: AbstractBackend, sharding: NamedSharding, ndim: int
) -> dict[int, dict[tuple[int, ...], int]]:
    """The places of the blocks that each process holds, numbered; {} if no two hold the same."""
    devices, held = backend.devices(), dict[int, dict[tuple[int, ...], int]]()
    blocks = sharding.indices_of(sharding.mesh.device_ids, sharding.cuts(ndim))
    for position, block in blocks.items():
        numbers = held.setdefault(devices[position].process_index, {})
        numbers.setdefault(tuple(s.start for s in block), len(numbers))
    each = [place for numbers in held.values() for place in numbers]
    return held if len(set(each)) < len(each) else {}
