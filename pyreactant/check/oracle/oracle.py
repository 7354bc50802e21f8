"""Expected values of any part of an array of a run, if it is right and under given faults.

Blocks are cut into tiles, so that a check needs little extra memory.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...arrays.dtypes import wide
from ...arrays.sharding import Index
from ...arrays.source import Source
from ..bounds.expected import Expected
from ..bounds.model import Model
from ..bounds.rules.products import Float32Products
from ..bounds.tracked import Tracked
from ..bounds.typical import Typical
from ..programs.case import Case
from ..regions import elements_of
from .sources import Absolute, Only

TILE_BYTES = 4 * 2**20
"""Bytes that a tile may need; each core checks one at a time."""

STREAM_BYTES = 256 * 2**20
"""Most bytes that a tile which reads all inputs may need; two are checked at a time."""


def stream_bytes(own: int) -> int:
    """Bytes that a tile which reads all inputs may need.

    Estimates are upper bounds: two such tiles really use about half of `own`.

    Args:
        own: Total bytes of the process's blocks.
    """
    return max(min(own * 5 // 8, STREAM_BYTES), min(TILE_BYTES, STREAM_BYTES))


@dataclass(frozen=True, slots=True)
class InputOracle:
    """Exact expected values of an input.

    Attributes:
        source: The source of the input.
    """

    source: Source

    def block(self, index: Index) -> Expected:
        """The expected values of a part of the array."""
        return Expected(self.source.read(index), None)

    @property
    def limit(self) -> int:
        """Bytes that a tile may need."""
        return TILE_BYTES

    def cost(self, index: Index) -> int:
        """Bytes that `block` needs."""
        return 16 * elements_of(index)


@dataclass(frozen=True, slots=True)
class OutputOracle:
    """Expected values of an output, computed in float64 from only the needed parts of the inputs.

    Attributes:
        case: The program.
        number: Index of the output.
        shape: Shape of the output.
        sources: Sources of the inputs.
        model: Rounding model of the runtime; None if results must be exact.
        stream_bytes: Bytes that a tile which reads all inputs may need.
        whole: Whether the inputs are whole numbers for which float64 and every right runtime have
            the same results, without rounding; they are compared as numbers, not by bits.
        float32_products: Whether to form large products in float32; results are then rounded ones.
        typical: How far right results usually are from the whole array; None if unknown.
    """

    case: Case
    number: int
    shape: tuple[int, ...]
    sources: tuple[Source, ...]
    model: Model | None
    stream_bytes: int = STREAM_BYTES
    whole: bool = False
    float32_products: bool = False
    typical: Typical | None = None

    def block(self, index: Index) -> Expected:
        """The expected values of a part of the array."""
        with Float32Products() if self.float32_products else nullcontext() as products:
            block = self._computed(index, self.sources)
        formed = products is not None and products.formed > 0
        if self.whole and np.asarray(block).dtype.kind in "fc":
            value = wide(np.asarray(block))  # an oracle may convert to a shorter type
            return Expected(value, np.zeros(value.shape), last_rounding=True)
        if not isinstance(block, Tracked):
            return Expected(np.asarray(block), None)
        absolute = None
        if not block.value.any():
            sizes = self._computed(index, tuple(map(Absolute, self.sources)))
            absolute = np.abs(sizes.value if isinstance(sizes, Tracked) else np.asarray(sizes))
        return Expected(
            block.value,
            block.bound,
            estimated=block.estimated,
            absolute=absolute,
            float32_products=formed,
            typical=None if self.typical is None else self.typical.part(index),
        )

    def _computed(self, index: Index, sources: tuple[Source, ...]) -> Any:
        return self.case.expected(self.number, index, sources, self.model, in_full=self.whole)

    @property
    def limit(self) -> int:
        """Bytes that a tile may need; more if each tile reads all inputs, so tiles are few."""
        oracle = self.case.oracle
        if oracle is None or oracle.elements is None:
            return TILE_BYTES
        return self.stream_bytes if oracle.first is None else self.stream_bytes // 4

    def cost(self, index: Index) -> int:
        """Bytes that `block` needs: values, bounds and temporaries of the same size."""
        each = 48 if self.model is not None or self.whole else 16
        return each * self.case.elements(self.number, index, self._shapes)

    @property
    def _shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(source.shape for source in self.sources)

    def reading(self, sources: Iterable[Source]) -> "OutputOracle":
        """The oracle of a program that reads other sources, as a faulty one does."""
        return replace(self, sources=tuple(sources), typical=None)

    def with_halos(self, sources: Iterable[Source]) -> "OutputOracle":
        """The same if only inputs of the output's shape have other sources."""
        both = zip(self.sources, sources, strict=True)
        return self.reading(new if old.shape == self.shape else old for old, new in both)

    def reading_instead(self, number: int, source: Source) -> "OutputOracle":
        """The same if one input has another source."""
        return self.reading(source if i == number else x for i, x in enumerate(self.sources))

    def only(self, index: Index, number: int, block: Index | None) -> Expected:
        """Values of a tile if an input is zero outside a block, or everywhere if it is None."""
        return self.reading_instead(number, Only(self.sources[number], block)).block(index)

    def halo(self, block: Index, dimension: int) -> int:
        """How far beyond a block it needs elements of inputs of the output's shape."""
        own = block[dimension]
        needs = self.case.needs(self.number, block, self._shapes)
        return max(
            (
                max(own.start - need[dimension].start, need[dimension].stop - own.stop)
                for need, source in zip(needs, self.sources, strict=True)
                if source.shape == self.shape
            ),
            default=0,
        )


_WORTH_IT = 0.8
"""Cut or merge only if the cost falls below this fraction of the previous cost."""


def cut(index: Index, cost: Callable[[Index], int], limit: int) -> Iterator[Index]:
    """Cut a block into equal tiles (the last one along each dimension may be smaller).

    Args:
        index: Index of the block.
        cost: Bytes that a tile needs, including its inputs.
        limit: Bytes a tile should need at most. A tile needs more only if smaller tiles would
            hardly be cheaper, as with a Fourier transform, which reads everything.
    """
    lengths = [s.stop - s.start for s in index]
    while (now := _dearest(index, lengths, cost)) > limit:
        halves = [
            (_dearest(index, [*lengths[:d], -(-n // 2), *lengths[d + 1 :]], cost), -n, d)
            for d, n in enumerate(lengths)
            if n > 1
        ]
        if not halves or min(halves)[0] > _WORTH_IT * now:
            break
        lengths[min(halves)[2]] = -(-lengths[min(halves)[2]] // 2)
    yield from _grid(index, lengths)


def merge(blocks: Sequence[Index], cost: Callable[[Index], int]) -> list[Index]:
    """Merge blocks that share many of their inputs into larger regions.

    Args:
        blocks: Distinct blocks with the same number of dimensions.
        cost: As for `cut`.
    """
    regions = list(blocks)
    for d in range(len(blocks[0]) if blocks else 0):
        rows: dict[str, list[Index]] = {}
        for region in regions:
            rows.setdefault(str((*region[:d], *region[d + 1 :])), []).append(region)
        regions = [region for row in rows.values() for region in _merged(row, d, cost)]
    return regions


def _merged(row: list[Index], d: int, cost: Callable[[Index], int]) -> list[Index]:
    """Regions that differ in one dimension only, merged if that is cheaper."""
    whole = list(row[0])
    whole[d] = slice(min(block[d].start for block in row), max(block[d].stop for block in row))
    together = tuple(whole)
    cheaper = cost(together) < _WORTH_IT * sum(map(cost, row))
    return [together] if cheaper else row


def _dearest(index: Index, lengths: Sequence[int], cost: Callable[[Index], int]) -> int:
    """The larger cost of the first and last tiles; for a cumulative sum the last costs most."""
    first = tuple(slice(s.start, s.start + n) for s, n in zip(index, lengths, strict=True))
    last = tuple(slice(s.stop - n, s.stop) for s, n in zip(index, lengths, strict=True))
    return max(cost(first), cost(last))


def _grid(index: Index, lengths: Sequence[int]) -> Iterator[Index]:
    if not index:
        yield ()
        return
    head, length = index[0], lengths[0]
    for start in range(head.start, head.stop, max(length, 1)):
        for rest in _grid(index[1:], lengths[1:]):
            yield (slice(start, min(start + length, head.stop)), *rest)
