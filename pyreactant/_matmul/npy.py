"""Write a sharded array as one .npy file; each process writes its own blocks."""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from .._core.array import ShardedArray
from .._core.dtypes import EXTENDED
from .._errors import FileError
from .._runtimes.collective import everywhere, exchange_json
from .._runtimes.runtime import current

T = TypeVar("T")


def check_output(path: str | Path, overwrite: bool) -> Path:
    """Check that a result can be written, before hours are spent on computing it.

    Raises:
        FileError: The file exists, or its folder is missing or not writable.
    """
    target = Path(path)
    if target.is_dir():
        raise FileError(f"{target}: is a folder; give the name of a .npy file")
    if target.exists() and not overwrite:
        raise FileError(f"{target}: exists already; give another name, or --overwrite")
    if not target.parent.is_dir():
        raise FileError(f"{target}: the folder {target.parent} does not exist; create it first")
    if not os.access(target.parent, os.W_OK):
        raise FileError(
            f"{target}: the folder {target.parent} must be writable; name another folder"
        )
    return target


def write_npy(path: str | Path, c: ShardedArray, *, overwrite: bool = False) -> None:
    """Write a sharded array as np.save would. Collective.

    Every process writes the blocks of its devices into one file, which gets its final name when
    all blocks are on disk. All processes must share the file system.

    Raises:
        FileError: Any process cannot write; raised on every process.
    """
    running = current()

    def step(action: Callable[[], T]) -> T:
        return everywhere(running.backend, running.group, f"writing {path}", action)

    target = step(lambda: check_output(path, overwrite))
    token = exchange_json(running.backend, running.group, os.urandom(6).hex())[0]
    partial = target.with_name(f".{target.name}.{token}.partial")
    first = running.group.process_index == 0

    def create() -> None:
        if first:
            _create(partial, c)

    def write() -> None:
        _write_blocks(partial, c)

    def publish() -> None:
        if first:
            _rename(partial, target, overwrite)

    try:
        for action in (create, write, publish):
            step(functools.partial(_naming_file, action, target))
    finally:
        if first:
            partial.unlink(missing_ok=True)


def _stored(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in the file, as for np.save: types that NumPy lacks become raw bytes."""
    return np.dtype(f"V{dtype.itemsize}") if dtype.name in EXTENDED else dtype


def _create(partial: Path, c: ShardedArray) -> None:
    np.lib.format.open_memmap(partial, "w+", _stored(c.dtype), c.shape).flush()
    # Allocate the file now: a full disk would otherwise cause a bus error on a mapped page.
    with partial.open("rb+") as file:
        size = partial.stat().st_size
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)


def _write_blocks(partial: Path, c: ShardedArray) -> None:
    if 0 in c.shape:
        return
    whole = np.load(partial, mmap_mode="r+").view(c.dtype)
    replicas = c.sharding.replica_ids(c.ndim)
    for shard in c.addressable_shards:
        if replicas[shard.device.position] == 0:
            whole[shard.index] = shard.data
    whole.flush()


def _rename(partial: Path, target: Path, overwrite: bool) -> None:
    with partial.open("rb+") as file:
        os.fsync(file.fileno())
    if overwrite:
        partial.replace(target)
        return
    try:
        os.link(partial, target)  # unlike a rename, never replaces a file created meanwhile
    except FileExistsError:
        raise FileError(
            f"{target}: another program created it meanwhile; name another file, or allow "
            "overwriting"
        ) from None
    except OSError:  # a file system without hard links
        partial.rename(target)


def _naming_file(action: Callable[[], None], target: Path) -> None:
    try:
        action()
    except OSError as error:
        raise FileError(f"{target}: cannot be written ({error.strerror})") from None
