"""Exchange small host data between the processes, by the laws that every runtime keeps.

Every function is collective, and free with one process.
"""

import json
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from .. import _errors
from .._core.array import Aval
from .._core.backend import AbstractBackend
from .._core.mesh import Mesh
from .._core.sharding import Index, NamedSharding
from .._core.text import block_text
from ..process_group import ProcessGroup
from .guard.operation import values_digest

T = TypeVar("T")

_JSON_BYTES = 4096


def exchange(backend: AbstractBackend, group: ProcessGroup, mine: np.ndarray) -> np.ndarray:
    """Every process's array on every process. Collective.

    Args:
        backend: The runtime.
        group: The processes.
        mine: This process's array, of the same shape and dtype on every process.

    Returns:
        Shape (num_processes, *mine.shape).
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
    """The sum over the processes in process order, with equal bits on each. Collective."""
    rows = exchange(backend, group, mine)
    result: np.ndarray = rows[0].copy()
    for row in rows[1:]:
        result += row
    return result


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
    """Run an action on every process; if it fails on one, raise on all. Collective.

    Otherwise a process that raises would leave the others waiting in the next collective.

    Args:
        backend: The runtime.
        group: The processes.
        what: What the action does, for the message on the other processes.
        action: What to run; it must not be collective itself.

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
            raise _kind(report["kind"])(f"{what} failed on process {process}: {report['message']}")
    return result  # type: ignore[return-value]


def _kind(name: str) -> type[_errors.PyReactantError]:
    found = getattr(_errors, name, None)
    if isinstance(found, type) and issubclass(found, _errors.PyReactantError):
        return found
    return _errors.PyReactantError


def equal_everywhere(
    backend: AbstractBackend, group: ProcessGroup, what: str, array: np.ndarray
) -> None:
    """Check by digest that every process holds the same array. Collective.

    Raises:
        MismatchError: The array of some processes differs from that of process 0.
    """
    import hashlib  # takes 3 ms, which `import pyreactant` does not need

    digest = hashlib.blake2b(digest_size=32)
    digest.update(f"{array.dtype.name}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    rows = exchange(backend, group, np.frombuffer(digest.digest(), np.uint8))
    odd = [process for process, row in enumerate(rows) if not np.array_equal(row, rows[0])]
    if odd:
        raise _errors.MismatchError(
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
    if not math.prod(shape) or not _have_copies(backend, sharding, len(shape)):
        return backend.from_blocks(shape, dtype, sharding, read)
    cuts = sharding.cuts(len(shape))
    digests = np.zeros((*cuts, 8), np.uint8)

    def noted(index: Index) -> np.ndarray:
        block = read(index)
        number = tuple(s.start * cut // n for s, cut, n in zip(index, cuts, shape, strict=True))
        digests[number] = np.frombuffer(bytes.fromhex(values_digest(block)), np.uint8)
        return block

    value = backend.from_blocks(shape, dtype, sharding, noted)
    rows = exchange(backend, group, digests.reshape(-1, 8))
    held = rows.any(-1)
    first = held.argmax(0)
    wrong = held & (rows != rows[first, np.arange(len(first))]).any(-1)
    if wrong.any():
        process, block = map(int, np.argwhere(wrong)[0])
        places = zip(np.unravel_index(block, cuts), sharding.shard_shape(shape), strict=True)
        index = tuple(slice(int(i) * size, (int(i) + 1) * size) for i, size in places)
        raise _errors.MismatchError(
            f"{what}: processes {first[block]} and {process} both hold block {block_text(index)} "
            f"of {dtype}{list(shape)} with {sharding}, but its values differ; give a block the "
            "same values on every process that holds it"
        )
    return value


@lru_cache(maxsize=256)
def _have_copies(backend: AbstractBackend, sharding: NamedSharding, ndim: int) -> bool:
    """Whether a block lies on devices of several processes."""
    mesh, devices = sharding.mesh, backend.devices()
    owners = np.array([devices[position].process_index for position in mesh.device_ids])
    owners = owners.reshape(mesh.shape)
    named = {axis for axes in sharding.axes(ndim) for axis in axes}
    copied = [number for number, axis in enumerate(mesh.axis_names) if axis not in named]
    return any(bool((owners != owners.take([0], number)).any()) for number in copied)
