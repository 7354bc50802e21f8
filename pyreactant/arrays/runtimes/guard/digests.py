"""Digests that are equal on every process; Python's own hash is not."""

import hashlib

import numpy as np

_ALL = 1 << 20
"""Bytes: of larger arrays `device_put` compares as many, at equal distances."""


def digest_of(parts: list[str]) -> int:
    """A 64-bit digest of texts."""
    data = "\0".join(f"{len(part)} {part}" for part in parts)
    digest = hashlib.blake2b(data.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def values_digest(array: np.ndarray) -> str:
    """A digest of an array's values: of all bytes up to 1 MiB, of 1 MiB of larger arrays."""
    some = array if array.nbytes <= _ALL else _sample(array)
    digest = hashlib.blake2b(digest_size=8)
    digest.update(np.ascontiguousarray(some).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _sample(array: np.ndarray) -> np.ndarray:
    """About 1 MiB of a large array, the same elements whatever its memory order."""
    step = -(-array.nbytes // _ALL)
    return array[np.unravel_index(np.arange(0, array.size, step), array.shape)]
