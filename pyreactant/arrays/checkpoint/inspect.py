"""What `pyreactant checkpoints` tells of a folder, of ours or of Orbax."""

from collections.abc import Iterator
from dataclasses import dataclass

from ...base.errors import FileError, MismatchError
from . import format
from .folder import Folder, item_of, items_in
from .format import Array, Entry, name_of
from .read import Item, damage, open_item
from .store import Ahead


def show(folder: Folder) -> tuple[Item, list[tuple[Entry, Array | None]]]:
    """The leaves of a checkpoint, with the array of each that has one."""
    item = open_item(item_of(folder))
    names = [name for name, entry in item.entries.items() if entry.is_array]
    arrays = item.arrays(names)
    return item, [(entry, arrays.get(name)) for name, entry in item.entries.items()]


def targets_of(folder: Folder) -> list[Folder]:
    """The checkpoints that a folder is or has."""
    try:
        return [item_of(folder)]
    except FileError:
        if folder.is_dir() and (items := items_in(folder)):
            return [*items.values()]
        raise


@dataclass(frozen=True, slots=True)
class Verdict:
    """What reading a checkpoint showed.

    Attributes:
        folder: The item.
        nbytes: Bytes of its arrays.
        damage: What is wrong; "" if all can be read.
        checked: Whether checksums cover all that was read.
    """

    folder: Folder
    nbytes: int
    damage: str
    checked: bool


def verify(folder: Folder) -> Iterator[Verdict]:
    """Read every checkpoint that a folder is or has, whole."""
    for item in targets_of(folder):
        try:
            size, checked = _read_all(item)
        except (MismatchError, FileError) as error:
            yield Verdict(item, 0, str(error), checked=False)
        else:
            yield Verdict(item, size, "", checked)


def _read_all(folder: Folder) -> tuple[int, bool]:
    item, leaves = show(folder)
    requests = [
        (name_of(entry.keys), index, array)
        for entry, array in leaves
        if array is not None
        for index in format.chunks(tuple(slice(0, n) for n in array.shape), array.chunk)
    ]
    blocks = Ahead(item.reader, requests)
    with damage(folder):
        for _ in requests:
            blocks.next()
        for entry, _ in leaves:
            if entry.kind == format.STRING:
                item.text(name_of(entry.keys))
    return sum(array.nbytes_of(index) for _, index, array in requests), item.digests is not None
