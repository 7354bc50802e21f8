"""One operation of an oracle that differs, and how a mesh may cut the arrays that it reads."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..records.verdict import Kind

_MOST_PARTS = 8


class Alteration(NamedTuple):
    """How an operation differs.

    Attributes:
        kind: The kind of fault.
        text: The difference in words, after "the oracle gives these values".
        new: Computes what the operation then gives; of another constant if `constant` is set.
        family: The text of all alterations that differ from this one in the part of an array
            only; "" if there are none.
        constant: The constant that may be another one; None for other alterations.
        adds: Whether devices may add up what they compute from their own parts of a sum. From
            an extreme, or single elements, that is equal to something else by chance.
    """

    kind: Kind
    text: str
    new: Callable[..., Any]
    family: str = ""
    constant: float | None = None
    adds: bool = False


class Cuts:
    """How a mesh may cut an array.

    Args:
        mesh: Sizes of its axes.
        shards: Numbers of parts of each dimension of the output.
    """

    def __init__(self, mesh: Sequence[int], shards: Sequence[int]) -> None:
        self.mesh, self.shards = tuple(mesh), tuple(shards)
        self.counts = sorted({n for n in (*mesh, math.prod(mesh)) if 1 < n <= _MOST_PARTS})

    def of_array(self, dimensions: int) -> Iterator[tuple[int, ...]]:
        """Numbers of parts of each dimension, 0 for one that stays as it is."""
        some = []
        for axis, n in itertools.product(range(dimensions), (1, *self.counts)):
            some.append(tuple(n if d == axis else 0 for d in range(dimensions)))
        if dimensions > 1:
            some.append((1,) * dimensions)
        if len(self.shards) == dimensions:
            some.append(tuple(n if n > 1 else 0 for n in self.shards))
        yield from dict.fromkeys(some)

    def of_length(self, length: int) -> Iterator[tuple[str, list[np.ndarray]]]:
        """Positions of each part, for each way to cut a dimension; {} in its text is the part."""
        most = math.prod(self.mesh)
        for n in self.counts:
            if length % n == 0:
                yield f"part {{}} of {n}", np.split(np.arange(length), n)
        for n in self.counts:
            if n < most <= _MOST_PARTS and length % most == 0:
                # The devices at one place of the inner axis, or those that are counted first.
                of = np.arange(length) * most // length % n
                parts = [np.flatnonzero(of == k) for k in range(n)]
                yield f"the parts {{}} of {n} in turn", parts

    def of_axes(
        self, shape: Sequence[int], axes: Sequence[int]
    ) -> Iterator[tuple[str, list[tuple[np.ndarray, ...]]]]:
        """Positions of each part along some axes, if these are cut together."""
        if len(axes) == 1:
            for text, parts in self.of_length(shape[axes[0]]):
                yield text, [(part,) for part in parts]
            return
        for axis in axes:
            whole = [np.arange(shape[a]) for a in axes]
            for text, parts in self.of_length(shape[axis]):
                at = list(axes).index(axis)
                yield (
                    f"{text} of dimension {axis}",
                    [(*whole[:at], part, *whole[at + 1 :]) for part in parts],
                )
        for sizes in dict.fromkeys((self.mesh, self.mesh[::-1])):
            counts = (*sizes, *(1,) * len(axes))[: len(axes)]
            if math.prod(counts) > _MOST_PARTS or min(sizes[: len(axes)]) < 2:
                continue
            if all(shape[a] % n == 0 for a, n in zip(axes, counts, strict=True)):
                cut = [np.split(np.arange(shape[a]), n) for a, n in zip(axes, counts, strict=True)]
                yield (
                    f"part {{}} of {' x '.join(map(str, counts))}",
                    list(itertools.product(*cut)),
                )


_ROUNDED = 2.0**-8
"""A factor that is nearer to 1 may be a constant in a shorter type."""

_NOTHING = 1e-3
"""A factor that is nearer to 0 leaves a part out."""


def is_factor(factor: complex) -> bool:
    """Whether a wrong factor is no rounded constant, and leaves nothing out."""
    return abs(factor) >= _NOTHING and abs(factor - 1) >= _ROUNDED


_DIGITS = 3

_KNOWN = 1e-7
"""No value is known better, relative to its size."""

_BY_CHANCE = 0.006
"""With four forms, a value is near a number of so few digits by chance with about 2 %."""


def plain_numbers(value: float, known: float) -> Iterator[float]:
    """The numbers of few digits near a value, and their roots, reciprocals and both.

    Args:
        value: The value.
        known: How well it is known, by what it leaves of an error; a number has so few digits that
            it is hardly near by chance.
    """
    known = max(known, _KNOWN * abs(value))
    if not 0 < known < abs(value) < math.inf:
        return
    digits = min(_DIGITS, math.floor(math.log10(_BY_CHANCE * abs(value) / known)))
    for power in (1, -1, 2, -2) if digits > 0 else ():
        short = float(f"{abs(value) ** power:.{digits - 1}e}")
        number = math.copysign(short ** (1 / power), value)
        if abs(number - value) <= known:
            yield number
