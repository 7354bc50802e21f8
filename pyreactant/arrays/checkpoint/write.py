"""Write one checkpoint: a copy of this process's blocks, and files that appear as a whole.

Every block is written once, by one of the processes that hold it. So the bytes are spread evenly,
and no process holds a whole array.
"""

import hashlib
import json
import os
import platform
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ...base.errors import (
    DTypeError,
    FileError,
    InvalidArgumentError,
    MismatchError,
    PyReactantError,
    ShardingError,
    StateError,
)
from ...base.files import sync
from ...process import progress
from ..array import ShardedArray
from ..backend import AbstractBackend
from ..dtypes import as_array, as_dtype, is_traced
from ..runtimes.agree import Agreement, shared
from ..runtimes.runtime import Running, current
from ..sharding import Index, NamedSharding
from ..tree import Keys, path_text
from . import format
from .bucket import tensorstore
from .commit import Writer, unwritable, writer_of
from .folder import METADATA, STEP_METADATA, Folder, parse
from .format import NUMBERS, Array, Entry, chunk_shape, chunks, name_of, within
from .store import Reader, merge, write_arrays

Piece = tuple[str, Index, np.ndarray]


@dataclass(slots=True)
class Snapshot:
    """A tree at one moment, as far as this process writes it.

    Attributes:
        entries: All leaves.
        arrays: All arrays by name.
        strings: All text by name.
        pieces: The chunks that this process writes.
        digest: Of all that must be the same on every process.
    """

    entries: list[Entry] = field(default_factory=list)
    arrays: dict[str, Array] = field(default_factory=dict)
    strings: dict[str, str] = field(default_factory=dict)
    pieces: list[Piece] = field(default_factory=list)
    digest: str = ""

    @property
    def nbytes(self) -> int:
        """Bytes that this process writes."""
        return sum(data.nbytes for _, _, data in self.pieces)


def save(folder: str | os.PathLike[str], tree: Any) -> None:
    """Write a tree of arrays as a checkpoint in Orbax's format. Collective.

    The folder appears when it is whole. It lies where all processes see it. Each process
    writes its own blocks, each block once. Needs the extra ``state`` (tensorstore).

    Args:
        folder: A new folder, also ``gs://BUCKET/FOLDER`` or ``s3://BUCKET/FOLDER``.
        tree: Dictionaries, lists, tuples and dataclasses of arrays: `ShardedArray`, `jax.Array`
            with typed PRNG keys among them, or NumPy arrays that are the same on every process;
            also numbers and text of Python.

    Raises:
        FileError: The folder exists, cannot be written, or is not seen by every process.
        InvalidArgumentError: A leaf is none of these.
        MismatchError: The trees of the processes differ.
        RequirementError: tensorstore is not installed.
        StateError: An array was donated.

    Examples:
        >>> pr.save("weights", {"w": x, "step": 3})
        >>> pr.restore("weights")["step"]
        3
    """
    target = parse(folder)
    agreement = shared()

    taken = Snapshot()

    def prepare() -> str:
        nonlocal taken
        tensorstore()
        with unwritable(target):
            exists = target.exists()
        if exists:
            raise FileError(f"{target} exists already; name a new folder for the checkpoint")
        taken = snapshot(current(), tree)
        return taken.digest

    agreement.round(f"save {target.name}", prepare, equal_trees)
    write(agreement, writer_of(target.parent), target, taken, item="state")


def equal_trees(digests: Sequence[str]) -> None:
    """Check that every process saves the same tree; MismatchError names those that do not."""
    odd = [process for process, digest in enumerate(digests) if digest != digests[0]]
    if odd:
        raise MismatchError(
            "a checkpoint has one tree: every process must give the same structure, shapes, "
            f"shardings, numbers and NumPy arrays, but process {', '.join(map(str, odd[:20]))} "
            "differs from process 0; give arrays that differ a sharding (from_process_local)"
        )


@progress.storing()
def write(
    agreement: Agreement, writer: Writer, target: Folder, taken: Snapshot, *, item: str
) -> None:
    """Write a snapshot, which appears when it is whole. Collective; in any thread.

    Raises:
        FileError: The folder cannot be written, or is not shared.
    """
    what = f"save {target.name}"
    first = agreement.process == 0

    def start() -> list[str]:
        with unwritable(target, taken.nbytes):
            return writer.begin(target, item) if first else []

    name, end = agreement.round(what, start, lambda rows: rows[0])
    temporary = target.parent / name
    folder = temporary / item
    try:

        def sees() -> list[Any]:
            with unwritable(target):
                return [platform.node(), writer.sees(name)]

        agreement.round(what, sees, lambda rows: _shared(rows, target))

        def blocks() -> bool:
            writes = bool(taken.pieces) or first
            with unwritable(target, taken.nbytes):
                if writes:
                    part = folder / f"ocdbt.process_{agreement.process}{end}"
                    part.mkdir()
                    write_arrays(part, taken.arrays, taken.pieces, describe=first)
            return writes

        wrote = agreement.round(
            what, blocks, lambda rows: [n for n, writes in enumerate(rows) if writes]
        )

        def finish() -> None:
            if first:
                with unwritable(target, taken.nbytes):
                    writer.check()
                    parts = [folder / f"ocdbt.process_{n}{end}" for n in wrote]
                    _finish(temporary, item, taken, parts)
                    writer.finish(target, name, item)

        agreement.round(what, finish)
    except Exception:
        if first:
            writer.drop(name)
        raise


def _shared(rows: Sequence[Sequence[Any]], target: Folder) -> None:
    blind = [f"{name} (process {number})" for number, (name, sees) in enumerate(rows) if not sees]
    if blind:
        raise FileError(
            f"{target.parent} must be one folder on all machines, but what process 0 on "
            f"{rows[0][0]} wrote there is not seen by {', '.join(blind[:20])}; name a folder on a "
            "shared file system"
        )


def _finish(temporary: Folder, item: str, taken: Snapshot, parts: Sequence[Folder]) -> None:
    """Write all that is not in the databases of the processes."""
    folder = temporary / item
    merge(folder, parts)
    impls = {name_of(e.keys): e.key_impl for e in taken.entries if e.key_impl is not None}
    (folder / format.KEY_TYPES).parent.mkdir()
    texts = {
        METADATA: format.tree_text(taken.entries),
        format.STRINGS: json.dumps(taken.strings),
        format.KEY_TYPES: format.key_types_text(taken.arrays, impls),
    }
    for name, text in texts.items():
        _write_text(folder / name, text)
    stored = Reader(folder, ocdbt=True, zarr3=True, complete=True).describe(list(taken.arrays))
    files = {name: format.digest((folder / name).read_bytes()) for name in metadata_files(folder)}
    arrays = {name: format.digest(text) for name, (_, text) in stored.items()}
    _write_text(folder / format.DIGESTS, format.digests_text(files, arrays))
    _write_text(temporary / STEP_METADATA, format.step_text(item, time.time_ns()))
    for made in ((folder / format.KEY_TYPES).parent, folder, temporary):
        _sync(made)


def metadata_files(folder: Folder) -> list[str]:
    """The files of an item that have no checksums of their own for what they say."""
    names = [METADATA, format.STRINGS, format.KEY_TYPES, "manifest.ocdbt"]
    return names + sorted(f"d/{path.name}" for path in (folder / "d").iterdir())


def _write_text(path: Folder, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    _sync(path)


def _sync(path: Folder) -> None:
    """Wait until the disk has a file, or the names in a folder; tensorstore does so for its own."""
    if isinstance(path, Path):
        sync(path)


def snapshot(running: Running, tree: Any) -> Snapshot:
    """Copy what this process writes of a tree; no communication.

    Blocks in the host's memory, as on a CPU, are held and not copied: JAX does not reuse the memory
    of a donated array that somebody else holds.

    Raises:
        InvalidArgumentError: A leaf cannot be in a checkpoint, or two leaves have one name.
    """
    trees = running.backend.trees

    def is_empty(node: Any) -> bool:
        return format.kind_of_empty(node) is not None

    leaves = trees.flatten(tree, is_empty)[0]  # says what it cannot flatten
    keys = trees.keys(tree, is_empty)
    taken, compared = Snapshot(), hashlib.blake2b(digest_size=16)
    _check_names(keys)
    for number, (where, leaf) in enumerate(zip(keys, leaves, strict=True)):
        name = name_of(where)
        try:
            part = _leaf(running, number, leaf)
        except PyReactantError as error:
            raise type(error)(f"save: {path_text(where)}: {error}") from None
        taken.entries.append(Entry(where, part.kind, part.impl))
        if part.text is not None:
            taken.strings[name] = part.text
        if part.array is not None:
            taken.arrays[name] = part.array
        taken.pieces += [(name, index, data) for index, data in part.pieces]
        compared.update(repr((where, part.kind, part.impl, part.array, part.compared)).encode())
    if not taken.arrays:
        raise InvalidArgumentError("a checkpoint must have at least one array or number, got none")
    taken.digest = compared.hexdigest()
    return taken


def _check_names(keys: Sequence[Keys]) -> None:
    if () in keys:
        raise InvalidArgumentError(
            "save takes a tree of arrays, got a single one or none; give a dictionary such as "
            '{"x": x}'
        )
    seen: dict[str, Keys] = {}
    for where in keys:
        name = name_of(where)
        if re.search("[\ud800-\udfff]", name):
            raise InvalidArgumentError(
                f"save: {path_text(where)}: names in a checkpoint must be text that UTF-8 can "
                "hold, but this has half of a surrogate pair; rename the key"
            )
        parts = name.split("/")
        before = [name, *("/".join(parts[:n]) for n in range(1, len(parts)))]
        if "" in parts or {".", ".."} & set(parts) or any(part in seen for part in before):
            other = next((seen[part] for part in before if part in seen), where)
            raise InvalidArgumentError(
                f"save: {path_text(where)} and {path_text(other)} have one name in a checkpoint, "
                f"{name!r}; names are joined with '.', are not empty, and '/' separates folders: "
                "rename a key"
            )
        seen[name] = where


@dataclass(slots=True)
class _Leaf:
    kind: str = format.ARRAY
    array: Array | None = None
    impl: str | None = None
    text: str | None = None
    pieces: list[tuple[Index, np.ndarray]] = field(default_factory=list)
    compared: str = ""


def _leaf(running: Running, number: int, leaf: Any) -> _Leaf:
    if (empty := format.kind_of_empty(leaf)) is not None:
        return _Leaf(empty)
    if isinstance(leaf, str):
        return _Leaf(format.STRING, text=leaf, compared=leaf)
    if type(leaf) in NUMBERS:
        return _host(running, number, _number(leaf), kind=format.SCALAR)
    if is_traced(leaf):
        as_array(leaf)  # says so
    if hasattr(leaf, "is_deleted") and leaf.is_deleted():
        raise StateError(
            "the array was donated or deleted, so its values are gone; save it before, or what the "
            "program returned"
        )
    if isinstance(leaf, ShardedArray) or hasattr(leaf, "addressable_shards"):
        return _placed(running, number, leaf)
    if isinstance(leaf, (np.ndarray, np.generic, complex)):
        return _host(running, number, as_array(leaf))
    raise InvalidArgumentError(
        f"a checkpoint holds arrays, numbers and text, got {type(leaf).__name__}; save without "
        "it, or mark the field of its dataclass as static"
    )


def _number(leaf: Any) -> np.ndarray:
    try:
        return np.asarray(leaf, NUMBERS[type(leaf)])
    except OverflowError:
        raise DTypeError(
            f"a whole number in a checkpoint has 64 bits, got one of {leaf.bit_length()}"
        ) from None


def _host(running: Running, number: int, data: np.ndarray, kind: str = format.ARRAY) -> _Leaf:
    """An array that every process holds whole; it is copied, since the user may change it."""
    array = Array(data.shape, data.dtype.name, chunk_shape(data.shape, data.shape, data.itemsize))
    several = running.group.num_processes
    compared = hashlib.blake2b(np.ascontiguousarray(data).tobytes()) if several > 1 else None
    places = chunks(tuple(slice(0, n) for n in data.shape), array.chunk)
    pieces = [
        (index, np.array(data[index]))
        for at, index in enumerate(places, number)
        if at % several == running.group.process_index
    ]
    return _Leaf(kind, array, None, None, pieces, compared.hexdigest() if compared else "")


def _placed(running: Running, number: int, leaf: Any) -> _Leaf:
    """An array in blocks on devices."""
    backend, impl = running.backend, None
    if not isinstance(leaf, ShardedArray):
        several = running.group.num_processes > 1
        if several and leaf.is_fully_addressable:  # each process has its own copy
            return _own(running, number, leaf)
    value = leaf._value if isinstance(leaf, ShardedArray) else leaf
    if _is_key(leaf):
        numbers, impl = backend.key_numbers(value)
        value, aval = backend.from_jax(numbers)
    elif isinstance(leaf, ShardedArray):
        leaf.block_until_ready()
        aval = leaf.aval
    else:
        try:
            value, aval = backend.from_jax(leaf)
        except ShardingError:
            if not leaf.is_fully_addressable:
                raise
            return _own(running, number, leaf)
    shape, sharding, dtype = aval.shape, aval.sharding, np.dtype(aval.dtype)
    as_dtype(dtype)  # a type that the project knows
    array = Array(
        shape, dtype.name, chunk_shape(shape, sharding.shard_shape(shape), dtype.itemsize)
    )
    shards = {
        tuple(s.start for s in shard.index): shard for shard in backend.addressable_shards(value)
    }
    pieces = []
    for start, block, holders in _held(backend, sharding, shape):
        places = enumerate(chunks(block, array.chunk), number)
        turn = holders.index(running.group.process_index)
        if mine := [index for at, index in places if at % len(holders) == turn]:
            data = shards[start].data
            pieces += [(index, data[within(index, block)]) for index in mine]
    return _Leaf(format.ARRAY, array, impl, None, pieces, str(sharding))


def _own(running: Running, number: int, leaf: Any) -> _Leaf:
    """An array of JAX that lies in this process alone."""
    if not _is_key(leaf):
        return _host(running, number, as_array(leaf))
    numbers, impl = running.backend.key_numbers(leaf)
    part = _host(running, number, np.asarray(numbers))
    part.impl = impl
    return part


def _is_key(leaf: Any) -> bool:
    return str(leaf.dtype).startswith("key<")


@lru_cache(maxsize=1024)
def _held(
    backend: AbstractBackend, sharding: NamedSharding, shape: tuple[int, ...]
) -> tuple[tuple[tuple[int, ...], Index, list[int]], ...]:
    """The blocks that this process holds: first element, place, and all processes that hold it.

    These take its chunks in turn, and begin with another one for each array.
    """
    devices, process = backend.devices(), backend.group.process_index
    blocks = sharding.block_holders(sharding.mesh.device_ids, shape)
    held = (
        (start, block, sorted({devices[position].process_index for position in positions}))
        for start, (block, positions) in blocks.items()
    )
    return tuple(each for each in held if process in each[2])
