"""Sources of a program's arrays, read block by block: memory, a file, or a seed."""

import itertools
import math
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..base.errors import DTypeError, FileError, argument
from .dtypes import as_array, as_dtype
from .sharding import Index


class Source(Protocol):
    """An array that can be read in blocks, the same on every process."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Global shape."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""

    @property
    def random(self) -> bool:
        """Whether the elements are independent with mean zero."""

    def read(self, index: Index) -> np.ndarray:
        """One block, the same each time."""


_CHUNK = 2**17  # elements

KEPT = 2**14
"""Elements up to which a random array is drawn once as a whole. To draw each block anew costs
0.2 ms, and a cross-check of small arrays reads thousands."""


class ArraySource:
    """An array in memory or mapped into it."""

    random = False

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        self.shape = array.shape
        self.dtype = array.dtype.newbyteorder("=")

    def read(self, index: Index) -> np.ndarray:
        return as_array(self._array[index])


class RandomSource:
    """A seeded random array of which any block can be computed without the rest.

    Each element depends only on the seed, the stream and its position: it is drawn from a
    Philox counter-based generator (Salmon et al., SC 2011), whose counter is the row-major
    position. Numbers are uniform in [-1, 1) on a grid of 2**-23 (float64 2**-31, complex parts
    2**-15), fine enough to show a product in lower precision. Integers are uniform from -8 to 7,
    unsigned ones from 0 to 15; booleans are True with probability 1/2.

    Args:
        shape: Global shape, of any number of dimensions.
        dtype: Element type.
        seed: A whole number from 0.
        stream: Number of the array; different arrays of one run need different streams.
    """

    random = True

    def __init__(self, shape: tuple[int, ...], dtype: Any, seed: int, stream: int) -> None:
        self.shape: tuple[int, ...] = shape
        self.dtype = as_dtype(dtype)
        self._key = np.array([seed % 2**64, stream], dtype=np.uint64)

    def read(self, index: Index) -> np.ndarray:
        if math.prod(self.shape) > KEPT:
            return self._block(index)
        return np.array(self._whole[index])

    @cached_property
    def _whole(self) -> np.ndarray:
        return self._block(tuple(slice(0, n) for n in self.shape))

    def _block(self, index: Index) -> np.ndarray:
        block = np.empty(tuple(s.stop - s.start for s in index), self.dtype)
        if not block.size:
            return block
        # Treat the block as matrices, numbered by the dimensions before the last two.
        *before, rows, columns = (slice(0, 1), slice(0, 1), *index)[-max(2, len(index)) :]
        matrices = block.reshape(-1, rows.stop - rows.start, columns.stop - columns.start)
        ranges = (range(s.start, s.stop) for s in before)
        for matrix, where in zip(matrices, itertools.product(*ranges), strict=True):
            number = 0
            for i, n in zip(where, self.shape, strict=False):
                number = number * n + i
            rows_before = number * self.shape[-2] if before else 0
            self._fill(matrix, rows_before + rows.start, columns)
        return block

    def _fill(self, block: np.ndarray, first_row: int, columns: slice) -> None:
        # A step of the counter gives four 64-bit words, each word two elements of 32 bits.
        length = self.shape[-1] if self.shape else 1
        row_steps = -(-length // 8)
        first, last = columns.start // 8, -(-columns.stop // 8)
        generator = np.random.Philox(key=self._key)
        generator.advance(first_row * row_steps + first)
        some = max(1, _CHUNK // ((last - first) * 8))  # rows that fit the processor's cache
        for start in range(0, len(block), some):
            part = block[start : start + some]
            words = np.empty((len(part), (last - first) * 4), np.uint64)
            for row in words:
                row[:] = generator.random_raw(row.size)
                if last - first < row_steps:
                    generator.advance(row_steps - (last - first))
            skipped = columns.start - first * 8
            part[:] = self._numbers(words.view(np.uint32)[:, skipped : skipped + part.shape[1]])

    def _numbers(self, bits: np.ndarray) -> np.ndarray:
        if self.dtype.kind == "b":
            return bits & 1
        if self.dtype.kind in "iu":
            return (bits & 0xF).astype(np.int64) - (8 if self.dtype.kind == "i" else 0)
        if self.dtype.kind == "c":
            parts = [half * 2.0**-15 - 1 for half in (bits & 0xFFFF, bits >> 16)]
            return parts[0] + 1j * parts[1]
        if self.dtype == np.float64:
            return bits * 2.0**-31 - 1
        fraction = (bits >> 8).astype(np.float32)
        fraction *= np.float32(2**-23)
        fraction -= np.float32(1)
        return fraction


def open_npy(path: str | Path, dtype: Any = None) -> ArraySource:
    """Map a matrix in a .npy file into memory; blocks are read on demand.

    Args:
        path: The file, the same on every process.
        dtype: Element type; needed for a file of raw bytes, which is how NumPy writes bfloat16.

    Raises:
        FileError: The file is missing, unreadable or truncated, or does not hold a matrix.
        DTypeError: Its elements are Python objects, no runtime holds them, or they are not of
            `dtype`.
    """
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise FileError(f"{path}: no such file; give a .npy file as np.save writes it") from None
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror or error})") from None
    except Exception as error:  # NumPy's parser raises many kinds on a damaged header
        text = str(error)
        if "Python objects" in text:
            raise DTypeError(
                f"{path}: holds Python objects, which no runtime holds; save the array with a "
                "numeric dtype"
            ) from None
        why = "it is truncated" if "mmap length" in text or "EOF" in text else "damaged header"
        why = "it has another format" if "pickle" in text else why
        raise FileError(f"{path}: not a whole .npy file ({why}); save it again") from None
    if not isinstance(array, np.ndarray):
        raise FileError(f"{path}: an .npz archive; give a .npy file with one matrix")
    raw = array.dtype.type is np.void
    if raw and dtype is not None and as_dtype(dtype).itemsize == array.dtype.itemsize:
        array = array.view(as_dtype(dtype))
    elif raw:
        raise DTypeError(
            f"{path}: its elements are raw bytes ({array.dtype.itemsize} each), as np.save writes "
            f"bfloat16 and float8; name their type: {argument('dtype', 'bfloat16')}"
        )
    if array.ndim != 2:
        raise FileError(f"{path}: must hold a matrix, got an array of shape {array.shape}")
    held = as_dtype(array.dtype)
    if dtype is not None and held != as_dtype(dtype):
        raise DTypeError(
            f"{path}: holds {held}, but dtype {as_dtype(dtype)} was requested; omit the dtype, or "
            "convert the file"
        )
    return ArraySource(array)
