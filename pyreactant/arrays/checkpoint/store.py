"""zarr arrays in OCDBT databases, or in plain folders, by tensorstore.

Each process writes a database of its own, so files need no locks. `merge` makes one database that
refers to the values in them.
"""

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...base.words import tensorstore_reason
from ...process import progress
from ..dtypes import aligned
from ..sharding import Index
from ..text import block_text
from .bucket import TENSORSTORE_ERRORS, Bucket, one_context, storage_errors, tensorstore
from .folder import Folder
from .format import Array, array_spec, parts, read_array, within

IN_FLIGHT = 128 * 2**20
"""Bytes that are written or read at a time."""

_DATA_FILE = IN_FLIGHT // 4
"""Several files are on their way to the disk, each synced by itself, while others are filled."""

_COMPLETE = {"store_data_equal_to_fill_value": True, "fill_missing_data_reads": False}
"""A chunk of zeros is written, too: otherwise a missing chunk reads as zeros."""


def _base(folder: Folder) -> dict[str, Any]:
    """The files of a folder, as tensorstore opens them."""
    if isinstance(folder, Bucket):
        return folder.spec()
    return {"driver": "file", "path": f"{folder}/"}


def _database(folder: Folder) -> dict[str, Any]:
    return {
        "driver": "ocdbt",
        "base": _base(folder),
        "config": {"max_inline_value_bytes": 1024, "max_decoded_node_bytes": 100_000_000},
        "target_data_file_size": _DATA_FILE,
    }


def write_arrays(
    folder: Folder,
    arrays: Mapping[str, Array],
    pieces: Iterable[tuple[str, Index, np.ndarray]],
    *,
    describe: bool,
) -> int:
    """Write parts of arrays into a database of this process's own.

    Args:
        folder: The database.
        arrays: All arrays by name.
        pieces: Whole chunks: name of the array, place, elements.
        describe: Whether to write the metadata of all arrays, which one process does.

    Returns:
        Bytes of the pieces.

    Raises:
        OSError: The database cannot be written.
    """
    ts = tensorstore()
    opened: dict[str, Any] = {}

    def array(name: str) -> Any:
        if name not in opened:
            spec = {
                "driver": "zarr3",
                "kvstore": {**_database(folder), "path": f"{name}/"},
                "metadata": array_spec(arrays[name]),
                **_COMPLETE,
            }
            how = {"create": True} if describe else {"open": True, "assume_metadata": True}
            opened[name] = ts.open(spec, context=one_context(), **how)
        return opened[name]

    written, in_flight = 0, 0
    futures: deque[tuple[Any, int]] = deque()
    with storage_errors():
        for name in arrays if describe else ():
            array(name)
        for name, index, data in pieces:
            target = array(name).result()[index] if index else array(name).result()
            futures.append(
                (target.write(data, can_reference_source_data_indefinitely=True), data.nbytes)
            )
            written += data.nbytes
            in_flight += data.nbytes
            while in_flight > IN_FLIGHT:
                future, size = futures.popleft()
                future.result()
                progress.store_block()
                in_flight -= size
        for future, _ in futures:
            future.result()
            progress.store_block()
        for future in opened.values():
            future.result()
    return written


def merge(folder: Folder, databases: Sequence[Folder]) -> None:
    """Make one database, which refers to the values in the databases of the processes.

    Raises:
        OSError: It cannot be written.
    """
    ts = tensorstore()
    context = one_context()
    with storage_errors():
        parts = [ts.KvStore.open(_database(part), context=context) for part in databases]
        whole = ts.KvStore.open(_database(folder), context=context).result()
        transaction = ts.Transaction(atomic=True)
        within = whole.with_transaction(transaction)
        for copy in [part.result().experimental_copy_range_to(within) for part in parts]:
            copy.result()
        transaction.commit_async().result()


class DamageError(Exception):
    """An array that cannot be read whole; the text says where."""


@contextlib.contextmanager
def _damage(where: str) -> Iterator[None]:
    """Say of what tensorstore raises where it is."""
    try:
        yield
    except TENSORSTORE_ERRORS as error:
        raise DamageError(f"{where}: {tensorstore_reason(error)}") from None


class Reader:
    """The arrays of one item of a checkpoint.

    Args:
        folder: The item.
        ocdbt: Whether they are in a database, and not each in a folder.
        zarr3: Their format, zarr 3 or 2.
        complete: Whether a missing chunk is damage, and not zeros.
    """

    def __init__(self, folder: Folder, *, ocdbt: bool, zarr3: bool, complete: bool) -> None:
        self._base = _database(folder) if ocdbt else _base(folder)
        self._driver, self._file = ("zarr3", "zarr.json") if zarr3 else ("zarr", ".zarray")
        self._missing = _COMPLETE if complete else {}
        self._opened: dict[str, Any] = {}

    def describe(self, names: Sequence[str]) -> dict[str, tuple[Array, bytes]]:
        """Arrays by name, with the text of their zarr metadata.

        Raises:
            DamageError: The metadata of one cannot be read.
        """
        described = {}
        with _damage("the arrays"):
            base = tensorstore().KvStore.open(self._base, context=one_context()).result()
            reads = {name: base.read(_inside(name) + self._file) for name in names}
        for name, future in reads.items():
            with _damage(f"array {name}"):
                if (stored := future.result()).state != "value":
                    raise ValueError(f"{self._file} is missing")
                text = bytes(stored.value)
                described[name] = read_array(text), text
        return described

    def begin(self, names: Iterable[str]) -> None:
        """Begin to open arrays, all at a time: a bucket answers each after a while."""
        for name in set(names) - self._opened.keys():
            spec = {
                "driver": self._driver,
                "kvstore": {**self._base, "path": self._path(name)},
                **self._missing,
            }
            self._opened[name] = tensorstore().open(
                spec, context=one_context(), open=True, read=True
            )

    def open(self, name: str) -> Any:
        """An array as tensorstore has it.

        Raises:
            DamageError: It cannot be opened.
        """
        self.begin([name])
        with _damage(f"array {name}"):
            return self._opened[name].result()

    def read(self, name: str, index: Index, into: np.ndarray) -> Any:
        """Begin to read a part of an array; `finish` waits for it."""
        array = self.open(name)
        with _damage(f"array {name}"):
            return tensorstore().array(into).write(array[index] if index else array)

    def finish(self, future: Any, name: str, index: Index) -> None:
        """Wait for what `read` began.

        Raises:
            DamageError: A chunk is missing, or its checksum is wrong.
        """
        with _damage(f"array {name}, block {block_text(index)}"):
            future.result()
        progress.store_block()

    def _path(self, name: str) -> str:
        base: str = "" if self._base["driver"] == "ocdbt" else self._base["path"]
        return base + _inside(name)


def _inside(name: str) -> str:
    """The folder of an array; a single one, as Orbax may write it, has none."""
    return f"{name}/" if name else ""


class Ahead:
    """Blocks in a known order, some parts of which are being read ahead.

    A block is read in parts, so that few bytes are held twice: as the file has them, and in the
    block. Its memory is aligned, and nobody else has it.
    """

    def __init__(self, reader: Reader, requests: Sequence[tuple[str, Index, Array]]) -> None:
        self._reader = reader
        reader.begin(name for name, _, _ in requests)
        self._left = self._parts(requests)
        self._begun: deque[tuple[_Part, Any]] = deque()
        self._bytes = 0

    def _parts(self, requests: Sequence[tuple[str, Index, Array]]) -> Iterator["_Part"]:
        for name, block, array in requests:
            memory = aligned(
                tuple(s.stop - s.start for s in block), self._reader.open(name).dtype.numpy_dtype
            )
            several = list(parts(block, array))
            for number, index in enumerate(several, 1):
                whole = memory if number == len(several) else None
                yield _Part(name, block, index, memory[within(index, block)], whole)

    def next(self, index: Index | None = None) -> np.ndarray:
        """The next block; DamageError if it cannot be read."""
        while True:
            while self._bytes < IN_FLIGHT and (part := next(self._left, None)) is not None:
                future = self._reader.read(part.name, part.place, part.into)
                self._begun.append((part, future))
                self._bytes += part.into.nbytes
            part, future = self._begun.popleft()
            assert index in (None, part.block), "blocks are placed in the order of their reading"
            self._bytes -= part.into.nbytes
            self._reader.finish(future, part.name, part.place)
            if part.whole is not None:
                return part.whole


class _Part(NamedTuple):
    """A part of a block: its array, both places, its memory, and the block if it is the last."""

    name: str
    block: Index
    place: Index
    into: np.ndarray
    whole: np.ndarray | None
