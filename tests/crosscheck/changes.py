"""What the faults of a broken runtime do to a mesh, to the blocks of an output, or to a block."""

from collections.abc import Callable

import numpy as np

import pyreactant as pr
from pyreactant.arrays.dtypes import as_dtype

from .broken import Blocks, NotApplicableError


def axes_swapped(mesh: pr.Mesh) -> pr.Mesh:
    if len(mesh.axis_names) < 2:
        raise NotApplicableError
    first, second, *rest = mesh.axis_names
    return pr.Mesh(mesh.shape, (second, first, *rest), mesh.device_ids)


def column_major(mesh: pr.Mesh) -> pr.Mesh:
    ids = np.array(mesh.device_ids).reshape(mesh.shape, order="F")
    return pr.Mesh(mesh.shape, mesh.axis_names, ids)


def rotated(mesh: pr.Mesh) -> pr.Mesh:
    return pr.Mesh(mesh.shape, mesh.axis_names, np.roll(mesh.device_ids, 1))


def half_of_devices(mesh: pr.Mesh) -> pr.Mesh:
    even = [axis for axis, n in enumerate(mesh.shape) if n % 2 == 0]
    if not even:
        raise NotApplicableError
    axis = even[-1]  # the last, so that every process keeps a device
    ids = np.array(mesh.device_ids).reshape(mesh.shape)
    kept = ids.take(range(mesh.shape[axis] // 2), axis)
    return pr.Mesh(kept.shape, mesh.axis_names, kept)


def one_block(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Blocks], Blocks]:
    """Change the block of one device: the second if it exists, otherwise the first."""

    def changed(blocks: Blocks) -> Blocks:
        position = sorted(blocks)[min(1, len(blocks) - 1)]
        return {**blocks, position: change(blocks[position])}

    return changed


def all_blocks(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Blocks], Blocks]:
    return lambda blocks: {position: change(block) for position, block in blocks.items()}


def transposed(block: np.ndarray) -> np.ndarray:
    pairs = [
        (a, b) for b in range(block.ndim) for a in range(b) if block.shape[a] == block.shape[b]
    ]
    if not pairs:
        raise NotApplicableError
    return block.swapaxes(*pairs[-1])


def column_major_bytes(block: np.ndarray) -> np.ndarray:
    return block.ravel(order="F").reshape(block.shape)


def short_values(name: str) -> Callable[[np.ndarray], np.ndarray]:
    def short(block: np.ndarray) -> np.ndarray:
        if block.dtype.kind == "c":
            return (short(block.real) + 1j * short(block.imag)).astype(block.dtype)
        if block.dtype.kind != "f" or block.itemsize <= max(2, as_dtype(name).itemsize):
            raise NotApplicableError
        return block.astype(as_dtype(name)).astype(block.dtype)

    return short


def not_a_number(block: np.ndarray) -> np.ndarray:
    if block.dtype.kind in "biu":
        raise NotApplicableError
    return np.full_like(block, np.nan)


def poison(block: np.ndarray) -> np.ndarray:
    _needs_several(block)
    return np.frombuffer(b"\xcd" * block.nbytes, block.dtype).reshape(block.shape)


def random_bits(block: np.ndarray) -> np.ndarray:
    if block.dtype.kind in "biu":
        raise NotApplicableError  # all bit patterns are valid integers
    _needs_several(block)
    bits = np.random.default_rng(7).bytes(block.nbytes)
    return np.frombuffer(bits, block.dtype).reshape(block.shape)


def _needs_several(block: np.ndarray) -> None:
    if block.size < 4:
        raise NotApplicableError  # any wrong number would do


def half_written(block: np.ndarray) -> np.ndarray:
    if block.size < 8:
        raise NotApplicableError
    flat = block.copy().ravel()
    flat[flat.size // 2 :] = 0
    return flat.reshape(block.shape)


def shifted(block: np.ndarray) -> np.ndarray:
    if block.ndim == 0 or block.shape[-1] < 4:
        raise NotApplicableError
    return np.roll(block, 1, axis=-1)


def neighbour(block: np.ndarray) -> np.ndarray:
    """The next larger number for each element."""
    if block.dtype.kind == "c":
        return (neighbour(block.real) + 1j * neighbour(block.imag)).astype(block.dtype)
    if block.dtype.kind in "biu":
        raise NotApplicableError
    return np.nextafter(block, np.array(np.inf, block.dtype))


def odd_values(block: np.ndarray) -> np.ndarray:
    """Replace elements in a way that has no diagnosis of its own."""
    number = np.arange(block.size).reshape(block.shape)
    return (block + 1 + number % 5).astype(block.dtype)
