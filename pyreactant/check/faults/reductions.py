"""Faults of reductions over devices: parts that are missing, lost, repeated or summed alone."""

import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...arrays.dtypes import wide
from ...arrays.sharding import Index, NamedSharding
from ...base.counted import counted
from ..bounds.compare import wrong_elements
from ..bounds.expected import Expected
from ..oracle.sources import Only, alone, masked
from ..records.verdict import ArrayPlan, Kind
from ..regions import whole_index
from .diagnose import named
from .subject import Reason, Wrong, explains, fits

_MOST_PARTS = 64
_NEAR_WHOLE = 0.1

_PATIENCE = 120.0
"""Seconds that the search for lost parts may take for all blocks; a user's oracle may be slow."""


def partial_sum(wrong: Wrong) -> Iterator[Reason]:
    """The sum over those devices only that are at the device's own place along some axes."""
    mesh, oracle = wrong.subject.plan.sharding.mesh, wrong.output
    at = np.unravel_index(mesh.device_ids.index(wrong.device), mesh.shape)
    place = dict(zip(mesh.axis_names, map(int, at), strict=True))
    contracted = oracle.case.contracted(oracle.number)
    for number, plan in enumerate(wrong.subject.input_plans):
        summed = [dimension for i, dimension in contracted if i == number]
        cut = plan.sharding.axes(len(plan.shape))
        axes = [axis for dimension in summed for axis in cut[dimension]]
        counts = range(len(axes), 0, -1)
        for kept in itertools.chain.from_iterable(itertools.combinations(axes, n) for n in counts):
            where = {axis: place[axis] for axis in kept}
            source = oracle.sources[number]
            for dimension in (d for d in summed if set(cut[d]) & set(where)):
                mask = positions_along(plan.shape[dimension], cut[dimension], plan.sharding, where)
                source = masked(source, dimension, mask)
            if wrong.holds(oracle.reading_instead(number, source).block(wrong.tile)):
                shown = ", ".join(f"{axis}={n}" for axis, n in where.items())
                yield (
                    Kind.MISSING_REDUCTION,
                    f"it holds the sum over {shown} only, not over all of {' and '.join(where)}",
                )
                return


def positions_along(
    size: int, axes: Sequence[str], sharding: NamedSharding, where: Mapping[str, int]
) -> np.ndarray:
    """Which positions of a dimension lie on the devices at these mesh positions."""
    sizes = [sharding.mesh.axis_size(axis) for axis in axes]
    places = np.indices(sizes)
    keep = np.ones(sizes, bool)
    for number, axis in enumerate(axes):
        if axis in where:
            keep &= places[number] == where[axis]
    return np.repeat(keep.ravel(), size // keep.size)


def equal_parts(wrong: Wrong) -> Iterator[Reason]:
    """A sum over devices with equal values that was omitted or done twice.

    In a user's program it may as well be a factor that is left out or used twice.
    """
    mesh = wrong.subject.plan.sharding.mesh
    users = wrong.subject.operations is not None
    kind = Kind.FACTOR if users else Kind.MISSING_REDUCTION
    for count in range(1, len(mesh.axis_names) + 1):
        for axes in itertools.combinations(mesh.axis_names, count):
            n = math.prod(mesh.axis_size(axis) for axis in axes)
            over = f"{' and '.join(axes)} ({n} devices)"
            for factor, text in (
                (1 / n, f"it is 1/{n} of the right value, as if the sum over {over} were missing"),
                (n, f"it is {n} times the right value, as if summed twice over {over}"),
            ):
                faulty = times(wrong.right, factor)
                # A factor changes all elements; a threshold that moved changes some.
                if n > 1 and wrong.holds(faulty) and (not users or fits(wrong.values, faulty)):
                    yield kind, text
                    return


def times(expected: Expected, factor: float) -> Expected:
    if expected.bound is None:
        value = expected.value
        if factor > 1:
            return Expected(value * np.asarray(factor).astype(value.dtype), None)
        whole = round(1 / factor)
        return Expected(value // whole if value.dtype.kind in "iu" else value * factor, None)
    return Expected(expected.value * factor, expected.bound * factor)


def own_part_alone(wrong: Wrong) -> Iterator[Reason]:
    """A result from the device's own part of some dimensions, without those of the others.

    What the other parts' elements change tells the kind: a whole line misses a reduction, its ends
    a halo. If they do not change a wrong element, it is wrong for another reason, as if a device
    counted its positions from 0.
    """
    oracle, cuts = wrong.output, wrong.subject.plan.sharding.cuts(len(wrong.shape))
    cut = [dimension for dimension, count in enumerate(cuts) if count > 1]
    for dimensions in (c for n in range(1, len(cut) + 1) for c in itertools.combinations(cut, n)):
        tile, sources = list(wrong.tile), oracle.sources
        for d in dimensions:
            own = wrong.block[d]
            tile[d] = slice(tile[d].start - own.start, tile[d].stop - own.start)
            sources = tuple(alone(x, own, d) for x in sources)
        if not wrong.holds(oracle.with_halos(sources).block(tuple(tile))):
            continue
        if not _needs(wrong, dimensions)[wrong.wrong].all():
            return
        ends = [d for d in dimensions if not _lines(_needs(wrong, [d]), d).all()]
        text = f"it was computed from its own part of {named('dimension', dimensions)} only"
        yield Kind.HALO if ends else Kind.MISSING_REDUCTION, text
        return


def _needs(wrong: Wrong, dimensions: Sequence[int]) -> np.ndarray:
    """Which elements of the tile change without the other parts of these dimensions."""
    inside = list(whole_index(wrong.shape))
    for d in dimensions:
        inside[d] = wrong.block[d]
    known = wrong.output.with_halos(Only(x, tuple(inside)) for x in wrong.output.sources)
    return wrong_elements(known.block(wrong.tile).value.astype(wrong.got.dtype), wrong.right)


def _lines(chosen: np.ndarray, dimension: int) -> np.ndarray:
    """At which positions along a dimension any element is chosen."""
    lines = np.moveaxis(chosen, dimension, 0).reshape(chosen.shape[dimension], -1)
    return np.asarray(lines.any(axis=1))


class _Part(NamedTuple):
    """What the devices with one block of an input add to a tile of a sum.

    Attributes:
        devices: These devices.
        value: What they add; no rounding.
    """

    devices: tuple[int, ...]
    value: np.ndarray


def lost_parts(wrong: Wrong) -> Iterator[Reason]:
    """Parts of a sum over devices that are lost, doubled or taken from another device."""
    for number, plan in enumerate(wrong.subject.input_plans):
        for groups in _groups(plan):
            parts = _parts(wrong, number, groups)
            weights = _weights(wrong, parts) if len(parts) > 1 else None
            if weights is not None:
                # A program that subtracts may have a wrong sign; one that needs a part at the
                # ends of lines only may have a wrong halo.
                certain = min(weights) >= 0 and _is_whole(parts, weights)
                if certain and sum(weights) == 1:
                    only = parts[weights.index(1)].devices
                    what = "its own" if wrong.device in only else f"that of {named('device', only)}"
                    text = f"of the sum over {len(parts)} parts it holds only {what}"
                    yield Kind.MISSING_REDUCTION, text
                    return
                kind = Kind.PARTS if certain else Kind.UNKNOWN
                yield kind, _parts_text(parts, weights)
                return


Group = tuple[Index, list[int]]
"""A part of an input, and the devices that hold it."""


def _groups(plan: ArrayPlan) -> Iterator[list[Group]]:
    """The blocks of an input, and its slices along each dimension that is cut, if these differ."""
    if plan.dtype == "bool":
        return
    held = plan.sharding.devices_indices_map(plan.shape)
    cut = [d for d, count in enumerate(plan.sharding.cuts(len(plan.shape))) if count > 1]
    for kept in [cut, *([d] for d in cut if len(cut) > 1)]:
        groups: dict[str, Group] = {}
        for device, block in held.items():
            part = tuple(s if d in kept else slice(0, plan.shape[d]) for d, s in enumerate(block))
            groups.setdefault(str(part), (part, []))[1].append(device)
        if 2 <= len(groups) <= _MOST_PARTS:
            yield list(groups.values())


def _parts(wrong: Wrong, number: int, groups: Sequence[Group]) -> list[_Part]:
    """The parts of the tile by parts of an input; none if the program is not a sum over them."""
    start = time.perf_counter()
    base = wrong.output.only(wrong.tile, number, None).numbers
    blocks = len(wrong.subject.plan.sharding.mesh.device_ids)
    if (time.perf_counter() - start) * len(groups) * blocks > _PATIENCE:
        return []
    parts = [
        _Part(tuple(devices), wrong.output.only(wrong.tile, number, block).numbers - base)
        for block, devices in groups
    ]
    with np.errstate(invalid="ignore"):  # infinities, which no sum of parts explains
        apart = np.abs(base + sum(part.value for part in parts) - wrong.right.numbers)
    sizes = [float(np.abs(part.value).max(initial=0.0)) for part in parts]
    if not np.all(apart <= _LINEAR * max(sizes)):
        return []
    return [part for part, size in zip(parts, sizes, strict=True) if size > _LINEAR * max(sizes)]


_LINEAR = 1e-9
"""Relative difference of sums that are computed in float64 in another order."""


def _weights(wrong: Wrong, parts: Sequence[_Part]) -> list[int] | None:
    """How often each part is in the sum; None if no whole numbers explain the wrong values."""
    for chosen in (np.ones(wrong.values.shape, bool), wrong.wrong):
        weights = _fitted(wrong, parts, chosen)
        if weights is not None:
            return weights
    if np.count_nonzero(wrong.wrong) >= len(parts):
        return None
    # Too few elements for a fit: one part is lost or doubled, if only one explains the values.
    possible = [
        [weight if n == number else 1 for n in range(len(parts))]
        for number in range(len(parts))
        for weight in (0, 2)
    ]
    fitting = [weights for weights in possible if _explained(wrong, parts, weights)]
    return fitting[0] if len(fitting) == 1 else None


def _fitted(wrong: Wrong, parts: Sequence[_Part], chosen: np.ndarray) -> list[int] | None:
    """Weights by least squares over the chosen elements."""
    columns = np.stack([part.value[chosen] for part in parts], axis=-1)
    change = wide(wrong.values)[chosen] - wrong.right.numbers[chosen]
    if np.iscomplexobj(columns) or np.iscomplexobj(change):
        columns = np.concatenate([columns.real, columns.imag])
        change = np.concatenate([change.real, change.imag])
    if len(columns) < len(parts) or not np.isfinite(change).all():
        return None
    more, _, rank, _ = np.linalg.lstsq(columns, change, rcond=1e-6)
    weights = np.rint(1 + more)
    if rank < len(parts) or np.any(np.abs(1 + more - weights) > _NEAR_WHOLE):
        return None
    whole = [int(weight) for weight in weights]
    return whole if _explained(wrong, parts, whole, len(parts)) else None


def _explained(wrong: Wrong, parts: Sequence[_Part], weights: Sequence[int], free: int = 0) -> bool:
    if len(set(weights)) == 1:
        return False  # right, or a factor of the whole sum
    right = wrong.right
    value = right.numbers + sum(
        (weight - 1) * part.value for weight, part in zip(weights, parts, strict=True)
    )
    if right.bound is None:
        with np.errstate(all="ignore"):
            faulty = Expected(value.astype(wrong.values.dtype), None)
    else:
        faulty = Expected(value, right.bound * max(1, *map(abs, weights)))
    return explains(wrong.values, right, faulty, wrong.wrong, free)


def _is_whole(parts: Sequence[_Part], weights: Sequence[int]) -> bool:
    """Whether each part that is not in the sum once changes about as many lines as others do."""
    for d in range(parts[0].value.ndim):
        counts = [np.count_nonzero(_lines(part.value != 0, d)) for part in parts]
        odd = [count for count, weight in zip(counts, weights, strict=True) if weight != 1]
        if 2 * min(odd) < max(counts):
            return False
    return True


def _parts_text(parts: Sequence[_Part], weights: Sequence[int]) -> str:
    """Which devices' parts are in the sum how often."""
    odd = [(w, part) for w, part in zip(weights, parts, strict=True) if w != 1]
    shown = [
        f"the part of {named('device', part.devices)} is {_times_text(weight)}"
        for weight, part in odd[:4]
    ]
    more = f", and {counted(len(odd) - 4, 'more part')}" if len(odd) > 4 else ""
    return f"of the sum over {len(parts)} parts {' and '.join(shown)}{more}"


def _times_text(weight: int) -> str:
    return {0: "lost", 2: "counted twice", -1: "subtracted"}.get(weight, f"counted {weight} times")
