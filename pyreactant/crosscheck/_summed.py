"""Ways to leave out a part of a sum over devices, as a missing reduction does."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .._sharding import NamedSharding
from ._execute import CaseRun

Mask = tuple[int, int, np.ndarray]
"""Number of an input, one of its dimensions, and which positions along it count."""


@dataclass(frozen=True, slots=True)
class Way:
    """What is left of a sum over devices where a reduction is missing.

    Attributes:
        masks: Of inputs.
        where: The place along some mesh axes that is not summed over.
        text: The same in words.
    """

    masks: tuple[Mask, ...]
    where: Mapping[str, int]
    text: str


_MOST = 256  # ways that are tried


def ways_to_sum(run: CaseRun, output: int) -> list[Way]:
    """What a device may have summed instead of everything, for one output of a run."""
    contracted: dict[int, list[int]] = {}
    for number, dimension in run.case.contracted(output):
        contracted.setdefault(number, []).append(dimension)
    plans = [run.plans[name] for name in run.named("input")]
    found = (
        way
        for number, dimensions in contracted.items()
        for way in _ways(number, plans[number].shape, plans[number].sharding, dimensions)
    )
    return list(itertools.islice(found, _MOST))


def _ways(
    number: int, shape: Sequence[int], sharding: NamedSharding, dimensions: Sequence[int]
) -> Iterator[Way]:
    mesh, cut = sharding.mesh, sharding.axes(len(shape))
    axes = [axis for dimension in dimensions for axis in cut[dimension]]
    for count in range(len(axes), 0, -1):
        for kept in itertools.combinations(axes, count):
            for place in itertools.product(*(range(mesh.axis_size(axis)) for axis in kept)):
                where = dict(zip(kept, place, strict=True))
                masks = tuple(
                    (number, d, _positions(shape[d], cut[d], sharding, where))
                    for d in dimensions
                    if set(cut[d]) & set(kept)
                )
                said = ", ".join(f"{axis}={at}" for axis, at in where.items())
                text = f"it holds the sum over {said} alone, not over all of {' and '.join(kept)}"
                yield Way(masks, where, text)


def _positions(
    size: int, axes: Sequence[str], sharding: NamedSharding, where: Mapping[str, int]
) -> np.ndarray:
    """Which positions of a dimension lie on the devices at these places of the mesh."""
    sizes = [sharding.mesh.axis_size(axis) for axis in axes]
    keep = np.ones(sizes, bool)
    for number, axis in enumerate(axes):
        if axis in where:
            shape = [-1 if n == number else 1 for n in range(len(sizes))]
            keep &= (np.arange(sizes[number]) == where[axis]).reshape(shape)
    return np.repeat(keep.ravel(), size // keep.size)
