"""The files of blocks of a run's processes: written one by one, read back and checked."""

import contextlib
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ..._core.dtypes import EXTENDED, as_dtype
from ..._errors import FileError
from ..._system.files import replacing


class ShardWriter:
    """Writes blocks into an .npz file one by one, so that none is kept in memory.

    Args:
        path: Name of the file; it appears when the file is complete.

    Attributes:
        checksums: CRC-32 of each block's entry, by its key.
    """

    def __init__(self, path: Path) -> None:
        self._renaming = contextlib.ExitStack()
        partial = self._renaming.enter_context(replacing(path))
        self._zip = zipfile.ZipFile(partial, "w", allowZip64=True)
        self.checksums: dict[str, int] = {}

    def add(self, key: str, block: np.ndarray) -> None:
        """Write one block; types that NumPy lacks are stored as raw bytes."""
        stored = block.view(f"V{block.dtype.itemsize}") if block.dtype.name in EXTENDED else block
        with self._zip.open(f"{key}.npy", "w", force_zip64=True) as file:
            np.lib.format.write_array(file, np.asarray(stored, order="C"), allow_pickle=False)
        self.checksums[key] = self._zip.getinfo(f"{key}.npy").CRC

    def close(self) -> None:
        """Finish the file and give it its final name."""
        self._zip.close()
        self._renaming.close()


def read_block(path: Path, key: str, dtype: str) -> np.ndarray:
    """Read one block of a process.

    Args:
        path: The process's file.
        key: Name of the block in the file.
        dtype: Element type of blocks that are stored as raw bytes.

    Raises:
        FileError: The file or the block is missing or damaged.
    """
    try:
        with np.load(path, allow_pickle=False) as blocks:
            block: np.ndarray = blocks[key]
    except FileNotFoundError:
        raise FileError(f"{path}: missing; copy shards-*.npz of all processes") from None
    except KeyError:
        raise FileError(f"{path}: has no block {key!r}; copy it again") from None
    except _DAMAGED as error:
        raise FileError(f"{path}: truncated or damaged ({error}); copy it again") from None
    if block.dtype.kind == "V":
        wanted = as_dtype(dtype)
        if wanted.itemsize == block.dtype.itemsize:
            return block.view(wanted)
    return block


def shards_name(process: int) -> str:
    """The file of a process's blocks in the run's folder."""
    return f"shards-{process}.npz"


def check_file(path: Path, checksums: Mapping[str, int | None]) -> None:
    """Check that a file of blocks is whole, and that its blocks are those of its record.

    Args:
        path: The process's file.
        checksums: CRC-32 of each block's entry, by its key, from the process's record.

    Raises:
        FileError: The file or a block is missing, damaged, or another than the recorded one.
    """
    try:
        with zipfile.ZipFile(path) as file:
            damaged = file.testzip()
            found = {one.filename.removesuffix(".npy"): one.CRC for one in file.infolist()}
    except FileNotFoundError:
        raise FileError(f"{path}: missing; copy shards-*.npz of all processes") from None
    except _DAMAGED as error:
        raise FileError(f"{path}: truncated or damaged ({error}); copy it again") from None
    if damaged:
        raise FileError(f"{path}: truncated or damaged (in {damaged}); copy it again")
    for key, checksum in sorted(checksums.items()):
        if key not in found:
            raise FileError(f"{path}: has no block {key!r}; copy it again")
        if found[key] != checksum:
            raise FileError(
                f"{path}: its block {key!r} is not the one that was checked; copy this file and "
                "the process's record from the same run"
            )


_DAMAGED = (OSError, ValueError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error)
