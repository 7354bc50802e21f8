"""How elements that an operation takes from beside may be wrong at the ends of parts.

A roll, a slice of a padded array and a part that is joined or written elsewhere all move elements.
On devices each part gets those from outside itself from its neighbours: the halo.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...base.counted import counted
from ..records.verdict import Kind
from .alteration import Alteration, Cuts


class Moved(NamedTuple):
    """Elements that are taken from another place along a dimension.

    Element i of the result is owned by position ``own + i`` of the dimension, and is what `source`
    has at the position ``own + i + by``.

    Attributes:
        result: The elements as they are taken.
        source: Where they come from.
        axis: The dimension.
        by: How far they are moved.
        own: Position that owns the first one.
        length: Length of the dimension, without what it is padded with.
        before: Elements of the source before the first position.
        around: Whether what is beyond an end comes from the other end.
    """

    result: np.ndarray
    source: np.ndarray
    axis: int
    by: int
    own: int
    length: int
    before: int = 0
    around: bool = False


def of_slices(x: np.ndarray, key: Any, before: Sequence[int], result: np.ndarray) -> Moved | None:
    """What a slice takes from beside, if it is along one dimension.

    A slice of a padded array is owned by the positions of the array that was padded; another one,
    as for the inside of an array, by those in the middle.

    Args:
        x: The array.
        key: The index.
        before: Elements with which each dimension was padded before and after the array.
        result: The slice.
    """
    parts = key if isinstance(key, tuple) else (key,)
    if not all(isinstance(part, slice) for part in parts):
        return None
    found: list[Moved] = []
    for axis, part in enumerate(parts):
        start, stop, step = part.indices(x.shape[axis])
        count, padding = stop - start, before[2 * axis] + before[2 * axis + 1]
        length = x.shape[axis] - padding
        if step != 1 or count <= 0 or (count != length and (length - count) % 2):
            continue
        own = 0 if count == length else (length - count) // 2
        by = start - before[2 * axis] - own
        if by and abs(by) <= max(padding, length - count):
            others = tuple(slice(None) if d == axis else p for d, p in enumerate(parts))
            found.append(Moved(result, x[others], axis, by, own, length, before[2 * axis]))
    return found[0] if len(found) == 1 else None


_FILLS = {
    "zeros": "zeros",
    "around": "the elements of the part's other end",
    "ends": "the part's own outermost elements",
    "mirrored": "the part's own elements, mirrored",
    "other": "the other neighbour's",
    "next": "those that are next to the part's other end",
    "beyond": "the neighbours' elements off by one",
    "earlier": "those of the step before",
}
"""What a part may have in place of its neighbours' elements."""


def alterations(moved: Moved, cuts: Cuts, earlier: Moved | None) -> Iterator[Alteration]:
    """Each part with something else in place of its neighbours' elements.

    Args:
        moved: What an operation moves.
        cuts: How arrays may be cut.
        earlier: What the last operation of this kind moved.
    """
    if moved.result.ndim == 0 or not np.size(moved.result):
        return
    side = f" on the {'left' if moved.by < 0 else 'right'} only"
    for cut in cuts.of_array(moved.source.ndim):
        n = cut[moved.axis]
        if not n or moved.length % n or abs(moved.by) >= moved.length // n:
            continue
        where = _cut_text(cut)
        for (fill, text), one_side in itertools.product(_FILLS.items(), ("", side)):
            if fill in ("other", "next") and n < 2:
                continue
            if fill == "earlier" and (earlier is None or earlier.source is moved.source):
                continue
            before = earlier.source if fill == "earlier" and earlier is not None else moved.source
            yield Alteration(
                Kind.HALO,
                f"with {text} in place of a neighbour's{one_side}{where}",
                lambda n=n, fill=fill, before=before: _filled(moved, n, fill, before),
            )


def _cut_text(cut: Sequence[int]) -> str:
    cut_along = [d for d, n in enumerate(cut) if n]
    if all(cut[d] == 1 for d in cut_along):
        which = f" of dimension {cut_along[0]}" * (len(cut_along) == 1)
        return f" at the ends{which}"
    parts = [f"dimension {d} is cut into {counted(cut[d], 'part')}" for d in cut_along]
    return f", where {' and '.join(parts)}"


def _filled(moved: Moved, n: int, fill: str, source: np.ndarray) -> np.ndarray:
    """The result with other elements wherever one comes from outside its own part."""
    result = np.array(moved.result)
    length, size, axis = moved.length, moved.length // n, moved.axis
    own = moved.own + np.arange(result.shape[axis])
    at = own + moved.by
    start = own // size * size
    inside = at - start
    outside = (inside < 0) | (inside >= size)
    back, width = moved.by < 0, abs(moved.by)
    step = np.where(inside < 0, -inside - 1, inside - size)  # 0 for the nearest one
    other = start + (size if back else -size)
    places = {
        "zeros": at,
        "around": start + inside % size,
        "ends": start + np.clip(inside, 0, size - 1),
        "mirrored": start + np.where(inside < 0, -inside, 2 * (size - 1) - inside),
        "other": other + (size - 1 - step if back else step),
        "next": other + (width - 1 - step if back else size - width + step),
        "beyond": at + (-1 if back else 1),
        "earlier": at,
    }
    place = places[fill][outside]
    if moved.around or fill in ("other", "next"):
        place = place % length
    place = place + moved.before
    lines = np.moveaxis(result, axis, 0)
    known = (place >= 0) & (place < source.shape[axis]) & (fill != "zeros")
    new = np.moveaxis(np.take(source, np.where(known, place, 0), axis), axis, 0)
    lines[outside] = np.where(known.reshape((-1,) + (1,) * (new.ndim - 1)), new, 0)
    return result
