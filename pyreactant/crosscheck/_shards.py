"""The blocks that a process leaves: an .npz file, written and read block by block."""

import zipfile
from pathlib import Path

import numpy as np

from .._dtypes import EXTENDED, as_dtype
from .._errors import FileError


class ShardWriter:
    """Writes blocks into an .npz file one by one, so that none has to wait in memory.

    Args:
        path: Its name once it is whole.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._partial = path.with_name(f".{path.name}.partial")
        self._zip = zipfile.ZipFile(self._partial, "w", allowZip64=True)

    def add(self, key: str, block: np.ndarray) -> None:
        """Write one block; types that NumPy does not know are raw bytes."""
        stored = block.view(f"V{block.dtype.itemsize}") if block.dtype.name in EXTENDED else block
        with self._zip.open(f"{key}.npy", "w", force_zip64=True) as file:
            np.lib.format.write_array(file, np.asarray(stored, order="C"), allow_pickle=False)

    def close(self) -> None:
        """Give the file its name."""
        self._zip.close()
        self._partial.replace(self._path)


def read_block(path: Path, key: str, dtype: str) -> np.ndarray:
    """One block of a process.

    Args:
        path: The process's file.
        key: The block's name in it.
        dtype: What bytes are, where the file has no more than bytes.

    Raises:
        FileError: The file or the block is missing, or damaged.
    """
    try:
        with np.load(path, allow_pickle=False) as blocks:
            block: np.ndarray = blocks[key]
    except FileNotFoundError:
        raise FileError(f"{path}: is missing; copy shards-*.npz of all processes") from None
    except KeyError:
        raise FileError(f"{path}: has no block {key!r}; copy it again") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise FileError(f"{path}: truncated or damaged ({error}); copy it again") from None
    if block.dtype.kind == "V":
        wanted = as_dtype(dtype)
        if wanted.itemsize == block.dtype.itemsize:
            return block.view(wanted)
    return block
