"""How elements that an operation takes from beside may be wrong at the ends of parts.

A roll, a slice of a padded array and a part that is joined or written elsewhere all move elements.
On devices each part gets those from outside itself from its neighbours: the halo.
"""

import functools
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
        key: The index, of slices.
        before: Elements with which each dimension was padded before and after the array.
        result: The slice.
    """
    parts = key if isinstance(key, tuple) else (key,)
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


def of_roll(x: np.ndarray, shift: Any, axis: Any) -> Moved | None:
    """What a roll takes from beside, if it is along one dimension."""
    if np.ndim(shift) or np.ndim(axis) or axis is None or not np.ndim(x):
        return None
    axis = axis % x.ndim
    return Moved(np.roll(x, shift, axis), x, axis, -shift, 0, x.shape[axis], around=True)


def of_part(
    result: np.ndarray, axis: int, offset: int, length: int, taken: tuple[np.ndarray, Any] | None
) -> Moved | None:
    """What is moved if a part of an array comes to another place of one as long.

    Args:
        result: The other array, or what of it the part becomes.
        axis: The dimension.
        offset: The place of the part there.
        length: Length of the dimension.
        taken: The array, and the slices that the part is of it; None if it is no part.
    """
    if taken is None:
        return None
    base, key = taken
    parts = key if isinstance(key, tuple) else (key,)
    if axis >= len(parts) or base.ndim != result.ndim or base.shape[axis] != length:
        return None
    start, _, step = parts[axis].indices(length)
    by = start - offset
    if step != 1 or not by:
        return None
    others = tuple(slice(None) if d == axis else p for d, p in enumerate(parts))
    own = 0 if result.shape[axis] == length else offset
    return Moved(result, base[others], axis, by, own, length)


def of_write(
    x: np.ndarray, key: Any, new: np.ndarray, taken: tuple[np.ndarray, Any] | None
) -> Moved | None:
    """What is moved if a part of an array is written elsewhere into another one."""
    if new.ndim != x.ndim:
        return None
    for axis, part in enumerate(key if isinstance(key, tuple) else (key,)):
        start, stop, step = part.indices(x.shape[axis])
        if step == 1 and stop - start == new.shape[axis] < x.shape[axis]:
            return of_part(new, axis, start, x.shape[axis], taken)
    return None


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
        where, (outside, right, fills) = _cut_text(cut), _fills(moved, n)
        of_sources = [(text, moved.source, places) for text, places in fills.items()]
        if earlier is not None and earlier.source is not moved.source:
            of_sources.append(("those of the step before", earlier.source, right))
        for (text, source, places), one_side in itertools.product(of_sources, ("", side)):
            yield Alteration(
                Kind.HALO,
                f"with {text} in place of a neighbour's{one_side}{where}",
                functools.partial(_filled, moved, outside, source, places),
            )


def _cut_text(cut: Sequence[int]) -> str:
    cut_along = [d for d, n in enumerate(cut) if n]
    if all(cut[d] == 1 for d in cut_along):
        which = f" of dimension {cut_along[0]}" * (len(cut_along) == 1)
        return f" at the ends{which}"
    parts = [f"dimension {d} is cut into {counted(cut[d], 'part')}" for d in cut_along]
    return f", where {' and '.join(parts)}"


def _fills(moved: Moved, n: int) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """What each of n parts may have in place of its neighbours' elements.

    Returns:
        Which elements of the result come from outside their own part; the place of each element
        in the source; and the places of others, which the words say. What is outside of the
        source is zero.
    """
    length, size, back, width = moved.length, moved.length // n, moved.by < 0, abs(moved.by)
    own = moved.own + np.arange(moved.result.shape[moved.axis])
    at, start = own + moved.by, own // size * size
    inside = at - start
    step = np.where(inside < 0, -inside - 1, inside - size)  # 0 for the nearest one
    other = start + (size if back else -size)
    beyond = at + (-1 if back else 1)
    fills = {
        "the elements of the part's other end": start + inside % size,
        "the part's own outermost elements": start + np.clip(inside, 0, size - 1),
        "the part's own elements, mirrored": start
        + np.where(inside < 0, -inside, 2 * (size - 1) - inside),
    }
    if n > 1:
        next_to_other = other + (width - 1 - step if back else size - width + step)
        fills["the other neighbour's"] = (other + (size - 1 - step if back else step)) % length
        fills["those that are next to the part's other end"] = next_to_other % length
    if moved.around:
        at, beyond = at % length, beyond % length
    fills["the neighbours' elements off by one"] = beyond
    places = {text: place + moved.before for text, place in fills.items()}
    outside = (inside < 0) | (inside >= size)
    return outside, at + moved.before, {"zeros": np.full(at.shape, -1), **places}


def _filled(
    moved: Moved, outside: np.ndarray, source: np.ndarray, places: np.ndarray
) -> np.ndarray:
    """The result with elements from other places wherever one comes from outside its part."""
    result, axis, place = np.array(moved.result), moved.axis, places[outside]
    known = (place >= 0) & (place < source.shape[axis])
    new = np.moveaxis(np.take(source, np.where(known, place, 0), axis), axis, 0)
    lines = np.moveaxis(result, axis, 0)
    lines[outside] = np.where(known.reshape((-1,) + (1,) * (new.ndim - 1)), new, 0)
    return result
