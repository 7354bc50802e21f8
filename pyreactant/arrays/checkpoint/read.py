"""Read a checkpoint of Orbax's format onto any mesh: each process its own blocks."""

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...base.errors import (
    FileError,
    InvalidArgumentError,
    MismatchError,
    PyReactantError,
    ShardingError,
)
from ...base.words import is_store_away
from ...process import progress
from ..array import ShardedArray
from ..dtypes import as_dtype
from ..runtimes.agree import Agreement, shared
from ..runtimes.mesh import check_mesh
from ..runtimes.operations import check_dtype
from ..runtimes.runtime import Running, current
from ..sharding import Aval, Index, NamedSharding, as_sharding, intern
from ..tree import Keys, broadcast, path_text
from . import format
from .bucket import tensorstore
from .folder import METADATA, Folder, item_of, parse
from .format import NUMBERS, Array, Entry, name_of
from .store import Ahead, DamageError, Reader

_SHOWN = 20
"""Leaves that a message names."""


@dataclass(frozen=True, slots=True)
class Item:
    """An item of a checkpoint, whose metadata files are whole.

    Attributes:
        folder: Its folder.
        entries: All leaves by their names.
        strings: All text by name.
        digests: Those of the arrays' descriptions; None if another tool wrote the checkpoint.
        reader: The arrays.
    """

    folder: Folder
    entries: dict[str, Entry]
    strings: dict[str, str]
    digests: Mapping[str, str] | None
    reader: Reader

    def arrays(self, names: Sequence[str]) -> dict[str, Array]:
        """Shapes, types and chunks of arrays; MismatchError if what says so is damaged."""
        with damage(self.folder):
            described = self.reader.describe(names)
            if self.digests is not None:
                for name, (_, text) in described.items():
                    if format.digest(text) != self.digests.get(name):
                        raise DamageError(f"the description of array {name} has changed")
        return {name: array for name, (array, _) in described.items()}

    def text(self, name: str) -> str:
        """A leaf that is text; DamageError if it is missing."""
        text = self.strings.get(name)
        if not isinstance(text, str):
            raise DamageError(f"the text {name} is missing")
        return text


@contextlib.contextmanager
def damage(folder: Folder) -> Iterator[None]:
    """Say of what cannot be read whole which checkpoint has it, and what to do."""
    try:
        yield
    except DamageError as error:
        if is_store_away(str(error)):
            raise FileError(
                f"{folder}: cannot be read now ({error}); see whether the bucket answers this login"
            ) from None
        if not folder.exists():  # a loop with `keep` renames a step before it deletes it
            raise FileError(
                f"{folder} was deleted while it was read; read a newer step, or let the loop keep "
                "more of them (keep)"
            ) from None
        raise MismatchError(
            f"{folder}: the checkpoint is damaged: {error}; restore another step"
        ) from None


def open_item(folder: Folder) -> Item:
    """An item of a checkpoint, after a look at all files that have no checksums.

    Raises:
        FileError: It is no checkpoint, or of a newer format.
        MismatchError: A file is damaged.
        RequirementError: tensorstore is not installed.
    """
    tensorstore()
    with damage(folder):
        try:
            digests = _digests(folder)
            types = _key_types(folder / "array_metadatas")
            leaves, stored = format.read_tree(
                (folder / METADATA).read_text("utf-8"),
                types,
                ocdbt=(folder / "manifest.ocdbt").is_file(),
            )
            strings = folder / format.STRINGS
            texts = dict(json.loads(strings.read_text("utf-8")) if strings.is_file() else {})
        except OSError as error:
            raise FileError(f"{folder}: cannot be read ({error.strerror or error})") from None
        except (ValueError, TypeError, RecursionError) as error:
            raise DamageError(f"its metadata cannot be read ({error})") from None
    entries = {name_of(entry.keys): entry for entry in leaves}
    return Item(folder, entries, texts, digests, Reader(folder, **stored))


def _key_types(folder: Folder) -> list[str]:
    """What each process of a save wrote of its keys; Orbax may write none."""
    try:
        paths: list[Folder] = sorted(folder.iterdir(), key=str)
    except FileNotFoundError:
        return []
    return [path.read_text("utf-8") for path in paths if path.name.startswith("process_")]


def _digests(folder: Folder) -> Mapping[str, str] | None:
    """What our file says of the arrays, after a comparison with all files that it names."""
    path = folder / format.DIGESTS
    if not path.is_file():
        return None
    files, arrays = format.read_digests(path.read_bytes(), str(folder))
    for name, digest in files.items():
        try:
            now = format.digest((folder / name).read_bytes())
        except FileNotFoundError:
            raise DamageError(f"the file {name} is missing") from None
        if now != digest:
            raise DamageError(f"the file {name} has changed since it was written")
    return arrays


def restore(folder: str | os.PathLike[str], like: Any = None, shardings: Any = None) -> Any:
    """Read a checkpoint of Orbax's format, also one of Orbax itself. Collective.

    It may come from any mesh, number of processes and runtime. Each process reads its own blocks.
    Values are bit for bit those that were saved; nothing is converted. One whole number, such as a
    step, may be Python's in one of both trees and an array of integers in the other.

    Args:
        folder: The folder that `save` wrote, a step of `Checkpoints` or of Orbax, or an item in it;
            on a disk or in a bucket.
        like: The tree to return, in your own classes, with leaves that say shape and dtype: arrays,
            results of `jax.eval_shape`, `Aval`, or numbers and text. It may be a part of what was
            saved. Without it the tree has dictionaries and lists.
        shardings: Mesh and partition spec; one for all, or a tree of them that has the structure
            of `like` or is a prefix of it. None, also in that tree: as the leaf of `like` says.

    Returns:
        The tree: `jax.Array` where a leaf of `like`, or without it the sharding, is JAX's;
        otherwise `ShardedArray`. A leaf without a mesh comes back as a NumPy array, as one process
        needs it.

    Raises:
        FileError: The folder is no checkpoint, or of a newer format.
        InvalidArgumentError: Leaves of `like` are missing, or have another shape or dtype.
        ShardingError: A sharding does not fit a leaf, or is no `NamedSharding`.
        MismatchError: The checkpoint is damaged.
        RequirementError: tensorstore is not installed.

    Examples:
        >>> pr.save("model", {"w": x})
        >>> pr.restore("model", shardings=rows)["w"].sharding == rows
        True
    """
    at = parse(folder)
    return restore_item(shared(), lambda: item_of(at), like, shardings, what=f"restore {at.name}")


@progress.storing()
def restore_item(
    agreement: Agreement, find: Callable[[], Folder], like: Any, shardings: Any, *, what: str
) -> Any:
    """`restore` of the item that `find` finds. Collective."""
    running = current()
    plan: _Plan | None = None
    tree: Any = None

    def check() -> None:
        nonlocal plan
        plan = _plan(running, open_item(find()), like, shardings)

    def place() -> None:
        nonlocal tree
        assert plan is not None
        tree = _place(running, plan)

    agreement.round(what, check)
    agreement.round(what, place)
    return tree


@dataclass(slots=True)
class _Leaf:
    """One leaf to restore: what is stored, and what is asked for."""

    entry: Entry
    name: str
    array: Array | None = None
    sharding: NamedSharding | None = None
    of_jax: bool = False
    is_number: bool = False  # of Python
    whole: np.dtype[Any] | None = None  # the integer type that a whole number of Python becomes


@dataclass(slots=True)
class _Plan:
    item: Item
    leaves: list[_Leaf]
    build: Callable[[list[Any]], Any]


def _plan(running: Running, item: Item, like: Any, shardings: Any) -> _Plan:
    """What to read, after all checks."""
    trees = running.backend.trees
    if like is None:
        entries = list(item.entries.values())
        asked: list[Any] = [None] * len(entries)
        keys = [entry.keys for entry in entries]

        def build(values: list[Any]) -> Any:
            return format.nested(list(zip(keys, values, strict=True)))

        tree = build(list(range(len(entries))))
        order = trees.flatten(tree)[0]
    else:
        asked, structure = trees.flatten(like)  # says what it cannot flatten
        keys = trees.keys(like)
        _check_like(item, keys, asked)
        entries = [item.entries[name_of(where)] for where in keys]
        order = list(range(len(entries)))
        tree = trees.unflatten(structure, order)

        def build(values: list[Any]) -> Any:
            return trees.unflatten(structure, values)

    given: list[Any] = [None] * len(entries)
    if shardings is not None:
        what = "restore: shardings"
        prefix = broadcast(trees, shardings, tree, _is_sharding, what, "the tree")
        for number, sharding in zip(order, prefix, strict=True):
            if not _is_sharding(sharding):
                raise ShardingError(
                    f"restore: {path_text(entries[number].keys)}: its sharding must be a "
                    f"NamedSharding, of JAX or of pyreactant, got {type(sharding).__name__}"
                )
            given[number] = sharding
    names = [name_of(entry.keys) for entry in entries]
    if unknown := [e for e in entries if not e.is_known]:
        raise InvalidArgumentError(
            f"{item.folder}: a leaf must be an array, a number or text, but "
            f"{_listed(f'{path_text(e.keys)} is {e.kind}' for e in unknown)}; give like without it"
        )
    arrays = item.arrays([n for n, entry in zip(names, entries, strict=True) if entry.is_array])
    leaves = [
        _leaf(_Leaf(entry, name, arrays.get(name)), want, sharding)
        for entry, name, want, sharding in zip(entries, names, asked, given, strict=True)
    ]
    if like is not None:
        _check_equal(leaves, keys, asked)
    for leaf in leaves:
        _check_placement(running, leaf)
    return _Plan(item, leaves, build)


def _is_sharding(node: object) -> bool:
    return node is None or isinstance(as_sharding(node), NamedSharding)


def _check_like(item: Item, keys: Sequence[Keys], asked: Sequence[Any]) -> None:
    missing, wrong = [], []
    for where, want in zip(keys, asked, strict=True):
        entry = item.entries.get(name_of(where))
        if entry is None or entry.kind in format.EMPTY:
            missing.append(path_text(where))
        elif not (isinstance(want, str) or type(want) in NUMBERS or _described(want)):
            wrong.append(f"{path_text(where)} is {type(want).__name__}")
        elif isinstance(want, str) != (entry.kind == format.STRING):
            stored = "text" if entry.kind == format.STRING else "an array"
            wrong.append(f"{path_text(where)} is {stored}, and {type(want).__name__} was asked for")
    if missing:
        raise InvalidArgumentError(
            f"{item.folder}: the checkpoint must have every leaf of like, but lacks "
            f"{_listed(missing)}; it has {_listed([path_text(e.keys) for e in _some(item)])}: "
            "restore without like to see all"
        )
    if wrong:
        raise InvalidArgumentError(
            f"restore: like must have leaves with shape and dtype, or numbers and text, as the "
            f"checkpoint has them, but {_listed(wrong)}; give jax.eval_shape's result"
        )


def _some(item: Item) -> Iterable[Entry]:
    return (entry for entry in item.entries.values() if entry.kind not in format.EMPTY)


def _listed(texts: Iterable[str]) -> str:
    every = list(texts)
    more = len(every) - _SHOWN
    return ", ".join(every[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _described(want: Any) -> tuple[tuple[int, ...], Any] | None:
    """Shape and dtype of a leaf of `like`; None if it does not say them."""
    shape, dtype = getattr(want, "shape", None), getattr(want, "dtype", None)
    return None if shape is None or dtype is None else (tuple(shape), dtype)


def _leaf(leaf: _Leaf, want: Any, sharding: Any) -> _Leaf:
    """A leaf with what `like` and `shardings` ask for."""
    own = getattr(want, "sharding", None)
    chosen = sharding if sharding is not None else own if _is_sharding(own) else None
    described = want is not None and not isinstance(want, (np.ndarray, np.generic, *NUMBERS))
    of_us = isinstance(want, (ShardedArray, Aval))
    leaf.of_jax = not of_us if described else not isinstance(chosen, (NamedSharding, type(None)))
    if type(want) in NUMBERS or (want is None and leaf.entry.kind == format.SCALAR):
        leaf.is_number = True
    elif chosen is not None and leaf.array is not None:
        leaf.sharding = as_sharding(chosen)
    if described and _is_whole(leaf) and _is_integer(want) and leaf.entry.kind == format.SCALAR:
        leaf.whole = as_dtype(want.dtype)
    return leaf


def _is_whole(leaf: _Leaf) -> bool:
    return leaf.array is not None and _is_integer(leaf.array) and leaf.entry.key_impl is None


def _is_integer(array: Any) -> bool:
    """Whether an array is one integer."""
    return tuple(array.shape) == () and str(array.dtype).startswith(("int", "uint"))


def _check_equal(leaves: Sequence[_Leaf], keys: Sequence[Keys], asked: Sequence[Any]) -> None:
    differ = []
    for leaf, where, want in zip(leaves, keys, asked, strict=True):
        # A step is a number of Python before the first call of `jax.jit`, and int32 after it.
        if leaf.array is None or leaf.whole is not None or (type(want) is int and _is_whole(leaf)):
            continue
        shape, dtype = leaf.array.shape, leaf.array.dtype
        if type(want) in NUMBERS:
            asked_for, stored = f"{NUMBERS[type(want)]}[]", f"{dtype}{list(shape)}"
        else:
            described = _described(want)
            assert described is not None
            stored = f"{dtype}{list(shape)}"
            asked_for = f"{described[1]}{list(described[0])}"
            if leaf.entry.key_impl is not None:  # the numbers of each key are its last dimension
                stored = f"keys of {leaf.entry.key_impl}{list(shape[:-1])}"
            if (impl := _impl(described[1])) is not None:
                asked_for = f"keys of {impl}{list(described[0])}"
        if asked_for != stored:
            differ.append(f"{path_text(where)} is {stored}, and {asked_for} was asked for")
    if differ:
        raise InvalidArgumentError(
            "restore never converts: like must have the shapes and dtypes of the checkpoint, but "
            f"{_listed(differ)}; change like, and convert afterwards"
        )


def _impl(dtype: Any) -> str | None:
    """The implementation of a type of PRNG keys; None for another type."""
    impl = getattr(dtype, "_impl", None)
    return str(impl.name) if impl is not None else None


def _check_placement(running: Running, leaf: _Leaf) -> None:
    if leaf.array is None:
        return
    place = path_text(leaf.entry.keys)
    try:
        dtype = leaf.whole or as_dtype(leaf.array.dtype)
        if leaf.sharding is None:
            return
        check_mesh(leaf.sharding.mesh)
        shape = leaf.array.shape
        leaf.sharding.shard_shape(shape[:-1] if leaf.entry.key_impl else shape)
        check_dtype(dtype)
    except PyReactantError as error:
        raise type(error)(f"restore: {place}: {error}") from None


def _place(running: Running, plan: _Plan) -> Any:
    mine = running.backend.local_positions
    requests = [
        (leaf.name, index, leaf.array)
        for leaf in plan.leaves
        if leaf.array is not None
        for index in _indices(leaf, mine)
    ]
    blocks = Ahead(plan.item.reader, requests)
    with damage(plan.item.folder):
        return plan.build([_value(running, plan.item, leaf, blocks) for leaf in plan.leaves])


def _indices(leaf: _Leaf, mine: frozenset[int]) -> list[Index]:
    """The blocks of a leaf that this process reads, in the order in which they are placed."""
    assert leaf.array is not None
    shape = leaf.array.shape
    if leaf.sharding is None:
        return [tuple(slice(0, n) for n in shape)]
    positions = leaf.sharding.mesh.positions_of(mine)
    return [index for index, _ in leaf.sharding.block_holders(positions, shape).values()]


def _value(running: Running, item: Item, leaf: _Leaf, blocks: Ahead) -> Any:
    if leaf.entry.kind == format.STRING:
        return item.text(leaf.name)
    if leaf.array is None:
        return copy(format.EMPTY[leaf.entry.kind])
    backend, impl = running.backend, leaf.entry.key_impl
    shape, dtype = leaf.array.shape, leaf.whole or as_dtype(leaf.array.dtype)

    def read(index: Index | None = None) -> np.ndarray:
        data = blocks.next(index)
        return data if leaf.whole is None else _of_type(data, leaf.whole, leaf.entry)

    if leaf.sharding is None:
        data = read()
        if leaf.is_number:
            return data.item()
        return data if impl is None else backend.wrap_keys(data, impl, None)
    value = backend.from_blocks(shape, dtype, leaf.sharding, read, owned=True)
    if impl is not None:
        value = backend.wrap_keys(value, impl, leaf.sharding)
        shape, dtype = shape[:-1], value.dtype
    if leaf.of_jax:
        return backend.expose(value)
    return ShardedArray(value, intern(Aval(shape, dtype, leaf.sharding)), backend)


def _of_type(data: np.ndarray, dtype: np.dtype[Any], entry: Entry) -> np.ndarray:
    found = data.astype(dtype)
    if found != data:
        raise InvalidArgumentError(
            f"restore: {path_text(entry.keys)} is {data}, which {dtype} does not hold; "
            "ask for int64"
        )
    return found
